"""The rendezvous of trainers on several hosts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from srl.testing.contexts import World
from srl.workers.trainer.rendezvous import RendezvousClient, RendezvousServer, interface_of, join_rendezvous


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_values_are_sent_in_both_directions_and_waited_for(world: World) -> None:
    server = join_rendezvous(world.context("trainers", 0, 3), "policy", 30.0)
    client = join_rendezvous(world.context("trainers", 1, 3), "policy", 30.0)
    assert isinstance(server, RendezvousServer)
    assert isinstance(client, RendezvousClient)
    received: list[bytes] = []
    waiting = threading.Thread(target=lambda: received.append(client.get("zero")))
    waiting.start()
    server.set("zero", b"from rank 0")
    waiting.join(30.0)
    client.set("one", b"from rank 1")
    assert (received, server.get("one")) == ([b"from rank 0"], b"from rank 1")
    client.close()
    server.close()


def test_a_timeout_names_the_missing_key_or_rank(world: World) -> None:
    with pytest.raises(TimeoutError, match="waiting for rank 0 of policy to open it"):
        join_rendezvous(world.context("trainers", 1, 3), "policy", 0.1)
    former = join_rendezvous(world.context("trainers", 0, 2), "policy", 0.1)
    with pytest.raises(TimeoutError, match="waiting for rank 0"):
        join_rendezvous(world.context("trainers", 1, 3), "policy", 0.1)  # of another generation
    with pytest.raises(TimeoutError, match="waiting for key 'one'"):
        former.get("one")
    former.close()


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""
