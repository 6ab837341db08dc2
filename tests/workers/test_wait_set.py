"""The wait set: events that wake an idle worker, and events that do not."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from srl.workers.wait_set import WaitSet


@pytest.fixture
def wait_set() -> Iterator[WaitSet]:
    made = WaitSet()
    yield made
    made.close()


def seconds_of(wait_set: WaitSet, timeout: float) -> float:
    began = time.monotonic()
    wait_set.wait(timeout)
    return time.monotonic() - began


def exhaust(action: Callable[[], object]) -> None:
    """Repeat an action until it would block."""
    with contextlib.suppress(BlockingIOError):
        while True:
            action()


def settle(wait_set: WaitSet) -> None:
    """Wait until nothing wakes the worker: a new endpoint may do so once."""
    while seconds_of(wait_set, 0.05) < 0.05:
        pass


def test_a_message_wakes_the_worker_until_it_is_read(wait_set: WaitSet) -> None:
    near, far = socket.socketpair()
    with near, far:
        wait_set.watch_fd(near.fileno())
        settle(wait_set)
        far.send(b"x")
        assert seconds_of(wait_set, 60.0) < 30.0
        assert seconds_of(wait_set, 60.0) < 30.0
        near.recv(1)
        assert seconds_of(wait_set, 0.05) >= 0.05


def test_a_thread_wakes_the_worker(wait_set: WaitSet) -> None:
    thread = threading.Thread(target=wait_set.wake)
    thread.start()
    assert seconds_of(wait_set, 60.0) < 30.0
    thread.join()
    assert seconds_of(wait_set, 0.05) >= 0.05


def test_an_endpoint_that_can_send_again_wakes_the_worker_once(wait_set: WaitSet) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        wait_set.watch_fd(near.fileno())
        exhaust(lambda: near.send(bytes(65536)))
        settle(wait_set)
        far.setblocking(False)
        exhaust(lambda: far.recv(65536))
        assert seconds_of(wait_set, 60.0) < 30.0
        settle(wait_set)
        assert seconds_of(wait_set, 0.05) >= 0.05
