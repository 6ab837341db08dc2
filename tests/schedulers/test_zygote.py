"""Zygotes that are started before the run is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.waiting import until, wait_for

from srl.__main__ import forks_workers
from srl.api.scheduler import HostEvent
from srl.base.files import Losses
from srl.schedulers.local import scheduler as module
from srl.schedulers.local import zygote_launch
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.scheduler import MAX_GAP_SECONDS, ZYGOTE_SECONDS, ProcessScheduler
from srl.schedulers.local.worker_logs import LogFiles
from srl.schedulers.local.zygote_launch import ZygoteHandle


@pytest.fixture
def early() -> Iterator[ZygoteHandle]:
    zygote_launch.start_early()
    (handle,) = zygote_launch._started_early
    yield handle
    zygote_launch._started_early.clear()
    handle.channel.close()
    handle.process.wait(60)


def test_a_zygote_that_was_started_early_is_used_once(early: ZygoteHandle) -> None:
    zygote_launch.start_early()
    assert zygote_launch.take_zygote() is early
    another = zygote_launch.take_zygote()
    another.channel.close()
    assert another.process.pid != early.process.pid
    another.process.wait(60)


def test_an_early_zygote_that_died_is_replaced(early: ZygoteHandle) -> None:
    early.process.kill()
    early.process.wait(60)
    another = zygote_launch.take_zygote()
    assert another.process.pid != early.process.pid
    another.channel.close()
    another.process.wait(60)


def test_an_early_zygote_ends_if_there_is_no_run(early: ZygoteHandle) -> None:
    early.channel.close()
    assert early.process.wait(60) in (0, 1)


def test_a_zygote_has_its_own_session_and_limits_the_threads_of_workers(early: ZygoteHandle) -> None:
    child = psutil.Process(early.process.pid)
    wait_for(lambda: "srl.schedulers.local.zygote" in child.cmdline(), "the program of the zygote")
    assert child.environ()["OMP_NUM_THREADS"] == "1"
    assert os.getsid(child.pid) == child.pid  # Ctrl-C in a terminal does not reach it


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train CartPole-v1 --steps 10", True),
        ("resume latest", True),
        ("bench throughput --workload pong", True),
        ("train CartPole-v1 --scheduler inline", False),
        ("train CartPole-v1 --scheduler=hosts", False),
        ("sweep CartPole-v1 --seeds 5", False),
        ("train --help", False),
        ("bench ring", False),
        ("eval latest", False),
        ("", False),
    ],
)
def test_commands_whose_workers_are_forked_here_start_a_zygote(words: str, expected: bool) -> None:
    assert forks_workers(words.split()) is expected


def test_only_silence_while_the_machine_runs_counts_against_a_zygote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    (tmp_path / "logs").mkdir()
    memory = RunMemory.create(["policy"])
    scheduler = ProcessScheduler("test", memory, tmp_path / "r", LogFiles(tmp_path / "logs", Losses()))
    try:
        until(lambda: scheduler.ready, lambda: scheduler.poll(0.05))
        os.kill(scheduler._handle.process.pid, signal.SIGSTOP)
        now = 10.0
        assert scheduler.poll(0.0) == []  # asks it
        now = 1000.0
        assert scheduler.poll(0.0) == []  # the machine was suspended
        events = []
        for _ in range(int(ZYGOTE_SECONDS / MAX_GAP_SECONDS)):
            now += MAX_GAP_SECONDS
            events += scheduler.poll(0.0)
        (event,) = events
        assert isinstance(event, HostEvent)
        assert "does not answer" in event.text
    finally:
        scheduler.close()
        memory.close()
