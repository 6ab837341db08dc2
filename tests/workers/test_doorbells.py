"""Doorbells: what wakes an idle worker, and what does not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from srl.workers.doorbells import Doorbells


@pytest.fixture
def bells() -> Iterator[Doorbells]:
    made = Doorbells()
    yield made
    made.close()


def seconds_of(bells: Doorbells, timeout: float) -> float:
    began = time.monotonic()
    bells.wait(timeout)
    return time.monotonic() - began


def exhaust(action: Callable[[], object]) -> None:
    """Until it would have to wait."""
    with contextlib.suppress(BlockingIOError):
        while True:
            action()


def settle(bells: Doorbells) -> None:
    """An endpoint that is new may ring once."""
    while seconds_of(bells, 0.05) < 0.05:
        pass


def test_what_arrives_wakes_and_goes_on_waking_until_it_is_read(bells: Doorbells) -> None:
    near, far = socket.socketpair()
    with near, far:
        bells.watch_fd(near.fileno())
        settle(bells)
        far.send(b"x")
        assert seconds_of(bells, 60.0) < 30.0
        assert seconds_of(bells, 60.0) < 30.0
        near.recv(1)
        assert seconds_of(bells, 0.05) >= 0.05


def test_a_thread_can_ring(bells: Doorbells) -> None:
    thread = threading.Thread(target=bells.ring)
    thread.start()
    assert seconds_of(bells, 60.0) < 30.0
    thread.join()
    assert seconds_of(bells, 0.05) >= 0.05


def test_room_in_an_endpoint_that_was_full_wakes_once(bells: Doorbells) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        bells.watch_fd(near.fileno())
        exhaust(lambda: near.send(bytes(65536)))
        settle(bells)
        far.setblocking(False)
        exhaust(lambda: far.recv(65536))
        assert seconds_of(bells, 60.0) < 30.0
        settle(bells)
        assert seconds_of(bells, 0.05) >= 0.05
