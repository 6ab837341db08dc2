"""Who writes does it beside those who wait for nothing, in order, and hides no error."""

from __future__ import annotations

import threading

import pytest

from srl.storage.background_writer import BackgroundWriter


def test_a_slow_disk_holds_nobody_up() -> None:
    scribe, gate, written = BackgroundWriter(beside=True), threading.Event(), list[int]()

    def slow() -> None:
        gate.wait(60.0)
        written.append(1)

    scribe.begin(slow)
    scribe.begin(lambda: written.append(2))
    assert scribe.busy
    assert written == []
    gate.set()
    scribe.finish()
    assert written == [1, 2]
    assert not scribe.busy
    scribe.close()


def test_without_a_thread_all_is_written_when_it_returns() -> None:
    scribe, written = BackgroundWriter(beside=False), list[int]()
    scribe.begin(lambda: written.append(1))
    assert written == [1]
    assert not scribe.busy


def test_what_goes_wrong_unforeseen_is_raised() -> None:
    scribe = BackgroundWriter(beside=True)
    scribe.begin(lambda: [][0])
    with pytest.raises(IndexError):
        scribe.finish()
    scribe.close()
