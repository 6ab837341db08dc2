"""Fake agents that exchange messages with a real fleet or scheduler."""

from __future__ import annotations

import atexit
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import srl
from srl.api.scheduler import Event
from srl.api.transport import Channel, Listener
from srl.schedulers.hosts.engine import Engine
from srl.schedulers.hosts.messages import (
    AGENTS,
    AgentSettings,
    Join,
    JoinAccepted,
    Messages,
    Rejoin,
    RelayAddress,
    codec,
)
from srl.schedulers.hosts.replicas import Retention
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.worker_logs import LogFiles
from srl.transports.join_ticket import Identity, JoinFile, JoinTicket
from srl.transports.tls import TlsTransport
from support.waiting import until

SECRET = b"a secret of thirty-two bytes ..."


def join_message(name: str, version: str | None = None, gpus: float = 0.0) -> Join:
    return Join(name, version or srl.__version__, 0, 2.0, gpus, 1000)


def new_identity() -> Identity:
    """Return the identity of a fake controller."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return Identity.create(Path(folder.name) / "controller.pem")


class FakeEngine(Engine):
    """An engine that starts nothing. Tests set the problems that it reports."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.failed = False

    def start(self, new_ticket: Callable[[], JoinTicket]) -> None: ...

    def poll(self) -> str | None:
        return self.problem

    def start_failed(self) -> bool:
        return self.failed

    def hint(self) -> str:
        return "wait"

    def close(self) -> None: ...


class FakeAgents:
    """Connects fake agents. A subclass makes the controller's end with `listener`, and polls it in `poll`."""

    def __init__(self, bind: str = "127.0.0.1") -> None:
        self.identity = new_identity()
        self.transport = TlsTransport(self.identity, AGENTS, bind, codec=codec)
        self.listener: Listener = self.transport.listen("the controller", Messages)
        self.address = self.listener.address

    def poll(self) -> None:
        raise NotImplementedError

    def connect(self, join: Join | Rejoin) -> Channel:
        channel = self.transport.connect(self.address, Messages)
        channel.send(join)
        return channel

    def receive(self, channel: Channel, *kinds: type[Any]) -> Any:
        """Wait for the next message of these kinds."""

        def next_of_kind() -> Any:
            channel.flush()
            while (received := channel.receive()) is not None:
                if isinstance(received[0], kinds):
                    return received[0]
            return None

        return until(next_of_kind, self.poll)


class FakeHosts(FakeAgents):
    """A real scheduler whose hosts are fake."""

    def __init__(
        self,
        logs: Path,
        settings: AgentSettings,
        retention: Retention | None = None,
        takeover: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.memory = RunMemory.create(["policy"])
        self.engine = FakeEngine()
        self.scheduler = HostsScheduler(
            settings,
            self.memory,
            self.listener,
            JoinFile(logs / "join", self.identity, "run", self.address.removeprefix("tls:")),
            self.engine,
            1,
            LogFiles(logs),
            retention=retention,
            takeover=takeover,
        )
        self.events: list[Event] = []
        self.channels: list[Channel] = []

    def poll(self) -> None:
        self.events += self.scheduler.poll(0.0)

    def join(self, join: Join) -> Channel:
        channel = self.connect(join)
        self.channels.append(channel)
        self.receive(channel, JoinAccepted)
        channel.send(RelayAddress(f"tcp:{join.host}:1"))
        return channel

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        self.scheduler.close()
        self.memory.close()
        self.__dict__.clear()  # mappings hold descriptors, too
