"""The background writer runs jobs in order and raises their errors."""

from __future__ import annotations

import threading

import pytest

from srl.experiments.session.checkpointing import BackgroundWriter


def test_a_slow_disk_does_not_block_the_caller() -> None:
    writer, gate, written = BackgroundWriter(threaded=True), threading.Event(), list[int]()

    def slow() -> None:
        gate.wait(60.0)
        written.append(1)

    writer.submit(slow)
    writer.submit(lambda: written.append(2))
    assert writer.busy
    assert written == []
    gate.set()
    writer.finish()
    assert written == [1, 2]
    assert not writer.busy
    writer.close()


def test_a_disk_that_does_not_answer_is_reported_and_does_not_keep_an_interrupted_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("srl.experiments.session.checkpointing.SLOW_SECONDS", 0.0)
    messages = list[str]()
    writer, gate = BackgroundWriter(True, messages.append), threading.Event()

    def hang() -> None:
        gate.wait(60.0)

    def interrupt() -> None:
        raise KeyboardInterrupt

    writer.submit(hang)
    with pytest.raises(KeyboardInterrupt):
        writer.finish(waiting=interrupt)
    (slow,) = messages
    assert slow.startswith("the disk has not written a checkpoint for 0 s")
    writer.close()  # does not wait
    gate.set()
    writer.finish()
    assert messages[1:] == ["the disk writes checkpoints again"]


def test_without_a_thread_a_job_is_done_when_submit_returns() -> None:
    writer, written = BackgroundWriter(threaded=False), list[int]()
    writer.submit(lambda: written.append(1))
    assert written == [1]
    assert not writer.busy


def test_an_unexpected_error_of_a_job_is_raised() -> None:
    writer = BackgroundWriter(threaded=True)
    writer.submit(lambda: [][0])
    with pytest.raises(IndexError):
        writer.finish()
    writer.close()
