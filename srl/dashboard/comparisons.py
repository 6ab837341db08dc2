"""Curves of several runs in one chart. Each run is read once, and few rows of it are kept, so that many long runs fit
into memory."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from srl.base.statistics import mean_of
from srl.base.tree import Array
from srl.dashboard.series import SeriesCache, extremes, metric_names, numbers
from srl.storage.curves import (
    Curve,
    average,
    curve_of,
    differing_options,
    group_options,
    group_runs,
    repeated_seeds,
    shown_value,
)
from srl.storage.run_directory import RunDirectory

MAX_CURVES = 600
"""Curves of one comparison."""
MAX_KEPT = 300
"""Curves that are kept for the next comparison."""
STRETCHES = 400
"""Positions of a run's own curve: at each, the lowest and the highest value."""
SAMPLES = 500
"""Rows, at even distances, from which means over runs are made."""


class TooManyCurvesError(Exception):
    """The comparison would need too much memory; the message says what to do."""


@dataclass(frozen=True)
class _Small:
    """Few rows of a curve."""

    drawn: Curve
    sample: Curve
    final: float


@dataclass
class _Read:
    """What was read of a run."""

    stamp: tuple[tuple[int, ...], ...]
    names: list[str]
    curves: dict[str, _Small | None] = field(default_factory=dict)  # None: the run has no such metric


class Comparisons:
    """Compares runs. Methods may be called from several threads."""

    def __init__(self, series: SeriesCache) -> None:
        self._series = series
        self._lock = threading.Lock()
        self._known: OrderedDict[Path, _Read] = OrderedDict()

    def compare(self, runs: Sequence[RunDirectory], metrics: Sequence[str], axis: str, grouped: bool) -> dict[str, Any]:
        """Return the curves of runs, or the mean and 95 % interval of groups that differ only in their seeds, and the
        options in which they differ."""
        runs = list(dict.fromkeys(runs))
        if len(runs) * len(metrics) > MAX_CURVES:
            text = f"{len(runs)} runs with {len(metrics)} metrics each are too many curves at once"
            raise TooManyCurvesError(f"{text} (at most {MAX_CURVES}); choose fewer runs or metrics")
        groups = group_runs([("" if grouped else run.name, run) for run in runs])
        several = len({group.environment for group in groups}) > 1
        labels = [f"{group.label} · {group.environment}" if several else group.label for group in groups]
        options = [group_options(group.runs[0].read_raw_config()) for group in groups]
        names = differing_options(options)
        found = {run.path: self._read(run, metrics) for run in runs}
        seeds = [[[found[run.path] for run in same] for same in group.by_seed()] for group in groups]
        first = [_final(each, metrics[0]) for each in seeds]
        return {
            "groups": [
                {"label": label, "seeds": len(each), "final": mean, "interval": interval}
                for label, each, (mean, interval) in zip(labels, seeds, first, strict=True)
            ],
            "curves": {name: _bands(seeds, labels, name, axis) for name in metrics},
            "options": [{"name": n, "values": [shown_value(one.get(n)) for one in options]} for n in names],
            "notes": repeated_seeds(groups),
            "metrics": list(dict.fromkeys(name for read in found.values() for name in read.names)),
        }

    def _read(self, run: RunDirectory, metrics: Sequence[str]) -> _Read:
        """Return the curves of a run, which is read if it has changed or other metrics are asked for."""
        stamp = _stamp(run)
        with self._lock:
            known = self._known.get(run.path)
        curves = dict(known.curves) if known is not None and known.stamp == stamp else {}
        if known is None or known.stamp != stamp or any(name not in curves for name in metrics):
            with self._series.tables(run) as (rows, system):
                names = metric_names(rows, system)
                for name in metrics:
                    if name not in curves:
                        curves[name] = None
                        with contextlib.suppress(ValueError):
                            curves[name] = _small(curve_of(rows, system, name, run.name))
            known = _Read(stamp, names, curves)
        with self._lock:
            self._known[run.path] = known
            self._known.move_to_end(run.path)
            while len(self._known) > 1 and sum(len(one.curves) for one in self._known.values()) > MAX_KEPT:
                self._known.popitem(last=False)
        return known


def _stamp(run: RunDirectory) -> tuple[tuple[int, ...], ...]:
    """Return numbers that change when rows are written."""
    found = []
    for path in (run.metrics, run.system):
        try:
            stat = path.stat()
            found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        except OSError:
            found.append((0, 0, 0))
    return tuple(found)


def _small(curve: Curve) -> _Small:
    rows = np.arange(len(curve.values))
    even = rows if len(rows) <= SAMPLES else np.unique(np.linspace(0, len(rows) - 1, SAMPLES).round().astype(np.int64))
    return _Small(_rows(curve, extremes(curve.values, STRETCHES)), _rows(curve, even), curve.final())


def _rows(curve: Curve, rows: Array) -> Curve:
    return replace(
        curve, steps=curve.steps[rows], seconds=curve.seconds[rows], episodes=curve.episodes[rows],
        values=curve.values[rows],
    )  # fmt: skip


def _of(seeds: Sequence[Sequence[_Read]], name: str) -> list[list[_Small]]:
    """Return the curves of each seed that has the metric."""
    found = [[small for read in same if (small := read.curves[name]) is not None] for same in seeds]
    return [curves for curves in found if curves]


def _bands(
    groups: Sequence[Sequence[Sequence[_Read]]], labels: Sequence[str], name: str, axis: str
) -> list[dict[str, Any]]:
    found = []
    for group, label in zip(groups, labels, strict=True):
        if not (seeds := _of(group, name)):
            continue
        if len(seeds) == len(seeds[0]) == 1:
            own = seeds[0][0].drawn
            found.append({"label": label, "x": numbers(own.over(axis)), "y": numbers(own.values)})
            continue
        band = average([[small.sample for small in same] for same in seeds], axis)
        curve: dict[str, Any] = {"label": label, "x": numbers(band.x), "y": numbers(band.mean)}
        if band.count > 1:
            low, high = band.mean - band.interval, band.mean + band.interval
            curve |= {"low": numbers(low), "high": numbers(high)}
        found.append(curve)
    return found


def _final(seeds: Sequence[Sequence[_Read]], name: str) -> tuple[float | None, float | None]:
    """Return the mean over seeds of the last tenth of each run, and half its 95 % interval."""
    each = [float(np.mean([small.final for small in same])) for same in _of(seeds, name)]
    mean = mean_of(each)
    return mean.value if each else None, mean.interval if len(each) > 1 else None
