"""Processes that workers started and left behind, including those in their own session. An environment variable, which
every process inherits, identifies the worker."""

from __future__ import annotations

import contextlib
import os

import psutil

MARK = "SRL_WORKER"
"""Variable that holds the zygote's mark and, in a worker's descendants, the worker's name: `MARK/actors/0.1`."""


def mark_worker(name: str, incarnation: int) -> None:
    """Mark the processes that this worker will start."""
    os.environ[MARK] = f"{os.environ.get(MARK, '')}/{name}.{incarnation}"


def kill_strays(mark: str) -> None:
    """Kill all processes whose mark is `mark` or starts with `mark/`, except this one."""
    if not mark:
        raise ValueError("every process without a mark would match an empty one")
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found = process.environ().get(MARK, "")
            if (found == mark or found.startswith(f"{mark}/")) and process.pid != os.getpid():
                process.kill()
