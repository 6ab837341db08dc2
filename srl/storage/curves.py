"""Learning curves, read from the metrics of runs, grouped by options and averaged over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.base.config import is_config
from srl.base.errors import nearest
from srl.base.statistics import t_quantile
from srl.base.tree import Array
from srl.storage.run_directory import RunDirectory

SHORT = {
    "return": "episodes/return_mean",
    "length": "episodes/length_mean",
    "eval": "eval/return_mean",
    "fps": "time/train_fps",
}
"""Short name -> full name of a metric."""
POINTS = 200
IGNORED = ("seed", "sinks", "checkpoint_seconds", "hang_timeout", "until_return")
"""Options in which the runs of one group may differ."""


@dataclass(frozen=True)
class Curve:
    """Values of one metric of a run, over steps and over time."""

    steps: Array  # [N]
    seconds: Array  # [N]
    values: Array  # [N]

    def over(self, axis: str) -> Array:
        return self.steps if axis == "steps" else self.seconds


@dataclass(frozen=True)
class Band:
    """Mean of several curves, and half-width of its 95 % confidence interval (Student's t; zero for a single curve)."""

    x: Array  # [N]
    mean: Array  # [N]
    interval: Array  # [N]
    count: int


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their seeds."""

    label: str
    environment: str
    runs: tuple[RunDirectory, ...]


def read_curve(run: RunDirectory, metric: str) -> Curve:
    """Return the curve of a run's metric. Raises ValueError with the nearest name for an unknown metric.

    A killed run resumes from its last checkpoint and repeats the steps after it. Only the repetition is in the curve.
    """
    name = SHORT.get(metric, metric)
    rows: dict[int, tuple[float, float]] = {}  # step -> seconds and value; the last record of a step counts
    seen: set[str] = set()
    elapsed = before = 0.0  # a resumed run counts seconds from zero again
    reached = 0
    for record in _records(run):
        if not any(key.startswith("eval/") for key in record):  # evaluations have the step of an earlier version
            if record["step"] < reached:
                rows = {step: row for step, row in rows.items() if step < record["step"]}
            reached = record["step"]
        seconds = record.get("time/elapsed")
        if seconds is not None:
            before += elapsed if seconds < elapsed else 0.0
            elapsed = float(seconds)
        seen |= record.keys()
        value = record.get(name)
        if value is not None:
            rows[int(record["step"])] = (before + elapsed, float(value))
    if not rows:
        known = sorted(SHORT) if not seen else sorted({*SHORT, *seen} - {"step", "time"})
        raise ValueError(f"{run.path} has no metric {metric!r}{nearest(metric, known)}")
    steps = sorted(rows)
    seconds_of, values = np.array([rows[step] for step in steps], np.float64).T
    return Curve(np.array(steps, np.float64), np.maximum.accumulate(seconds_of), values)


def policy_metrics(run: RunDirectory, metric: str) -> dict[str, str]:
    """Return a metric's full name for each policy of a run: `return` -> `episodes/hiders/return_mean` for `hiders`.
    Empty for a single policy, or if the metric is not recorded per policy."""
    section, _, name = SHORT.get(metric, metric).partition("/")
    policies = run.read_raw_config().get("policies", {})
    recorded = {key for record in _records(run) for key in record} if len(policies) > 1 else set()
    names = {policy: f"{section}/{policy}/{name}" for policy in policies}
    return {policy: full for policy, full in names.items() if full in recorded}


def _records(run: RunDirectory) -> list[dict[str, Any]]:
    try:
        lines = run.metrics.read_bytes().splitlines()
    except FileNotFoundError:
        raise ValueError(f"{run.path} has no metrics yet") from None
    records = []
    for line in lines:
        try:
            records.append(json.loads(line))
        except ValueError:
            continue  # partial last line: the run is still writing, or was killed
    return [record for record in records if isinstance(record, dict) and "step" in record]


def average(curves: Sequence[Curve], axis: str) -> Band:
    """Return the mean and its interval over the range that all curves cover.

    Without a common range (over time, one curve may begin after another ends), curves are extended by their first and
    last values.
    """
    found = [(curve.over(axis), curve.values) for curve in curves]
    begin, end = max(x[0] for x, _ in found), min(x[-1] for x, _ in found)
    if len(found) == 1:
        x, values = found[0]
        return Band(x, values, np.zeros(len(x)), 1)
    if begin >= end:
        begin, end = min(x[0] for x, _ in found), max(x[-1] for x, _ in found)
    grid = np.linspace(begin, end, POINTS)
    rows = np.stack([np.interp(grid, x, values) for x, values in found])  # [runs, POINTS]
    spread = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    return Band(grid, rows.mean(axis=0), t_quantile(len(rows) - 1) * spread, len(rows))


def group_runs(runs: Sequence[tuple[str, RunDirectory]]) -> list[Group]:
    """Group (label, run) pairs in the order given: runs with the same label or, if it is empty, runs that differ only
    in their seed."""
    keyed: dict[tuple[str, str], list[RunDirectory]] = {}
    options_of: dict[tuple[str, str], dict[str, Any]] = {}
    for label, run in runs:
        options = flat_options(run.read_raw_config())
        key = (label, "" if label else json.dumps(options, sort_keys=True))
        if run not in keyed.setdefault(key, []):
            keyed[key].append(run)
        options_of.setdefault(key, options)
    differing = _legend_options(list(options_of.values()))
    groups: list[Group] = []
    for key, members in keyed.items():
        title = key[0] or _title(options_of[key], differing) or members[0].name
        groups.append(Group(title, str(options_of[key]["environment"]), tuple(members)))
    return groups


def flat_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment and all options except IGNORED, by dotted name."""
    flat: dict[str, Any] = {"environment": config.get("environment", "")}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, Mapping):
            inner = value["fields"] if is_config(value) else value
            for name, item in inner.items():
                walk(item, f"{path}.{name}" if path else name)
        else:
            flat[path] = value

    walk(config.get("options", {}), "")
    return {name: value for name, value in flat.items() if name.rpartition(".")[2] not in IGNORED}


def _legend_options(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of up to three differing options for the legend. If environments differ, their recipes differ in
    many options, so only as many are returned as distinguish the groups."""
    names = dict.fromkeys(name for options in groups for name in options)
    differing = [name for name in names if len({json.dumps(options.get(name)) for options in groups}) > 1][:3]
    if "environment" not in differing:
        return differing
    for count in range(1, len(differing)):
        shown = {json.dumps([options.get(name) for name in differing[:count]]) for options in groups}
        if len(shown) == len(groups):
            return differing[:count]
    return differing


def _title(options: Mapping[str, Any], differing: Sequence[str]) -> str:
    """Return a title like `CartPole-v1 · ppo`, or the options that distinguish this group, such as `max lag 0`."""
    if not differing:
        return f"{options['environment']} · {str(options.get('algo', '')).rpartition(':')[2].removesuffix('Config')}"
    parts = []
    for name in differing:
        value = options.get(name)
        parts.append(
            str(value) if name in ("environment", "algo") else f"{name.rpartition('.')[2].replace('_', ' ')} {value}"
        )
    return ", ".join(parts)
