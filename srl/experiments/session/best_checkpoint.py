"""The best parameters of each policy, chosen by evaluations and kept on disk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.block import RETURN
from srl.api.parameters import ParameterStore
from srl.api.status import EvaluationStatus
from srl.base.tree import Array
from srl.experiments.session.checkpointing import BackgroundWriter
from srl.experiments.session.run_record import RunRecord
from srl.storage import checkpoints
from srl.storage.checkpoints import Retention
from srl.storage.run_directory import RunDirectory
from srl.workers.evaluator import EVALUATED


@dataclass(frozen=True, eq=False)
class _Best:
    """The best parameters of one policy so far."""

    score: float
    parameters: Array
    metadata: dict[str, Any]


@dataclass(eq=False)
class BestCheckpoint:
    """Writes every evaluation to the metrics, and keeps a checkpoint with the best parameters of each policy.

    Each policy has its own best version; in a two-sided game these may come from different points in training."""

    _run: RunDirectory
    _description: Mapping[str, object]
    _stores: Mapping[str, ParameterStore]
    _record: RunRecord
    _notify: Callable[[str], None]
    _writer: BackgroundWriter
    _check: Callable[[], None]  # raises an OSError if this process may no longer write
    _by: str = "return"  # statistic of the episodes, with `-` if less is better
    _own: bool = True  # whether to sign it as that of the user's own run

    def __post_init__(self) -> None:
        self._folder = self._run.checkpoints / checkpoints.BEST
        self._best = _read(self._folder, self._by, self._notify)

    def add(self, evaluations: Iterable[tuple[str, EvaluationStatus]], elapsed: float) -> None:
        """Process evaluations, each with its policy, and write a checkpoint if one of them is the best so far."""
        several = len(self._stores) > 1
        previous, better = self._best, dict(self._best)
        step = 0
        for policy, evaluation in evaluations:
            self._record.add_evaluation(evaluation, elapsed, policy, several)
            score = evaluation.score(self._by)
            if score is None or (policy in better and score <= better[policy].score):
                continue
            pulled = self._stores[policy].pull(EVALUATED)
            if pulled is None or pulled[0] != evaluation.version:
                continue  # the next evaluation is already done, or this one was made on another host
            metadata = {
                "version": evaluation.version,
                "steps": evaluation.step,
                "policy": policy,
                "score": score,
                checkpoints.BY: self._by,
                "interval": evaluation.return_interval if self._by == "return" else None,
                "episodes": evaluation.episodes,
            }
            better[policy] = _Best(score, pulled[1], metadata)
            step = max(step, evaluation.step)
        if better != previous:
            self._best = better
            if better.keys() >= self._stores.keys():  # otherwise evaluations of other policies follow
                self._write(step, better, previous)

    def _write(self, step: int, best: dict[str, _Best], previous: dict[str, _Best]) -> None:
        arrays = {f"{name}/parameters": one.parameters for name, one in best.items()}
        metadata = {
            "policies": {name: one.metadata for name, one in best.items()},
            "description": self._description,
            checkpoints.SCORE: sum(one.score for one in best.values()) / len(best),
        }

        def write() -> None:
            try:
                checkpoints.write(self._folder, step, arrays, metadata, Retention(1), check=self._check, own=self._own)
            except checkpoints.CheckpointError as error:
                self._best = previous
                self._notify(f"the best parameters were not written: {error}")

        self._writer.submit(write)


def _read(folder: Path, by: str, notify: Callable[[str], None]) -> dict[str, _Best]:
    """Return the best parameters so far by this statistic, for a run that is resumed."""
    path = checkpoints.latest(folder)
    if path is None:
        return {}
    try:
        arrays, metadata = checkpoints.read(path)
        return {
            policy: _Best(float(found.get("score", -math.inf)), arrays[f"{policy}/parameters"], found)
            for policy, found in metadata["policies"].items()
            if found.get(checkpoints.BY, RETURN) == by
        }
    except (checkpoints.CheckpointError, KeyError) as error:
        notify(f"the best parameters so far are lost, evaluations start over: {error}; {checkpoints.set_aside(path)}")
        return {}
