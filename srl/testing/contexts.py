"""Contexts for workers and streams without a run: everything except the controller is real."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from srl.api.transport import Message, Transport
from srl.api.worker import WorkerId
from srl.base.meter import Meter
from srl.base.shared_memory import KeptFile
from srl.base.snapshot import Snapshot
from srl.parameters.host import HostParameterStore
from srl.transports.host import HostTransport
from srl.transports.inproc import InprocTransport
from srl.transports.tcp import TcpTransport
from srl.workers.context import WorkerContext


class SharedNames:
    """A name service in a dictionary that all contexts share."""

    def __init__(self, entries: dict[str, str]) -> None:
        self._entries = entries

    def register(self, name: str, address: str) -> None:
        self._entries[name] = address

    def lookup(self, prefix: str) -> dict[str, str]:
        return {name: address for name, address in self._entries.items() if name.startswith(prefix)}


class World:
    """Services shared by the workers of a run. With a `directory`, workers connect over Unix sockets there, like
    processes; without one, they connect in memory. Streams with `remote=True` use TCP in both cases."""

    def __init__(self, directory: Path | None = None, policies: Iterable[str] = ("policy",)) -> None:
        self.names: dict[str, str] = {}
        self.stores = {policy: HostParameterStore.create(policy) for policy in policies}
        self.commits = {policy: Snapshot.create(f"commit-{policy}") for policy in self.stores}
        self.replays = {policy: KeptFile.create(f"replay-{policy}") for policy in self.stores}
        self.reports: list[tuple[WorkerId, Message]] = []
        self._runtime = directory or Path("/nonexistent")
        self._transport: Transport = InprocTransport() if directory is None else HostTransport(directory)
        self._contexts: list[WorkerContext] = []

    def context(
        self, group: str, index: int = 0, incarnation: int = 0, *, seed: int = 0, threads: bool = False
    ) -> WorkerContext:
        """Return the context of one worker."""
        worker_id = WorkerId(group, index, incarnation)

        def report(message: Message) -> None:
            self.reports.append((worker_id, message))

        context = WorkerContext(
            worker_id,
            seed,
            Meter.unshared(),
            SharedNames(self.names),
            self._transport,
            dict(self.stores),
            self.commits,
            report,
            threads,
            self._runtime,
            replays=self.replays,
            tcp=lambda: TcpTransport(b"a secret of thirty-two bytes ...", "world"),
        )
        self._contexts.append(context)
        return context

    def reported(self, kind: type[Any]) -> list[Any]:
        """Return all messages of one type that workers have sent to the controller."""
        return [message for _, message in self.reports if isinstance(message, kind)]

    def close(self) -> None:
        for context in self._contexts:
            context.wait_set.close()
        for store in self.stores.values():
            store.memory.close()
        for snapshot in self.commits.values():
            snapshot.memory.close()
        for file in self.replays.values():
            file.close()
        # Mappings also hold descriptors: release them here, not with the last reference to this object.
        self._contexts.clear()
        self.stores.clear()
        self.commits.clear()
        self.replays.clear()
