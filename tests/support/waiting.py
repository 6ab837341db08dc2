"""Waiting for conditions that other processes fulfill, with a deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

PATIENCE = 60.0
"""Seconds after which a condition counts as failed. It is long because tests run on slow and busy machines; speed is a
matter of benchmarks."""
LOOK_SECONDS = 0.02
"""Time between two looks at the condition."""
Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found | None], what: str | Callable[[], str]) -> Found:
    """Wait until the condition returns a true value, and return that; fail after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {PATIENCE} s: {what if isinstance(what, str) else what()}"
        time.sleep(LOOK_SECONDS)
    return found


def until(condition: Callable[[], Any], *polls: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Call all `polls` in turn until `condition` returns a true value, and return that value."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{condition} did not become true within {seconds:g} s")
        for poll in polls:
            poll()
        os.sched_yield()
