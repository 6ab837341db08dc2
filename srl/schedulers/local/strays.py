"""Processes that workers started and left behind, also those in a session of their own. An environment variable, which
every process inherits, tells whose they are."""

from __future__ import annotations

import contextlib
import os

import psutil

MARK = "SRL_WORKER"
"""Variable with the mark of the zygote and, below a worker, its name: `MARK/actors/0.1`."""


def mark_worker(name: str, incarnation: int) -> None:
    """Mark the processes that this worker will start."""
    os.environ[MARK] = f"{os.environ.get(MARK, '')}/{name}.{incarnation}"


def kill_strays(mark: str) -> None:
    """Kill all processes with a mark, or with one below it, except for this one."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found = process.environ().get(MARK, "")
            if (found == mark or found.startswith(f"{mark}/")) and process.pid != os.getpid():
                process.kill()
