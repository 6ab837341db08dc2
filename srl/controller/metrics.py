"""Rows of metrics.jsonl and system.jsonl, and the names in them, which TensorBoard and the services use too.

In a run with one policy, a metric has a plain name (`return`, `entropy`). In a run with several, the metrics of a
policy begin with its name (`hiders/return`). A row of metrics.jsonl depends only on what the run computed, except for
`time` and `elapsed`. A row of system.jsonl describes a moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from srl.api.block import IDENTITY, LENGTH, RETURN, concatenated
from srl.api.control import UpdateRecord
from srl.api.status import EvaluationStatus, RunStatus
from srl.base.statistics import finite

Row: TypeAlias = dict[str, Any]
UPDATE, EVALUATION, REPORT = "update", "evaluation", "report"
"""Kinds of rows: one per update, one per evaluation, and one per report of another worker."""


def metric_name(name: str, policy: str) -> str:
    """Return the name of a policy's metric; `policy` is empty unless the run has several policies."""
    return f"{policy}/{name}" if policy else name


def update_row(record: UpdateRecord, elapsed: float, policy: str = "", earlier: Sequence[UpdateRecord] = ()) -> Row:
    """Return the metrics of one update and of the episodes in its samples. With `earlier` updates, the row describes
    all of them: metrics are means, with minima and maxima beside them."""
    records = [*earlier, record]
    metrics: dict[str, float] = dict(record.metrics)
    if earlier:
        metrics = {"updates": len(records)}
        for name in dict.fromkeys(name for one in records for name in one.metrics):
            each = [one.metrics[name] for one in records if name in one.metrics]
            metrics |= {name: sum(each) / len(each), f"{name}_min": min(each), f"{name}_max": max(each)}
    metrics["update"] = record.update
    if policy:
        metrics["steps"] = record.steps
    num_samples = sum(one.lag_count for one in records)
    metrics["lag_mean"] = sum(one.lag_sum for one in records) / num_samples if num_samples else 0.0
    metrics["lag_max"] = max(one.lag_max for one in records)
    found = [episodes for one in records for episodes in one.episodes.values()]
    metrics["episodes"] = sum(episodes.total for episodes in found)
    facts: list[str] = []
    for name, values in concatenated(episodes.arrays() for episodes in found).items():
        if name in IDENTITY:
            continue
        known = finite(values)
        if len(known):
            metrics[name] = float(np.add.reduce(known, dtype=np.float64)) / len(known)
            if name == RETURN:
                metrics |= {f"{name}_min": float(known.min()), f"{name}_max": float(known.max())}
            elif name != LENGTH:
                facts.append(name)
    row: Row = {"kind": UPDATE, "policy": record.policy, "elapsed": round(elapsed, 3)}
    if facts:
        row["facts"] = facts
    return row | {metric_name(name, policy): value for name, value in metrics.items()}


def episode_records(record: UpdateRecord) -> Iterator[dict[str, Any]]:
    """Yield the episodes that ended in the samples of an update: policy, actor, return, length, and facts."""
    for actor, episodes in record.episodes.items():
        columns = {name: values.tolist() for name, values in episodes.arrays().items()}
        for index in range(episodes.count):
            found = {name: values[index] for name, values in columns.items()}
            known = {name: value for name, value in found.items() if not math.isnan(value)}
            yield {"update": record.update, "policy": record.policy, "actor": actor, **known}


def evaluation_row(evaluation: EvaluationStatus, elapsed: float, name: str, policy: str = "") -> Row:
    """Return the metrics of one evaluation of the policy `name`."""
    metrics: Row = {
        "version": evaluation.version,
        RETURN: evaluation.return_mean,
        LENGTH: evaluation.length_mean,
        "episodes": evaluation.episodes,
        "truncated": evaluation.truncated,
        "best_return": evaluation.best_return,
    }
    if evaluation.return_interval is not None:
        metrics["return_interval"] = evaluation.return_interval
    metrics |= evaluation.facts
    row: Row = {"kind": EVALUATION, "policy": name, "elapsed": round(elapsed, 3)}
    return row | {metric_name(f"eval/{key}", policy): value for key, value in metrics.items()}


def report_row(metrics: dict[str, float], elapsed: float, policy: str = "") -> Row:
    """Return the metrics that a worker reported."""
    row: Row = {"kind": REPORT, "elapsed": round(elapsed, 3)}
    return row | {metric_name(name, policy): value for name, value in metrics.items()}


def system_row(status: RunStatus) -> dict[str, float]:
    """Return the speed of a run and the state of its workers and streams."""
    row = {
        "elapsed": round(status.elapsed, 3),
        "env_fps": status.env_fps,
        "train_fps": status.train_fps,
        "updates": float(status.updates),
        "restarts": float(status.restarts),
        "lane_failures": float(status.lane_failures),
        "skipped_updates": float(status.skipped_updates),
        "refused_connections": float(sum(status.refused.values())),
        "unrecorded_decisions": float(status.unrecorded_decisions),
        **({"reanalyzed": float(status.reanalyzed)} if status.reanalyzed else {}),
    }
    for worker in status.workers:
        row |= {f"busy/{worker.name}/{phase}": share for phase, share in worker.busy.items()}
    for memory in status.replay:
        row |= {f"{memory.name}/size": float(memory.size), f"{memory.name}/age": float(memory.age)}
        if memory.max_target_age is not None:
            row[f"{memory.name}/target_age"] = float(memory.target_age)
        if memory.reached is not None:
            row[f"{memory.name}/updates_per_decision"] = memory.reached
    for stream in status.streams:
        if stream.kind == "push":
            row[f"streams/{stream.name}/dropped_blocks"] = float(stream.dropped)
        else:
            row[f"streams/{stream.name}/batch_mean"] = stream.batch_mean
    return row
