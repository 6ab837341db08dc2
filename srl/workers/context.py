"""A worker's context: its access to the rest of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srl.api.parameters import ParameterStore
from srl.api.trainer import TrainerGroup
from srl.api.transport import Channel, Listener, Message, NameService, Transport
from srl.api.worker import WorkerId
from srl.base.meter import Counter, Meter
from srl.base.shared_memory import KeptFile, KeptMemory
from srl.base.snapshot import Snapshot
from srl.transports.endpoints import DualListener, address_from
from srl.workers.trainer.rendezvous import interface_of, join_rendezvous
from srl.workers.wait_set import WaitSet

RENDEZVOUS_SECONDS = 30.0


@dataclass
class WorkerContext:
    """Implementation of :class:`srl.api.worker.Context` backed by a scheduler's services."""

    worker_id: WorkerId
    seed: int
    meter: Meter
    names: NameService
    local: Transport  # transport to workers on this host
    stores: dict[str, ParameterStore]
    committed: dict[str, Snapshot]
    send: Callable[[Message], None]
    threads: bool
    runtime: Path
    tcp: Callable[[], Transport] | None = None  # creates the transport to workers on other hosts, on first use
    host: str = ""  # name of this host in the run; empty if the run has only one
    bind: str = ""  # address at which other hosts reach this one
    read_control: Callable[[], None] = lambda: None  # reads the controller's messages; set by WorkerProcess
    replays: dict[str, KeptFile] = field(default_factory=dict)  # policy -> memory that outlives this process
    wait_set: WaitSet = field(default_factory=WaitSet)
    _remote: Transport | None = None

    def listen(self, name: str, messages: Any, *, remote: bool = False) -> Listener:
        full = f"{name}.{self.worker_id.incarnation}"
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

    def count_refusal(self) -> None:
        self.meter.add(Counter.REFUSED_CONNECTIONS)

    def parameters(self, policy: str) -> ParameterStore:
        return self.stores[policy]

    def commits(self, policy: str) -> Snapshot:
        return self.committed[policy]

    def kept_memory(self, policy: str, shard: int) -> KeptMemory | None:
        return self.replays[policy].window(shard) if policy in self.replays else None

    def report(self, message: Message) -> None:
        self.send(message)

    def trainer_group(self, policy: str, size: int) -> TrainerGroup:
        if not self.host:
            file = f"file://{self.runtime}/trainers-{policy}-{self.worker_id.incarnation}"
            return TrainerGroup(self.worker_id.index, size, file, interface=interface_of(self.bind))
        rendezvous = join_rendezvous(self, policy, RENDEZVOUS_SECONDS)
        return TrainerGroup(self.worker_id.index, size, rendezvous, interface=interface_of(self.bind))

    def wait_for_controller(self, timeout: float) -> None:
        self.read_control()
        self.wait_set.wait(timeout)

    def waker(self) -> Callable[[], None]:
        return self.wait_set.wake

    def wake_on(self, endpoint: Channel | Listener) -> None:
        self.wait_set.watch(endpoint)
