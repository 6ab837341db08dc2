"""Early stopping on a plateau."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from srl.base.errors import nearest
from srl.callbacks.callback import Callback


@dataclass
class EarlyStopping(Callback):
    """Stops the run when the mean of a metric over the last `window` updates has not improved for `patience` steps."""

    patience: int = 200_000
    """Steps without an improvement after which the run ends."""
    metric: str = "return"
    """Metric of the updates' records; in a run with several policies `POLICY/METRIC`."""
    min_change: float = 0.0
    """Smallest change that counts as an improvement."""
    lower_is_better: bool = False
    window: int = 20
    """Number of updates over which the metric is averaged. Updates without it (no episode ended) do not count."""
    _recent: deque[float] = field(default_factory=deque, init=False, repr=False)
    _best: float = field(default=-math.inf, init=False, repr=False)
    _best_step: int = field(default=0, init=False, repr=False)
    _without: int = field(default=0, init=False, repr=False)  # updates with a return, before the first with the metric

    def on_update(self, record: Mapping[str, Any]) -> None:
        value = record.get(self.metric)
        if value is None:
            self._check_metric(record)
            return
        self._recent.append(-value if self.lower_is_better else value)
        if len(self._recent) < self.window:
            return
        while len(self._recent) > self.window:
            self._recent.popleft()
        mean = sum(self._recent) / self.window
        if mean > self._best + self.min_change or self._best == -math.inf:
            self._best, self._best_step = mean, record["step"]
        elif record["step"] - self._best_step >= self.patience:
            best = -self._best if self.lower_is_better else self._best
            self.run.stop(f"{self.metric} has not improved on {best:.4g} for {self.patience:,} steps")

    def _check_metric(self, record: Mapping[str, Any]) -> None:
        """Raise ValueError if the metric was in no update so far, though episodes have ended."""
        self._without += any(name.rpartition("/")[2] == "return" for name in record)
        if self._without >= self.window and not self._recent:
            known = [name for name, value in record.items() if isinstance(value, (int, float))]
            raise ValueError(f"no update has the metric {self.metric!r}{nearest(self.metric, known)}")

    def state(self) -> dict[str, Any]:
        best = None if self._best == -math.inf else self._best
        return {"recent": list(self._recent), "best": best, "best_step": self._best_step}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._recent = deque(state["recent"])
        self._best = -math.inf if state["best"] is None else state["best"]
        self._best_step = state["best_step"]
