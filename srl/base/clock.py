"""Time as workers see it: one that only grows, the one on the wall, and one that tests move by hand."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

OWN_PAUSE_SECONDS = 5.0


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since some fixed moment; never runs backwards."""
        ...

    def wall(self) -> float:
        """Seconds since 1970, for people and file names."""
        ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class ManualClock:
    """Stands still until it is advanced."""

    def __init__(self, now: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = now
        self._wall = wall

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock only moves forward, not by {seconds} s")
        self._now += seconds
        self._wall += seconds


@dataclass
class Looks:
    """How much of the time between two looks counts. More than `most` is a pause of our own (the machine slept,
    everybody was frozen), and nobody else's fault."""

    looked: float = 0.0
    """When we looked last."""
    most: float = OWN_PAUSE_SECONDS

    def passed(self, now: float) -> float:
        """Look again: the seconds since the last time, as far as they count."""
        passed, self.looked = min(now - self.looked, self.most), now
        return passed


def now() -> float:
    """The system's monotonic time, for code that no test needs to steer."""
    return time.monotonic()


def wall() -> float:
    return time.time()
