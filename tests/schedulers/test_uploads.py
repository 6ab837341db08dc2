"""A version leaves the host that made it once its state is stored, or if there is no controller to store it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from support.fake_controller import ACCEPTED, FakeChannel, connection_to
from support.waiting import until

from srl.api.transport import ChannelClosed, PeerUnresponsive
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.uploads import StateUpload
from srl.schedulers.hosts.messages import CommittedState
from srl.schedulers.local.run_memory import RunMemory
from srl.transports.tcp import TcpTransport


class Hosts:
    """The trainer's host, and another that follows it."""

    def __init__(self, controller: FakeChannel, *others: FakeChannel | ChannelClosed) -> None:
        transport = TcpTransport(b"a secret of thirty-two bytes ...", "run")
        self.memories = [RunMemory.create(["policy"]) for _ in range(2)]
        self.relays = [
            ParameterRelay(transport, memory.parameters, lambda _: None, lambda: None) for memory in self.memories
        ]
        self.relays[1].follow("policy", self.relays[0].address)
        self.connection = connection_to(controller, *others)
        self.upload = StateUpload(self.memories[0].commits, self.connection, self.relays[0])

    def commit(self, version: int) -> None:
        parameters: Array = np.full(3, version, np.float32)
        self.memories[0].commits["policy"].write(version, {"parameters": parameters}, {})
        self.upload.send()

    def wait_for(self, version: int) -> None:
        """Wait until the other host has this version."""
        store = self.memories[1].parameters["policy"]
        until(lambda: store.version == version, *(relay.poll for relay in self.relays))

    def close(self) -> None:
        for relay in self.relays:
            relay.close()
        for memory in self.memories:
            memory.close()
        self.__dict__.clear()


@pytest.fixture
def channels() -> tuple[FakeChannel, FakeChannel]:
    return FakeChannel(), FakeChannel(ACCEPTED)


@pytest.fixture
def hosts(channels: tuple[FakeChannel, FakeChannel]) -> Iterator[Hosts]:
    dying, successor = channels
    made = Hosts(dying, PeerUnresponsive("is frozen"), ChannelClosed("nothing listens"), successor)
    yield made
    made.close()


def sent(channel: FakeChannel) -> list[int]:
    return [message.version for message in channel.sent if isinstance(message, CommittedState)]


def test_a_version_waits_until_its_state_is_stored(hosts: Hosts, channels: tuple[FakeChannel, FakeChannel]) -> None:
    hosts.commit(0)
    hosts.commit(1)
    assert sent(channels[0]) == [0]
    for relay in hosts.relays * 3:
        relay.poll()
    assert hosts.memories[1].parameters["policy"].version == -1
    commits = hosts.memories[0].commits["policy"]
    assert (commits.version, commits.durable) == (1, -1)
    hosts.upload.confirm("policy", 0)
    assert commits.durable == 0
    hosts.wait_for(0)
    hosts.upload.send()
    assert sent(channels[0]) == [0, 1]


def test_the_last_state_of_a_trainer_that_died_does_not_wait_for_a_confirmation(
    hosts: Hosts, channels: tuple[FakeChannel, FakeChannel]
) -> None:
    hosts.commit(0)
    hosts.commit(1)
    hosts.upload.send(at_once=True)
    assert sent(channels[0]) == [0, 1]
    hosts.upload.confirm("policy", 0)
    hosts.wait_for(0)
    hosts.upload.send(at_once=True)
    assert sent(channels[0]) == [0, 1]


def test_a_version_whose_upload_died_with_the_controller_reaches_the_other_hosts(
    hosts: Hosts, channels: tuple[FakeChannel, FakeChannel]
) -> None:
    dying, successor = channels
    hosts.commit(0)
    assert sent(dying) == [0]
    dying.received.append(ChannelClosed("is gone"))
    assert list(hosts.connection.receive()) == []
    assert not hosts.connection.reconnect(lambda: ACCEPTED)
    hosts.commit(1)
    assert not hosts.connection.controller_died  # it may live, and replace the workers of this host
    assert hosts.memories[0].commits["policy"].durable == -1
    until(lambda: hosts.connection.controller_died, lambda: hosts.connection.reconnect(lambda: ACCEPTED))
    hosts.upload.confirm_all()
    hosts.wait_for(0)
    hosts.upload.send()
    assert hosts.memories[0].commits["policy"].durable == 1  # nothing can be stored elsewhere, and training goes on
    hosts.wait_for(1)
    until(lambda: hosts.connection.reconnect(lambda: ACCEPTED))
    hosts.upload.restart()
    hosts.upload.send()
    assert hosts.memories[0].commits["policy"].durable == -1
    assert sent(successor) == [1]
    assert hosts.upload.in_progress
