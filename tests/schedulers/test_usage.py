"""Resources that a process uses."""

from __future__ import annotations

import os
import signal
import subprocess

from support.waiting import wait_for

from srl.api.scheduler import Usage
from srl.schedulers.local.usage import UsageMeters


def test_a_stopped_process_is_detected_and_two_queries_at_once_get_one_measurement() -> None:
    meters = UsageMeters("host")
    child = subprocess.Popen(["sleep", "100"])
    try:
        first = meters.measure("actors/0", child.pid)
        assert (first.host, first.stopped) == ("host", False)
        assert meters.measure("actors/0", child.pid) is first
        os.kill(child.pid, signal.SIGSTOP)
        wait_for(lambda: meters.measure("actors/0", child.pid).stopped, "a stopped process")
        assert meters.measure("actors/0", child.pid).rss_mb > 0
    finally:
        child.kill()
        child.wait()
    assert meters.measure("actors/0", 0) == Usage("host")
