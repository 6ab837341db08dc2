"""Trainers of several hosts meet: what one says, the others hear, also before it is said."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from srl.testing.contexts import World
from srl.workers.trainer.rendezvous import HostedMeeting, VisitedMeeting, interface_of, meet


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_values_go_both_ways_and_are_waited_for(world: World) -> None:
    host = meet(world.context("trainers", 0, 3), "policy", 30.0)
    guest = meet(world.context("trainers", 1, 3), "policy", 30.0)
    assert isinstance(host, HostedMeeting)
    assert isinstance(guest, VisitedMeeting)
    heard: list[bytes] = []
    waiting = threading.Thread(target=lambda: heard.append(guest.get("zero")))
    waiting.start()
    host.set("zero", b"from rank 0")
    waiting.join(30.0)
    guest.set("one", b"from rank 1")
    assert (heard, host.get("one")) == ([b"from rank 0"], b"from rank 1")
    guest.close()
    host.close()


def test_who_waits_in_vain_says_for_what(world: World) -> None:
    with pytest.raises(TimeoutError, match="rank 0 of policy did not open its meeting"):
        meet(world.context("trainers", 1, 3), "policy", 0.1)
    former = meet(world.context("trainers", 0, 2), "policy", 0.1)
    with pytest.raises(TimeoutError, match="did not open"):
        meet(world.context("trainers", 1, 3), "policy", 0.1)  # of another generation
    with pytest.raises(TimeoutError, match="nobody came to the meeting with 'one'"):
        former.get("one")
    former.close()


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""
