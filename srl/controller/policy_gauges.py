"""Statistics of one policy: its episodes, evaluations and learning progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from srl.api.block import IDENTITY, LENGTH, RETURN, Episodes
from srl.api.control import Evaluated, UpdateRecord
from srl.api.status import EPISODE_WINDOW, EvaluationStatus
from srl.base.statistics import finite, mean_of

CURVE_POINTS = 200
MAX_MOMENTS = 100_000


class EpisodeStatistics:
    """Returns, lengths and other statistics of the last episodes, and a curve of the mean return over the whole run."""

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[str, deque[float]] = {}  # statistic -> values of the last EPISODE_WINDOW episodes that have it
        self.curve: list[float] = []
        self._stride = 1
        self._skipped = 0

    def add(self, episodes: Iterable[Episodes]) -> None:
        """Add episodes that were reported together."""
        for one in episodes:
            self.count += one.total
            for name, values in one.arrays().items():
                if name not in IDENTITY:
                    kept = self._last.setdefault(name, deque(maxlen=EPISODE_WINDOW))
                    kept.extend(finite(values)[-EPISODE_WINDOW:].tolist())
        self._extend_curve()

    def mean(self, name: str) -> float | None:
        values = self._last.get(name)
        return sum(values) / len(values) if values else None

    @property
    def names(self) -> list[str]:
        """Names of the statistics that episodes had."""
        return sorted(name for name, values in self._last.items() if values)

    @property
    def facts(self) -> dict[str, float]:
        """Means of the statistics that the environment reports."""
        means = {name: self.mean(name) for name in sorted(self._last) if name not in (RETURN, LENGTH)}
        return {name: value for name, value in means.items() if value is not None}

    def _extend_curve(self) -> None:
        """Add a point to the curve. If it has too many, drop every second one and add new ones half as often."""
        current = self.mean(RETURN)
        if current is None:
            return
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self.curve.append(current)
        if len(self.curve) > CURVE_POINTS:
            self.curve = self.curve[::2]
            self._stride *= 2

    def state(self) -> dict[str, Any]:
        last = {name: list(values) for name, values in self._last.items()}
        return {"count": self.count, "stride": self._stride, "curve": list(self.curve), "last": last}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.count = state.get("count", 0)
        self._last = {name: deque(values, EPISODE_WINDOW) for name, values in state.get("last", {}).items()}
        self.curve, self._stride = list(state.get("curve", ())), state.get("stride", 1)


class PolicyGauges:
    """Statistics of one policy that cannot be read from its current workers' gauges."""

    def __init__(self) -> None:
        self.episodes = EpisodeStatistics()
        self.evaluation: EvaluationStatus | None = None
        self.version = 0
        self.lag_max = 0
        self.first_steps = 0  # number of steps learned from before the run was resumed
        self.recorded_steps = 0  # number of steps after the last update that was reported
        # Version and steps of the run: where it began, then every update.
        self._history: deque[tuple[int, int]] = deque([(0, 0)], maxlen=MAX_MOMENTS)

    def add_record(self, record: UpdateRecord) -> None:
        self.recorded_steps = record.steps
        self.episodes.add(record.episodes.values())

    def begin_at(self, version: int, steps_of_run: int) -> None:
        """Continue from a checkpoint."""
        self._history = deque([(version, steps_of_run)], maxlen=MAX_MOMENTS)

    def note_step(self, update: int, steps_of_run: int) -> None:
        """Keep the step of the run at which an update was made."""
        self._history.append((update, steps_of_run))

    def add_evaluation(self, message: Evaluated, current_step: int) -> EvaluationStatus:
        """Process an evaluation. `current_step` is its step if its version is new and no update has been
        reported."""
        before = self.evaluation
        score = mean_of(message.returns)
        known = len(self._history) > 1 or message.version <= self._history[0][0]
        step = self._step_of(message.version) if known else current_step
        best_return, best_step = score.value, step
        if before is not None and score.value <= before.best_return:
            best_return, best_step = before.best_return, before.best_step
        self.evaluation = EvaluationStatus(
            count=1 if before is None else before.count + 1,
            step=step,
            version=message.version,
            episodes=score.count,
            return_mean=score.value,
            return_interval=score.interval if score.count > 1 else None,
            length_mean=mean_of(message.lengths).value,
            best_return=best_return,
            best_step=best_step,
            truncated=message.truncated,
            facts=message.facts,
            policy=message.policy,
        )
        return self.evaluation

    def _step_of(self, version: int) -> int:
        """Interpolate the step of the run at which a version was made."""
        versions, steps = zip(*self._history, strict=True)
        return round(float(np.interp(version, versions, steps)))

    def state(self) -> dict[str, Any]:
        """Return the statistics as plain data, for a checkpoint or a takeover by another controller."""
        counts = {"version": self.version, "lag_max": self.lag_max}
        counts |= {"first_steps": self.first_steps, "recorded_steps": self.recorded_steps}
        return {**self.episodes.state(), "evaluation": msgspec.to_builtins(self.evaluation), **counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the statistics of episodes and evaluations. A resumed run takes its steps from the checkpoint."""
        self.episodes.restore(state)
        self.evaluation = msgspec.convert(state.get("evaluation"), EvaluationStatus | None)

    def take_over(self, state: Mapping[str, Any]) -> None:
        self.restore(state)
        self.version, self.lag_max, self.first_steps = state["version"], state["lag_max"], state["first_steps"]
        self.recorded_steps = state["recorded_steps"]
