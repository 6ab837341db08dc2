"""The world as one worker sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srl.api.parameters import ParameterStore
from srl.api.trainer import TrainerGroup
from srl.api.transport import Channel, Listener, Message, NameService, Transport
from srl.api.worker import Place
from srl.base.meter import Meter
from srl.base.snapshot import Snapshot
from srl.transports.endpoints import DualListener, address_from
from srl.workers.doorbells import Doorbells
from srl.workers.trainer.rendezvous import interface_of, meet

MEETING_SECONDS = 30.0


@dataclass
class WorkerContext:
    """Implements :class:`srl.api.worker.Context` for every scheduler; what differs between them are its parts."""

    place: Place
    seed: int
    meter: Meter
    names: NameService
    local: Transport
    """Reaches the workers of this host."""
    stores: dict[str, ParameterStore]
    committed: dict[str, Snapshot]
    send: Callable[[Message], None]
    threads: bool
    runtime: Path
    tcp: Callable[[], Transport] | None = None
    """Reaches workers of other hosts; opened when first needed."""
    host: str = ""
    """Which of the run's hosts this is; empty where there is only one."""
    bind: str = ""
    """The address of this host for others."""
    listen_to_controller: Callable[[], None] = lambda: None
    """Set by the process around the worker."""
    bells: Doorbells = field(default_factory=Doorbells)
    _remote: Transport | None = None

    def listen(self, name: str, messages: Any, *, remote: bool = False) -> Listener:
        full = f"{name}.{self.place.incarnation}"
        listener: Listener
        if remote:
            listener = self._over_tcp().listen(full, messages)
        elif self.host:
            near, far = self.local.listen(full, messages), self._over_tcp().listen(full, messages)
            listener = DualListener(self.host, near, far)
        else:
            listener = self.local.listen(full, messages)
        self.names.register(name, listener.address)
        return listener

    def connect(self, address: str, messages: Any) -> Channel:
        address = address_from(self.host, address)
        transport = self._over_tcp() if address.startswith("tcp:") else self.local
        return transport.connect(address, messages)

    def _over_tcp(self) -> Transport:
        if self._remote is None:
            if self.tcp is None:
                raise ValueError("streams over TCP need the `processes` scheduler: an inline run has one process only")
            self._remote = self.tcp()
        return self._remote

    def parameters(self, policy: str) -> ParameterStore:
        return self.stores[policy]

    def commits(self, policy: str) -> Snapshot:
        return self.committed[policy]

    def report(self, message: Message) -> None:
        self.send(message)

    def trainer_group(self, policy: str, size: int) -> TrainerGroup:
        if not self.host:
            place = f"file://{self.runtime}/trainers-{policy}-{self.place.incarnation}"
            return TrainerGroup(self.place.index, size, place)
        meeting = meet(self, policy, MEETING_SECONDS)
        return TrainerGroup(self.place.index, size, meeting, interface=interface_of(self.bind))

    def hear(self, timeout: float) -> None:
        self.listen_to_controller()
        self.bells.wait(timeout)

    def bell(self) -> Callable[[], None]:
        return self.bells.ring

    def wake_on(self, endpoint: Channel | Listener) -> None:
        self.bells.watch(endpoint)
