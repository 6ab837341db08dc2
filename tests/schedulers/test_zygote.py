"""Zygotes that are begun before the run is known."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest
from support.waiting import wait_for

from srl.__main__ import forks_workers
from srl.schedulers.local import zygote_launch
from srl.schedulers.local.zygote_launch import ZygoteHandle


@pytest.fixture
def early() -> Iterator[ZygoteHandle]:
    zygote_launch.begin_early()
    (newborn,) = zygote_launch._early
    yield newborn
    zygote_launch._early.clear()
    newborn.channel.close()
    newborn.process.wait(60)


def test_the_early_one_is_taken_once(early: ZygoteHandle) -> None:
    zygote_launch.begin_early()
    assert zygote_launch.zygote() is early
    another = zygote_launch.zygote()
    another.channel.close()
    assert another.process.pid != early.process.pid
    another.process.wait(60)


def test_one_that_died_is_replaced(early: ZygoteHandle) -> None:
    early.process.kill()
    early.process.wait(60)
    another = zygote_launch.zygote()
    assert another.process.pid != early.process.pid
    another.channel.close()
    another.process.wait(60)


def test_nobody_is_left_when_there_is_no_run(early: ZygoteHandle) -> None:
    early.channel.close()
    assert early.process.wait(60) in (0, 1)


def test_it_knows_the_threads_that_workers_may_have(early: ZygoteHandle) -> None:
    child = psutil.Process(early.process.pid)
    wait_for(lambda: "srl.schedulers.local.zygote" in child.cmdline(), "a program")
    assert child.environ()["OMP_NUM_THREADS"] == "1"
    assert os.getsid(child.pid) == child.pid  # not in the terminal's session


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("train CartPole-v1 --steps 10", True),
        ("resume latest", True),
        ("bench throughput --workload pong", True),
        ("train CartPole-v1 --scheduler inline", False),
        ("train CartPole-v1 --scheduler=hosts", False),
        ("train CartPole-v1 --seeds 5", False),
        ("train --help", False),
        ("bench ring", False),
        ("eval latest", False),
        ("", False),
    ],
)
def test_which_commands_need_one(words: str, expected: bool) -> None:
    assert forks_workers(words.split()) is expected
