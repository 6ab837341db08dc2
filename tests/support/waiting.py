"""Waiting for what other processes do: for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 60.0
"""Seconds until something counts as not going to happen. How fast things are is a matter of benchmarks, not of tests:
they run on machines that are slow and busy."""
LOOK_SECONDS = 0.02
"""Between two looks at another process, which rings no bell for us."""
Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found], what: str | Callable[[], str]) -> Found:
    """What the condition gives once it is true; fails when that does not happen."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what if isinstance(what, str) else what()}"
        time.sleep(LOOK_SECONDS)
    return found
