"""The machine that this process runs on."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))
