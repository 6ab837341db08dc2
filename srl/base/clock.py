"""The system clock, its protocol, and elapsed time that ignores pauses of this process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

MAX_GAP_SECONDS = 5.0


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since a fixed moment; never runs backwards."""

    def wall(self) -> float:
        """Seconds since 1970, for display and file names."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


@dataclass
class ObservedTime:
    """Time between checks. A gap longer than `max_gap` counts as `max_gap`. A longer gap means that this process itself
    was paused (the machine slept, all processes were frozen), so other processes must not be blamed for that time."""

    last: float = 0.0  # time of the last check
    max_gap: float = MAX_GAP_SECONDS

    def passed(self, now: float) -> float:
        """Return the seconds since the last check, at most `max_gap`."""
        passed, self.last = min(now - self.last, self.max_gap), now
        return passed
