"""Learning curves, read from the metrics of runs, grouped by options and averaged over seeds."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from srl.base.config import is_config
from srl.base.errors import nearest
from srl.base.statistics import t_quantile
from srl.base.tree import Array
from srl.storage.metric_rows import UPDATE
from srl.storage.metric_table import MetricTable
from srl.storage.run_directory import RunDirectory

SHORT = {"eval": "eval/return", "fps": "train_fps"}
"""Short name -> full name of a metric."""
WINDOW = 100
"""Number of episodes over which the curve of a return, a length or another statistic of episodes is the mean."""
NOT_METRICS = {"step", "time", "elapsed"}
POINTS = 200
FOLDER = re.compile(r"^/.*/(?=[^/]+\.py:)")  # of a function or class in a file: `/home/me/file.py:Class`
IGNORED = ("seed", "sinks", "checkpoint_seconds", "hang_timeout", "until_return", "until", "metrics_port")
"""Options in which the runs of one group may differ."""


@dataclass(frozen=True)
class Curve:
    """Values of one metric of a run, over steps, time and episodes."""

    steps: Array  # [N]
    seconds: Array  # [N]
    episodes: Array  # [N]; number of episodes that had ended
    values: Array  # [N]
    end: tuple[float, float] = (0.0, 0.0)
    """Steps and seconds of the run at its last row, which may belong to another policy."""

    def over(self, axis: str) -> Array:
        return {"steps": self.steps, "time": self.seconds, "episodes": self.episodes}[axis]

    def smoothed(self, weight: float) -> Curve:
        """Return the exponential moving average, with this weight on what came before (0: none), as in TensorBoard. It
        begins at the first value."""
        values = np.empty_like(self.values)
        mean = norm = 0.0
        for index, value in enumerate(self.values):
            mean, norm = weight * mean + (1.0 - weight) * value, weight * norm + (1.0 - weight)
            values[index] = mean / norm
        return replace(self, values=values)

    def final(self, step: float = np.inf) -> float:
        """Return the mean of the values in the last tenth of the steps up to `step`, at least of one value."""
        end = self.steps[self.steps <= step][-1:] if self.steps[0] <= step else self.steps[:1]
        return float(self.values[(self.steps >= 0.9 * end[0]) & (self.steps <= end[0])].mean())


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

    label: str  # what distinguishes it from other groups of the same environment
    environment: str
    runs: tuple[RunDirectory, ...]

    def by_seed(self) -> list[list[RunDirectory]]:
        """Return the runs of each seed. Two runs with the same options and seed are not two independent samples."""
        found: dict[str, list[RunDirectory]] = {}
        for run in self.runs:
            config = run.read_raw_config()
            seeds = [value for name, value in flattened(config.get("options", {})).items() if _last(name) == "seed"]
            key = json.dumps([group_options(config), seeds or run.name])  # other programs may not name a seed
            found.setdefault(key, []).append(run)
        return list(found.values())


def repeated_seeds(groups: Sequence[Group]) -> list[str]:
    """Return a sentence about each set of runs that have the same options and the same seed."""
    return [
        f"{', '.join(run.name for run in same)} have the same options and seed: they count as one seed, by their mean"
        for group in groups
        for same in group.by_seed()
        if len(same) > 1
    ]


def read_curve(run: RunDirectory, metric: str) -> Curve:
    """Return the curve of a run's metric, as :func:`curve_of`."""
    return curve_of(_metrics(run), _system(run), metric, str(run.path))


def curve_of(metrics: MetricTable, system: MetricTable, metric: str, path: str) -> Curve:
    """Return the curve of a metric. Raises ValueError with the nearest name for an unknown metric.

    Statistics of episodes (`return`, `length` and those that the environment reports) are means over the last WINDOW
    episodes. metrics.jsonl has their means over the episodes of each update. Evaluations and the rows of callbacks have
    their own values. Metrics of system.jsonl, such as `train_fps`, have curves too.
    """
    name = SHORT.get(metric, metric)
    table = next((one for one in (metrics, system) if is_metric(one, name)), None)
    if table is None:
        known = {key for one in (metrics, system) for key in one.names if is_metric(one, key)}
        raise ValueError(f"{path} has no metric {metric!r}{nearest(metric, sorted({*SHORT, *known}))}")
    rows, values = table.column(name)
    is_update = metrics.at("kind", rows, UPDATE) == UPDATE
    if table is metrics and _last(name, "/") in {"return", "length", *metrics.facts} and is_update.all():
        counts = metrics.at(f"{name[: len(name) - len(_last(name, '/'))]}episodes", rows, WINDOW)
        values = np.array(window_means(values.tolist(), counts.tolist()))
    steps, newest = np.unique(table.at("step", rows)[::-1], return_index=True)  # the last row of each step
    kept = len(rows) - 1 - newest
    seconds = np.maximum.accumulate(table.at("elapsed", rows, 0.0)[kept])
    _, all_steps = metrics.column("step")
    end = float(all_steps.max(initial=0.0)), float(metrics.column("elapsed")[1].max(initial=0.0))
    return Curve(steps, seconds, _num_episodes(metrics, steps, name), values[kept], end)


def is_metric(table: MetricTable, name: str) -> bool:
    """Return whether a table has numbers of this name."""
    return name in table.names and name not in NOT_METRICS and not table.is_text(name)


def _num_episodes(metrics: MetricTable, steps: Array, name: str) -> Array:
    """Return how many episodes had ended at these steps: those of the metric's policy, or of all."""
    rows, at = metrics.column("step")
    is_update = metrics.at("kind", rows, UPDATE) == UPDATE
    rows, at = rows[is_update], at[is_update]
    counts = {key: metrics.at(key, rows, 0.0) for key in metrics.names if _last(key, "/") == "episodes"}
    own = f"{name.partition('/')[0]}/episodes"
    used = [counts[own]] if own in counts and counts[own].any() else list(counts.values())
    total = np.cumsum(np.sum(used, axis=0)) if used else np.zeros(len(rows))
    return np.interp(steps, at, total) if len(rows) else np.zeros(len(steps))


def _last(name: str, separator: str = ".") -> str:
    return name.rpartition(separator)[2]


def window_means(means: Sequence[float] | Array, counts: Sequence[float] | Array) -> list[float]:
    """Return, for each row, the mean over the rows up to it that hold the last WINDOW episodes. A row has the mean over
    its number of episodes (`counts`)."""
    found: list[float] = []
    first, total, number = 0, 0.0, 0.0
    for mean, count in zip(means, counts, strict=True):
        total, number = total + mean * count, number + count
        while number - counts[first] >= WINDOW:
            total, number = total - means[first] * counts[first], number - counts[first]
            first += 1
        found.append(float(total / number) if number else float(mean))
    return found


def policy_metrics(run: RunDirectory, metric: str) -> dict[str, str]:
    """Return a metric's full name for each policy of a run: `return` -> `hiders/return` for `hiders`. Empty for a
    single policy, or if the metric is not recorded per policy."""
    name = SHORT.get(metric, metric)
    policies = run.read_raw_config().get("policies", {})
    recorded = set(_metrics(run).names) if len(policies) > 1 else set()
    return {policy: f"{policy}/{name}" for policy in policies if f"{policy}/{name}" in recorded}


def _metrics(run: RunDirectory) -> MetricTable:
    table = MetricTable(run.metrics)
    try:
        table.read()
    except FileNotFoundError:
        raise ValueError(f"{run.path} has no metrics yet") from None
    return table


def _system(run: RunDirectory) -> MetricTable:
    table = MetricTable(run.system)
    with contextlib.suppress(FileNotFoundError):
        table.read()
    return table


def average(seeds: Sequence[Sequence[Curve]], axis: str) -> Band:
    """Return the mean over seeds and its interval, over the range that all curves cover. The curves of one seed are
    averaged first.

    Without a common range (over time, one curve may begin after another ends), curves are extended by their first and
    last values.
    """
    found = []
    for same in seeds:
        x, rows = _resampled([(curve.over(axis), curve.values) for curve in same])
        found.append((x, rows.mean(axis=0)))
    x, rows = _resampled(found)
    if len(rows) == 1:
        return Band(x, rows[0], np.zeros(len(x)), 1)
    spread = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    return Band(x, rows.mean(axis=0), t_quantile(len(rows) - 1) * spread, len(rows))


def _resampled(found: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return common positions, and the values of each curve there: [curves, positions]."""
    if len(found) == 1:
        return found[0][0], found[0][1][None]
    begin, end = max(x[0] for x, _ in found), min(x[-1] for x, _ in found)
    if begin >= end:
        begin, end = min(x[0] for x, _ in found), max(x[-1] for x, _ in found)
    grid = np.linspace(begin, end, POINTS)
    return grid, np.stack([np.interp(grid, x, values) for x, values in found])


def group_runs(runs: Sequence[tuple[str, RunDirectory]]) -> list[Group]:
    """Group (label, run) pairs in the order given, for each environment: runs with the same label or, if it is empty,
    runs that differ only in their seed. Labels are the options that differ among groups of the same environment."""
    keyed: dict[tuple[str, str], list[RunDirectory]] = {}
    options_of: dict[tuple[str, str], dict[str, Any]] = {}
    for label, run in runs:
        options = group_options(run.read_raw_config())
        key = (label, "" if label else json.dumps(options, sort_keys=True))
        if run not in keyed.setdefault(key, []):
            keyed[key].append(run)
        options_of.setdefault(key, options)
    by_environment: dict[str, list[dict[str, Any]]] = {}
    for (label, _), options in options_of.items():
        if not label:
            by_environment.setdefault(options["environment"], []).append(options)
    names = list(dict.fromkeys(name for same in by_environment.values() for name in legend_options(same)))
    groups: list[Group] = []
    titles = {key: key[0] or _title(options_of[key], names, len(by_environment) > 1) for key in keyed}
    for key, members in keyed.items():
        title = titles[key] or members[0].name
        environment = options_of[key]["environment"]
        same = [one for one in keyed if titles[one] == title and options_of[one]["environment"] == environment]
        if key[1] and len(same) > 1:  # files of the same name in two folders
            title = f"{title} ({members[0].name})"
        groups += [
            Group(title, environment, tuple(run for run in members if _environment(run) == environment))
            for environment in dict.fromkeys(map(_environment, members))
        ]
    return groups


def _environment(run: RunDirectory) -> str:
    return str(run.read_raw_config().get("environment", ""))


def flat_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment and all options of a run, by dotted name."""
    return {"environment": config.get("environment", ""), **flattened(config.get("options", {}))}


def group_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the runs of one group have in common: all except IGNORED."""
    return {name: value for name, value in flat_options(config).items() if _last(name) not in IGNORED}


def flattened(data: Any, path: str = "") -> dict[str, Any]:
    """Return the values in nested tables and configs by dotted name."""
    if not isinstance(data, Mapping):
        return {path: data}
    inner = data["fields"] if is_config(data) else data
    found: dict[str, Any] = {}
    for name, value in inner.items():
        found |= flattened(value, f"{path}.{name}" if path else name)
    return found


def differing_options(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of all options in which groups differ."""
    names = dict.fromkeys(name for options in groups for name in options)
    return [name for name in names if len({json.dumps(options.get(name)) for options in groups}) > 1]


def legend_options(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of up to three options in which groups of one environment differ. Algorithms and recipes differ
    in many options, so only as many are returned as distinguish the groups."""
    differing = differing_options(groups)[:3]
    if {"algo", "run.recipe", "recipe"}.isdisjoint(differing):
        return differing
    for count in range(1, len(differing)):
        shown = {json.dumps([options.get(name) for name in differing[:count]]) for options in groups}
        if len(shown) == len(groups):
            return differing[:count]
    return differing


def _title(options: Mapping[str, Any], names: Sequence[str], several_environments: bool) -> str:
    """Return the options that distinguish a group, such as `max lag 0`, or a title like `CartPole-v1 · ppo`."""
    algorithm = _last(_last(str(options.get("algo", "")), ":"), "<locals>.").removesuffix("Config")
    if not names:
        return algorithm if several_environments else f"{options['environment']} · {algorithm}"
    parts = []
    for name in names:
        value = shown_value(options.get(name))
        parts.append(algorithm if name == "algo" else f"{_last(name).replace('_', ' ')} {value}")
    return ", ".join(parts)


def shown_value(value: Any) -> str:
    """Format the value of an option for labels: numbers with six digits, lists in a row, files without folders."""
    if isinstance(value, (list, tuple)):
        between = " + " if any(isinstance(one, str) for one in value) else ","
        return between.join(map(shown_value, value)) or "none"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else FOLDER.sub("", str(value))
