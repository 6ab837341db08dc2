"""Learning curves: read from the metrics of runs, grouped by what was tried, averaged over seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
"""What people say -> the name in the metrics."""
EVALUATED = SHORT["eval"]
POINTS = 200
IGNORED = ("seed", "sinks", "checkpoint_seconds", "hang_timeout", "until_return")
"""Options in which the runs of one group may differ."""


@dataclass(frozen=True)
class Curve:
    """One figure of one run over its steps and over its time."""

    steps: Array  # [N]
    seconds: Array  # [N]
    values: Array  # [N]

    def over(self, axis: str) -> Array:
        return self.steps if axis == "steps" else self.seconds


@dataclass(frozen=True)
class Band:
    """The mean of several curves and half the width of its 95 % interval (Student's t); zero for a single curve."""

    x: Array  # [N]
    mean: Array  # [N]
    interval: Array  # [N]
    count: int


@dataclass(frozen=True)
class Group:
    """Runs of the same thing with different seeds."""

    label: str
    environment: str
    runs: tuple[RunDirectory, ...]


def read_curve(run: RunDirectory, metric: str) -> Curve:
    """A figure of a run; ValueError names the nearest one if there is none of that name.

    A run that was killed goes on from its last checkpoint, and makes the steps since then once more: the curve is that
    of the steps that led to its end.
    """
    name = SHORT.get(metric, metric)
    rows: list[tuple[int, float, float]] = []
    seen: set[str] = set()
    elapsed = before = 0.0  # a resumed run counts its seconds anew
    reached = 0
    for record in _records(run):
        if EVALUATED not in record:  # evaluations stand at the steps of what was evaluated, behind the others
            if record["step"] < reached:
                rows = [row for row in rows if row[0] < record["step"]]
            reached = record["step"]
        seconds = record.get("time/elapsed")
        if seconds is not None:
            before += elapsed if seconds < elapsed else 0.0
            elapsed = float(seconds)
        seen |= record.keys()
        value = record.get(name)
        if value is not None:
            rows.append((int(record["step"]), before + elapsed, float(value)))
    if not rows:
        known = sorted(SHORT) if not seen else sorted({*SHORT, *seen} - {"step", "time"})
        raise ValueError(f"{run.path} has no figures {metric!r}{nearest(metric, known)}")
    rows.sort(key=lambda row: row[0])
    steps, seconds_of, values = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    return Curve(steps, np.maximum.accumulate(seconds_of), values)


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
            continue  # the last line of a run that is being written, or was killed
    return [record for record in records if isinstance(record, dict) and "step" in record]


def average(curves: Sequence[Curve], axis: str) -> Band:
    """Mean and interval over curves, on the stretch where all of them are known. Short runs that have none (over time:
    one began when the other was done) are drawn out at their first and last values."""
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
    """Runs that differ in nothing but their seed form a group, in the order given. A label that the user gave (the
    first of the pair, else empty) goes before that."""
    keyed: dict[tuple[str, str], list[RunDirectory]] = {}
    facts: dict[tuple[str, str], dict[str, Any]] = {}
    for label, run in runs:
        told = _facts(run.read_facts())
        key = (label, "" if label else json.dumps(told, sort_keys=True))
        if run not in keyed.setdefault(key, []):
            keyed[key].append(run)
        facts.setdefault(key, told)
    differing = _telling(list(facts.values()))
    groups: list[Group] = []
    for key, members in keyed.items():
        title = key[0] or _title(facts[key], differing) or members[0].name
        groups.append(Group(title, str(facts[key]["environment"]), tuple(members)))
    return groups


def _facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What was tried, flat: environment, algorithm and every option with its place."""
    flat: dict[str, Any] = {"environment": config.get("environment", "")}

    def walk(value: Any, place: str) -> None:
        if isinstance(value, Mapping):
            inner = value["fields"] if set(value) == {"type", "fields"} else value
            for name, item in inner.items():
                walk(item, f"{place}.{name}" if place else name)
        else:
            flat[place] = value

    walk(config.get("options", {}), "")
    return {name: value for name, value in flat.items() if name not in IGNORED}


def _differing(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for fact in facts for name in fact)
    return [name for name in names if len({json.dumps(fact.get(name)) for fact in facts}) > 1]


def _telling(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The differences that are worth a place in a legend: of different environments, no more than it takes to tell
    them apart, because their recipes differ in everything."""
    differing = _differing(facts)[:3]
    if "environment" not in differing:
        return differing
    for count in range(1, len(differing)):
        shown = {json.dumps([fact.get(name) for name in differing[:count]]) for fact in facts}
        if len(shown) == len(facts):
            return differing[:count]
    return differing


def _title(facts: Mapping[str, Any], differing: Sequence[str]) -> str:
    """`CartPole-v1 · ppo`, or what sets this group apart from the others: `max_lag 0`."""
    if not differing:
        return f"{facts['environment']} · {str(facts.get('algo', '')).rpartition(':')[2].removesuffix('Config')}"
    parts = []
    for name in differing:
        value = facts.get(name)
        parts.append(
            str(value) if name in ("environment", "algo") else f"{name.rpartition('.')[2].replace('_', ' ')} {value}"
        )
    return ", ".join(parts)
