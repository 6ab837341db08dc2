"""Statistics of one policy: its episodes, evaluations and learning progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from srl.api.control import Evaluated
from srl.api.status import EvaluationStatus
from srl.base.statistics import mean_of

CURVE_POINTS = 200
EPISODE_WINDOW = 100
MAX_MOMENTS = 20_000
NO_FACTS: Mapping[str, float] = {}


def mean(values: Collection[float]) -> float | None:
    return sum(values) / len(values) if values else None


class EpisodeStatistics:
    """Returns and lengths of the last episodes, and a curve of the mean return over the whole run."""

    def __init__(self) -> None:
        self.count = 0
        self.returns: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.lengths: deque[float] = deque(maxlen=EPISODE_WINDOW)
        self.facts: dict[str, float] = {}
        """Episode statistics reported by environments: running means over about EPISODE_WINDOW episodes."""
        self.curve: list[float] = []
        self._stride = 1
        self._skipped = 0

    def add(
        self, count: int, returns: Iterable[float], lengths: Iterable[float], facts: Mapping[str, float] = NO_FACTS
    ) -> None:
        self.count += count
        self.returns.extend(returns)
        self.lengths.extend(lengths)
        share = min(1.0, count / EPISODE_WINDOW)
        for name, mean in facts.items():
            before = self.facts.get(name, mean)
            self.facts[name] = before + share * (mean - before)

    def extend_curve(self) -> None:
        """Add a point to the curve. If it has too many, drop every second one and add new ones half as often."""
        current = mean(self.returns)
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
        lists = {"returns": list(self.returns), "lengths": list(self.lengths), "curve": list(self.curve)}
        return {"count": self.count, "stride": self._stride, **lists}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.add(state.get("count", 0), state.get("returns", ()), state.get("lengths", ()))
        self.curve, self._stride = list(state.get("curve", ())), state.get("stride", 1)


class PolicyGauges:
    """Statistics of one policy that cannot be read from its current workers' gauges."""

    def __init__(self) -> None:
        self.episodes = EpisodeStatistics()
        self.evaluation: EvaluationStatus | None = None
        self.version = 0
        self.lag_max = 0
        self.first_steps = 0  # number of steps learned from before the run was resumed
        self._history: deque[tuple[int, int]] = deque(maxlen=MAX_MOMENTS)  # version and steps of the run

    def note_progress(self, steps_of_run: int) -> None:
        """Record the step of the run at which the current version was first seen."""
        if not self._history or self._history[-1][0] != self.version:
            self._history.append((self.version, steps_of_run))

    def add_evaluation(self, message: Evaluated, first_step: int) -> EvaluationStatus:
        """Process an evaluation. `first_step` is its step if no progress has been recorded yet."""
        before = self.evaluation
        score = mean_of(message.returns)
        step = self._step_of(message.version) if self._history else first_step
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
        )
        return self.evaluation

    def _step_of(self, version: int) -> int:
        """Interpolate the step of the run at which a version was made."""
        versions, steps = zip(*self._history, strict=True)
        return round(float(np.interp(version, versions, steps)))

    def state(self) -> dict[str, Any]:
        """Return the statistics as plain data, for a checkpoint or a takeover by another controller."""
        counts = {"version": self.version, "lag_max": self.lag_max, "first_steps": self.first_steps}
        return {**self.episodes.state(), "evaluation": msgspec.to_builtins(self.evaluation), **counts}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the statistics of episodes and evaluations. A resumed run takes its steps from the checkpoint."""
        self.episodes.restore(state)
        self.evaluation = msgspec.convert(state.get("evaluation"), EvaluationStatus | None)

    def take_over(self, state: Mapping[str, Any]) -> None:
        self.restore(state)
        self.version, self.lag_max, self.first_steps = state["version"], state["lag_max"], state["first_steps"]
