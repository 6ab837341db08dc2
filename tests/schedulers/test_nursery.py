"""Zygotes that are begun before the run is known."""

from __future__ import annotations

import os
from collections.abc import Iterator

import psutil
import pytest

from srl.__main__ import forks_workers
from srl.schedulers import nursery
from srl.schedulers.nursery import Newborn
from srl.testing.waiting import wait_for


@pytest.fixture
def early() -> Iterator[Newborn]:
    nursery.begin_early()
    (newborn,) = nursery._early
    yield newborn
    nursery._early.clear()
    newborn.channel.close()
    newborn.process.wait(60)


def test_the_early_one_is_taken_once(early: Newborn) -> None:
    nursery.begin_early()
    assert nursery.zygote() is early
    another = nursery.zygote()
    another.channel.close()
    assert another.process.pid != early.process.pid
    another.process.wait(60)


def test_one_that_died_is_replaced(early: Newborn) -> None:
    early.process.kill()
    early.process.wait(60)
    another = nursery.zygote()
    assert another.process.pid != early.process.pid
    another.channel.close()
    another.process.wait(60)


def test_nobody_is_left_when_there_is_no_run(early: Newborn) -> None:
    early.channel.close()
    assert early.process.wait(60) in (0, 1)


def test_it_knows_the_threads_that_workers_may_have(early: Newborn) -> None:
    child = psutil.Process(early.process.pid)
    wait_for(lambda: "srl.schedulers.zygote" in child.cmdline(), "a program")
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
