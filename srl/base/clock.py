"""The system clock, its protocol, and elapsed time that ignores pauses of this process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

MAX_GAP_SECONDS = 5.0


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since a fixed moment, which never decrease."""

    def wall(self) -> float:
        """Return the seconds since 1970, for display and file names."""


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


@dataclass
class ObservedTime:
    """Elapsed time between checks, at most `max_gap` each. A longer gap means that this process itself was paused (the
    machine slept, or all processes were frozen), so that time must not count against other processes."""

    last: float = 0.0  # time of the last check
    max_gap: float = MAX_GAP_SECONDS

    def passed(self, now: float) -> float:
        """Return the seconds since the last check, at most `max_gap`."""
        passed, self.last = min(now - self.last, self.max_gap), now
        return passed
