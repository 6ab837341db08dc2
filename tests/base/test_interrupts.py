"""A wish to end that a library swallowed is remembered."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import srl
from srl.base import interrupts


def swallow(number: signal.Signals) -> None:
    with suppress(KeyboardInterrupt):
        os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", interrupts.WISHES)
def test_what_was_swallowed_is_heeded_later(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interrupts.remembered():
        interrupts.heed()
        swallow(number)
        assert interrupts.asked() is number
        with pytest.raises(KeyboardInterrupt):
            interrupts.heed()
    assert signal.getsignal(number) is before
    assert interrupts.asked() is None


def test_a_run_begun_after_a_swallowed_signal_ends(tmp_path: Path) -> None:
    with interrupts.remembered():
        swallow(signal.SIGINT)
        run = srl.train("CartPole-v1", root=tmp_path, steps=10**9, scheduler="inline")
    assert run.state == "stopped"
    assert run.status.steps == 0


SCRIPT = "import os, signal; from srl.base import interrupts; {} interrupts.die_at_once(); os.kill(os.getpid(), 2)"


@pytest.mark.parametrize(("before", "code"), [("", -signal.SIGINT), ("signal.signal(2, signal.SIG_IGN);", 0)])
def test_who_only_loads_dies_unless_signals_are_to_be_ignored(before: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT.format(before)], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (code, "")
