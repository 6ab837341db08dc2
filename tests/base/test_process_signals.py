"""A stop request that a library swallows is not lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import srl
from srl.base.process import (
    STOP_SIGNALS,
    raise_stop_request,
    recorded_stop_requests,
    stop_request,
    uninterrupted,
)


def swallow(number: signal.Signals) -> None:
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_swallowed_signal_can_be_raised_later(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with recorded_stop_requests():
        raise_stop_request()
        swallow(number)
        assert stop_request() is number
        with pytest.raises(KeyboardInterrupt):
            raise_stop_request()
    assert signal.getsignal(number) is before
    assert stop_request() is None


def test_a_signal_in_an_uninterrupted_block_is_raised_at_the_end_of_the_outermost_one() -> None:
    done: list[str] = []

    @uninterrupted()
    def work() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            done.append("inner")
        done.append("outer")

    with recorded_stop_requests():
        with pytest.raises(KeyboardInterrupt):
            work()
        with uninterrupted():  # one KeyboardInterrupt stands for both signals
            done.append("next")
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert done == ["inner", "outer", "next"]


def test_a_run_that_starts_after_a_swallowed_signal_ends_at_once(tmp_path: Path) -> None:
    with recorded_stop_requests():
        swallow(signal.SIGINT)
        run = srl.train("CartPole-v1", root=tmp_path, steps=10**9, scheduler="inline")
    assert run.state == "stopped"
    assert run.status.steps == 0


SCRIPT = """
import os, signal
from srl.base.process import end_at_once_on_interrupt
{}
end_at_once_on_interrupt()
os.kill(os.getpid(), 2)
"""


@pytest.mark.parametrize(("before", "code"), [("", -signal.SIGINT), ("signal.signal(2, signal.SIG_IGN);", 0)])
def test_an_interrupt_during_startup_ends_the_process_unless_it_is_ignored(before: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT.format(before)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, "")
