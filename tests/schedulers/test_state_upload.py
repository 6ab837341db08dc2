"""When a version may leave the host that made it: once its state is safe, or nobody is there to keep it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.fake_controller import WELCOME, Line, line_to

from srl.api.transport import ChannelClosed
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.state_upload import Shipping
from srl.schedulers.hosts.messages import State
from srl.schedulers.local.run_memory import RunMemory
from srl.testing.contexts import until
from srl.transports.tcp import TcpTransport


class Hosts:
    """The trainer's host, and another that follows it."""

    def __init__(self, *controllers: Line) -> None:
        transport = TcpTransport(b"a secret of thirty-two bytes ...", "run")
        self.memories = [RunMemory.create(["policy"]) for _ in range(2)]
        self.relays = [
            ParameterRelay(transport, memory.parameters, lambda _: None, lambda: None) for memory in self.memories
        ]
        self.relays[1].follow("policy", self.relays[0].address)
        self.line = line_to(*controllers)
        self.shipping = Shipping(self.memories[0].commits, self.line, self.relays[0])

    def commit(self, version: int) -> None:
        parameters: Array = np.full(3, version, np.float32)
        self.memories[0].commits["policy"].write(version, {"parameters": parameters}, {})
        self.shipping.ship()

    def arrives(self, version: int) -> None:
        """At the other host."""
        store = self.memories[1].parameters["policy"]
        until(lambda: store.version == version, *(relay.poll for relay in self.relays))

    def close(self) -> None:
        for relay in self.relays:
            relay.close()
        for memory in self.memories:
            memory.close()
        self.__dict__.clear()


@pytest.fixture
def lines() -> tuple[Line, Line]:
    return Line(), Line(WELCOME)


@pytest.fixture
def hosts(lines: tuple[Line, Line]) -> Iterator[Hosts]:
    made = Hosts(*lines)
    yield made
    made.close()


def sent(line: Line) -> list[int]:
    return [message.version for message in line.sent if isinstance(message, State)]


def test_a_version_waits_until_its_state_is_kept(hosts: Hosts, lines: tuple[Line, Line]) -> None:
    hosts.commit(0)
    hosts.commit(1)
    assert sent(lines[0]) == [0]
    for relay in hosts.relays * 3:
        relay.poll()
    assert hosts.memories[1].parameters["policy"].version == -1
    hosts.shipping.arrived("policy", 0)
    hosts.arrives(0)
    hosts.shipping.ship()
    assert sent(lines[0]) == [0, 1]


def test_a_version_whose_state_died_with_the_controller_goes_to_those_who_wait_for_it(
    hosts: Hosts, lines: tuple[Line, Line]
) -> None:
    dying, successor = lines
    hosts.commit(0)
    assert sent(dying) == [0]
    dying.received.append(ChannelClosed("is gone"))
    assert list(hosts.line.receive()) == []
    hosts.shipping.let_go()
    hosts.arrives(0)
    hosts.commit(1)
    hosts.arrives(1)
    assert hosts.line.redial(lambda: WELCOME)
    hosts.shipping.begin_anew()
    hosts.shipping.ship()
    assert sent(successor) == [1]
    assert hosts.shipping.under_way
