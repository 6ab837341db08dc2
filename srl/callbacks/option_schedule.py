"""Callbacks that change an option during the run: by a schedule over steps, or by a success rate."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from srl.base.errors import nearest
from srl.callbacks.callback import Callback, RunControl


@dataclass
class OptionSchedule(Callback):
    """Sets an option along a line through `points`: pairs of a step and a value, in the order of steps."""

    option: str
    """Option that may change during a run, such as `entropy_coefficient`, or `env.NAME`."""
    points: tuple[tuple[float, float], ...]
    """For example ((0, 0.01), (1e6, 0.001)). Before the first point and after the last, the value is constant."""

    def __post_init__(self) -> None:
        if not self.points or any(right[0] <= left[0] for left, right in pairwise(self.points)):
            raise ValueError(f"points must be pairs (step, value) with growing steps, found {self.points!r}")

    def value(self, step: float) -> float:
        if step <= self.points[0][0]:
            return self.points[0][1]
        for (begin, low), (end, high) in pairwise(self.points):
            if step <= end:
                return low + (high - low) * (step - begin) / (end - begin)
        return self.points[-1][1]

    def on_start(self, run: RunControl) -> None:
        run.change(self.option, self.value(run.steps))

    def on_update(self, record: Mapping[str, Any]) -> None:
        self.run.change(self.option, self.value(record["step"]))


@dataclass
class Curriculum(Callback):
    """Moves an attribute of the environments to its next level when the mean of a fact over the last `window` episodes
    reaches `threshold`."""

    option: str
    """Option to change, usually `env.NAME`. Only episodes that began with its current value count."""
    levels: tuple[float, ...]
    """Values from easy to difficult."""
    threshold: float = 0.8
    fact: str = "is_success"
    """Episode fact that is averaged; `return` works as well."""
    window: int = 100
    _level: int = field(default=0, init=False, repr=False)
    _changed: int = field(default=0, init=False, repr=False)  # update after which the level was set
    _recent: deque[float] = field(default_factory=deque, init=False, repr=False)
    _without: int = field(default=0, init=False, repr=False)  # last episodes without the fact

    def __post_init__(self) -> None:
        if not self.levels:
            raise ValueError("a curriculum needs at least one level")

    def on_start(self, run: RunControl) -> None:
        run.change(self.option, self.levels[self._level])

    def on_episode(self, record: Mapping[str, Any]) -> None:
        value = record.get(self.fact)
        self._without = 0 if value is not None else self._without + 1
        if self._without >= self.window and not self._level:
            raise ValueError(f"no episode has the fact {self.fact!r}{nearest(self.fact, record)}")
        if value is None or self._level + 1 >= len(self.levels) or not self._began_with_level(record):
            return
        self._recent.append(float(value))
        if len(self._recent) < self.window:
            return
        if sum(self._recent) / self.window >= self.threshold:
            self._level += 1
            self._changed = record["update"]
            self._recent.clear()  # episodes of the previous level say nothing about the next
            self.run.change(self.option, self.levels[self._level])
            self.run.log(curriculum_level=self._level)
        else:
            self._recent.popleft()

    def _began_with_level(self, record: Mapping[str, Any]) -> bool:
        level = self.levels[self._level]
        if self.option.startswith("env.") and not isinstance(level, str):
            # Workers get a change some time after it was requested; episodes in progress began before.
            return math.isclose(record.get(self.option, math.nan), level, rel_tol=1e-6)  # the record is in float32
        return bool(record["update"] > self._changed)

    def state(self) -> dict[str, Any]:
        return {"level": self._level, "recent": list(self._recent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._level, self._recent = state["level"], deque(state["recent"])
