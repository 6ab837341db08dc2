"""Processes that workers left behind."""

from __future__ import annotations

import os
import subprocess

import pytest
from support.waiting import wait_for

from srl.schedulers.local.strays import MARK, kill_strays


def test_only_processes_with_the_mark_or_one_below_it_are_killed() -> None:
    marks = ("aa", "aa/actors/0.1", "aab")
    started = [
        subprocess.Popen(["sleep", "1000"], start_new_session=True, env={**os.environ, MARK: mark}) for mark in marks
    ]
    try:
        kill_strays("aa")
        wait_for(lambda: [process.poll() for process in started[:2]] == [-9, -9], "both are killed")
        assert started[2].poll() is None
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_an_empty_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        kill_strays("")
