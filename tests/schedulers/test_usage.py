"""What a process takes, however often somebody asks."""

from __future__ import annotations

import os
import signal
import subprocess
import time

from srl.api.scheduler import Usage
from srl.schedulers.usage import UsageMeters


def until_stopped(meters: UsageMeters, pid: int) -> Usage:
    deadline = time.monotonic() + 30.0
    while not (usage := meters.measure("actors/0", pid)).stopped:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return usage


def test_a_stopped_process_is_known_and_two_questions_at_once_have_one_answer() -> None:
    meters = UsageMeters("host")
    child = subprocess.Popen(["sleep", "100"])
    try:
        first = meters.measure("actors/0", child.pid)
        assert (first.host, first.stopped) == ("host", False)
        assert meters.measure("actors/0", child.pid) is first
        os.kill(child.pid, signal.SIGSTOP)
        assert until_stopped(meters, child.pid).rss_mb > 0
    finally:
        child.kill()
        child.wait()
    assert meters.measure("actors/0", 0) == Usage("host")
