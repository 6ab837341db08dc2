"""Schedules: how a coefficient changes while the run goes on."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

Schedule: TypeAlias = Literal["constant", "linear", "cosine"]


def scheduled(schedule: Schedule, start: float, final: float, progress: float) -> float:
    """The coefficient at `progress` in [0, 1] of the run: `start` at 0, `final` at 1, unless it is constant."""
    if schedule == "constant":
        return start
    passed = progress if schedule == "linear" else 0.5 * (1.0 - math.cos(math.pi * progress))
    return start + (final - start) * passed
