"""A clock for tests."""

from __future__ import annotations


class ManualClock:
    """A clock that only `advance` moves."""

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
