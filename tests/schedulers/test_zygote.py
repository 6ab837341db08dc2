"""Zygotes that are started before the run is known."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from support.idle_worker import IdleConfig
from support.waiting import until, wait_for

from srl.__main__ import forks_workers
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent
from srl.api.worker import WorkerId
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


class Clocked:
    """A scheduler whose time a test sets. Its zygote is ready."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        (folder / "logs").mkdir()
        self.memory = RunMemory.create(["policy"])
        self.scheduler = ProcessScheduler("test", self.memory, folder / "r", LogFiles(folder / "logs", Losses()))
        until(lambda: self.scheduler.ready, lambda: self.scheduler.poll(0.05))

    def stop_zygote(self) -> list[Event]:
        os.kill(self.scheduler._handle.process.pid, signal.SIGSTOP)
        self.now += 10.0
        return self.scheduler.poll(0.0)  # asks it

    def pass_silence(self) -> list[Event]:
        """Advance the clock until the zygote is replaced."""
        events = []
        for _ in range(int(ZYGOTE_SECONDS / MAX_GAP_SECONDS)):
            self.now += MAX_GAP_SECONDS
            events += self.scheduler.poll(0.0)
        return events

    def close(self) -> None:
        self.scheduler.close()
        self.memory.close()
        self.__dict__.clear()  # mappings hold descriptors, too


@pytest.fixture
def clocked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clocked]:
    made = Clocked(tmp_path, monkeypatch)
    yield made
    made.close()


def test_only_silence_while_the_machine_runs_counts_against_a_zygote(clocked: Clocked) -> None:
    assert clocked.stop_zygote() == []
    clocked.now = 1000.0
    assert clocked.scheduler.poll(0.0) == []  # the machine was suspended
    (event,) = clocked.pass_silence()
    assert isinstance(event, HostEvent)
    assert "does not answer" in event.text


def test_a_worker_is_not_to_blame_for_a_zygote_that_does_not_start_it(clocked: Clocked) -> None:
    clocked.stop_zygote()
    worker_id = WorkerId("actors", 0, 0)
    clocked.scheduler.start(worker_id, IdleConfig(), Resources(), 0)
    assert Died(worker_id, "its zygote does not answer", clean=False, blameless=True) in clocked.pass_silence()


def test_a_worker_is_not_to_blame_for_the_death_of_the_zygote_that_was_replaced(clocked: Clocked) -> None:
    worker_id = WorkerId("actors", 0, 0)
    clocked.scheduler.start(worker_id, IdleConfig(), Resources(), 0)
    until(lambda: clocked.scheduler.pid(worker_id), lambda: clocked.scheduler.poll(0.05))
    zygote = clocked.scheduler._handle.process
    events = clocked.stop_zygote() + clocked.pass_silence()
    zygote.kill()  # its workers end with it
    until(lambda: not clocked.scheduler.worker_ids(), lambda: events.extend(clocked.scheduler.poll(0.05)))
    assert Died(worker_id, "ended", clean=False, blameless=True) in events
