"""Agents that are played by hand: what they say to a real controller's end, and what they are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import srl
from srl.api.scheduler import Event
from srl.api.transport import Channel, Listener
from srl.schedulers.hosts.fleet import Hosting
from srl.schedulers.hosts.messages import AGENTS, Join, Messages, Rejoin, Relay, Welcome, codec
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.testing.contexts import until
from srl.transports.tcp import TcpTransport

JOIN_SECRET = b"another secret of 32 bytes ....."
SECRET = b"a secret of thirty-two bytes ..."


def hello(name: str, version: str | None = None, gpus: float = 0.0) -> Join:
    return Join(name, version or srl.__version__, 0, 2.0, gpus, 1000)


class Nobody:
    """An engine whose agents come by themselves; what happens to them is written by the test."""

    def __init__(self) -> None:
        self.problem: str | None = None
        self.vain = False

    def start(self, address: str, secret: bytes) -> None: ...

    def poll(self) -> str | None:
        return self.problem

    def in_vain(self) -> bool:
        return self.vain

    def hint(self, address: str) -> str:
        return "wait"

    def close(self) -> None: ...


class Played:
    """The controller's end is made by who inherits from this, with `listener`, and polled by `poll`."""

    def __init__(self) -> None:
        self.transport = TcpTransport(JOIN_SECRET, AGENTS, encrypt=True, codec=codec)
        self.listener: Listener = self.transport.listen("the controller", Messages)
        self.address = self.listener.address

    def poll(self) -> None:
        raise NotImplementedError

    def dial(self, join: Join | Rejoin) -> Channel:
        channel = self.transport.connect(self.address, Messages)
        channel.send(join)
        return channel

    def hear(self, channel: Channel, *kinds: type[Any]) -> Any:
        def next_of_kind() -> Any:
            channel.flush()
            while (received := channel.receive()) is not None:
                if isinstance(received[0], kinds):
                    return received[0]
            return None

        return until(next_of_kind, self.poll)


class PlayedHosts(Played):
    """A scheduler over hosts that are played."""

    def __init__(self, logs: Path, hosting: Hosting) -> None:
        super().__init__()
        self.memory = RunMemory.create(["policy"])
        self.engine = Nobody()
        self.scheduler = HostsScheduler(hosting, self.memory, self.listener, JOIN_SECRET, self.engine, 1, logs)
        self.events: list[Event] = []
        self.channels: list[Channel] = []

    def poll(self) -> None:
        self.events += self.scheduler.poll(0.0)

    def join(self, join: Join) -> Channel:
        channel = self.dial(join)
        self.channels.append(channel)
        self.hear(channel, Welcome)
        channel.send(Relay(f"tcp:{join.host}:1"))
        return channel

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        self.scheduler.close()
        self.memory.close()
        self.__dict__.clear()  # mappings hold descriptors, too
