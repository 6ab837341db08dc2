"""What becomes of an evaluation: figures for the sinks, and the best parameters on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from srl.api.parameters import ParameterStore
from srl.api.status import EvaluationStatus
from srl.storage import checkpoints
from srl.storage.background_writer import BackgroundWriter
from srl.storage.checkpoints import Retention
from srl.storage.metric_sinks import MetricSinks
from srl.storage.run_directory import RunDirectory
from srl.workers.evaluator import EVALUATED


class BestCheckpoint:
    """Takes note of every evaluation once."""

    def __init__(
        self,
        run: RunDirectory,
        description: Mapping[str, object],
        stores: Mapping[str, ParameterStore],
        sinks: MetricSinks,
        tell: Callable[[str], None],
        scribe: BackgroundWriter,
    ) -> None:
        self._folder = run.checkpoints / checkpoints.BEST
        self._description = description
        self._stores = stores
        self._sinks = sinks
        self._tell = tell
        self._scribe = scribe
        self._best = _score_of(self._folder)

    def note(self, evaluation: EvaluationStatus, elapsed: float) -> None:
        self._sinks.write(evaluation.step, _figures(evaluation, elapsed))
        if evaluation.return_mean > self._best:
            self._keep(evaluation)

    def _keep(self, evaluation: EvaluationStatus) -> None:
        arrays: dict[str, Any] = {}
        facts: dict[str, Any] = {
            "policies": {},
            checkpoints.SCORE: evaluation.return_mean,
            "description": self._description,
            "interval": evaluation.return_interval,
            "episodes": evaluation.episodes,
        }
        for policy, store in self._stores.items():
            pulled = store.pull(EVALUATED)
            if pulled is None or pulled[0] != evaluation.versions[policy]:
                return  # the next evaluation is already done, or this one was made on another host
            arrays[f"{policy}/parameters"] = pulled[1]
            facts["policies"][policy] = {"version": pulled[0], "steps": evaluation.step, "policy": policy}
        former, self._best = self._best, evaluation.return_mean

        def write() -> None:
            try:
                checkpoints.write(self._folder, evaluation.step, arrays, facts, retention=Retention(1))
            except checkpoints.CheckpointError as error:
                self._best = former
                self._tell(f"the best parameters were not written: {error}")

        self._scribe.submit(write)


def _score_of(folder: Any) -> float:
    """Of the best so far, where a run is resumed."""
    path = checkpoints.latest(folder)
    if path is None:
        return -math.inf
    try:
        return float(checkpoints.read(path)[1]["score"])
    except (checkpoints.CheckpointError, KeyError):
        return -math.inf


def _figures(evaluation: EvaluationStatus, elapsed: float) -> dict[str, float]:
    figures = {
        "time/elapsed": elapsed,
        "eval/return_mean": evaluation.return_mean,
        "eval/length_mean": evaluation.length_mean,
        "eval/episodes": float(evaluation.episodes),
        "eval/cut": float(evaluation.cut),
        "eval/best_return": evaluation.best_return,
    }
    if evaluation.return_interval is not None:
        figures["eval/return_interval"] = evaluation.return_interval
    return figures
