"""Curves for the page: read once, and thinned so that extremes stay."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from srl.base.tree import Array
from srl.storage.curves import curve_of, is_metric
from srl.storage.metric_rows import EVENT
from srl.storage.metric_table import MetricTable
from srl.storage.run_directory import RunDirectory

MAX_POINTS = 800
"""Positions of a curve that are sent: at each, the lowest and the highest value."""
MAX_BYTES = 32 << 20
"""Memory for the rows of the runs that were read last; the newest table stays, whatever its size."""
MAX_EVENTS = 500
"""Events of a run that are shown: the last ones."""
MAX_TEXT = 2000
KINDS = ("busy/", "streams/")


@dataclass
class _Cached:
    table: MetricTable
    lock: threading.Lock = field(default_factory=threading.Lock)
    problem: str = ""  # why the file cannot be read


class TableCache:
    """Tables of files that were read last. Each is read once, then only what was added."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[Path, _Cached] = OrderedDict()

    @contextlib.contextmanager
    def table(self, path: Path) -> Iterator[MetricTable]:
        """Yield the newest rows of a file; none if it does not exist or cannot be read."""
        found = self._cached(path)
        with found.lock:
            found.problem = ""
            try:
                found.table.read()
            except FileNotFoundError:
                pass
            except OSError as error:
                found.problem = f"{path.name} cannot be read: {error.strerror or error}"
            yield found.table
        with self._lock:
            while len(self._tables) > 1 and self.num_bytes > self._max_bytes:
                self._tables.popitem(last=False)

    def problem(self, path: Path) -> str:
        """Return why a file could not be read the last time; empty if it could."""
        with self._lock:
            return self._tables[path].problem if path in self._tables else ""

    @property
    def num_bytes(self) -> int:
        return sum(cached.table.num_bytes for cached in list(self._tables.values()))

    def _cached(self, path: Path) -> _Cached:
        with self._lock:
            found = self._tables.setdefault(path, _Cached(MetricTable(path)))
            self._tables.move_to_end(path)
            return found


class SeriesCache:
    """The metrics of the runs that were shown last."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._tables = TableCache(max_bytes)

    @contextlib.contextmanager
    def tables(self, run: RunDirectory) -> Iterator[tuple[MetricTable, MetricTable]]:
        """Yield the newest rows of metrics.jsonl and system.jsonl."""
        with self._tables.table(run.metrics) as metrics, self._tables.table(run.system) as system:
            yield metrics, system

    def problems(self, run: RunDirectory) -> list[str]:
        """Return what could not be read of a run the last time."""
        return [problem for path in (run.metrics, run.system) if (problem := self._tables.problem(path))]

    @property
    def num_bytes(self) -> int:
        """The memory of all rows."""
        return self._tables.num_bytes

    def names(self, run: RunDirectory) -> list[str]:
        """Return the names of all metrics, those of the run's updates first."""
        with self.tables(run) as (metrics, system):
            return metric_names(metrics, system)

    def events(self, run: RunDirectory) -> tuple[int, list[dict[str, Any]]]:
        """Return the last events, oldest first, and the number of earlier ones. Each has `step`, `elapsed`, `event` and
        `text`."""
        with self._tables.table(run.system) as system:
            rows, kinds = system.column("kind")
            rows = rows[kinds == EVENT] if len(rows) else rows
            begin = max(0, len(rows) - MAX_EVENTS)
            rows = rows[begin:]
            columns = [numbers(_numeric(system.at(name, rows))) for name in ("step", "elapsed")]
            texts = [[str(text) for text in system.at(name, rows, "").tolist()] for name in ("event", "text")]
            found = zip(*columns, *texts, strict=True)
            return begin, [
                {"step": step, "elapsed": elapsed, "event": event, "text": text[:MAX_TEXT]}
                for step, elapsed, event, text in found
            ]

    def series(self, run: RunDirectory, names: Sequence[str], axis: str) -> dict[str, dict[str, list[float | None]]]:
        """Return the curves of these metrics; a metric without values has none."""
        found = {}
        with self.tables(run) as (metrics, system):
            for name in names:
                with contextlib.suppress(ValueError):
                    curve = curve_of(metrics, system, name, run.name)
                    found[name] = points(curve.over(axis), curve.values)
        return found


def metric_names(metrics: MetricTable, system: MetricTable) -> list[str]:
    """Return the names of all metrics, those of the run's updates first."""
    found = [name for table in (metrics, system) for name in table.names if is_metric(table, name)]
    return sorted(dict.fromkeys(found), key=lambda name: (name.startswith(KINDS), "/" in name))


def _numeric(values: Array) -> Array:
    """Return the values of a column that may contain texts in a damaged file."""
    return values if values.dtype != object else np.full(len(values), np.nan)


def points(x: Array, y: Array) -> dict[str, list[float | None]]:
    """Return at most 2 * MAX_POINTS positions and values: the lowest and highest of each stretch, in their order."""
    index = extremes(y, MAX_POINTS)
    return {"x": numbers(x[index]), "y": numbers(y[index])}


def extremes(values: Array, count: int) -> Array:
    """Return the places of the first and last value, and of the lowest and highest of each of `count` stretches. Of few
    values, return all places."""
    if len(values) <= 2 * count:
        return np.arange(len(values))
    length = -(-len(values) // count)
    stretches = np.full((-(-len(values) // length), length), np.nan)
    stretches.flat[: len(values)] = values
    begins = length * np.arange(len(stretches))
    lowest = begins + np.where(np.isnan(stretches), np.inf, stretches).argmin(axis=1)
    highest = begins + np.where(np.isnan(stretches), -np.inf, stretches).argmax(axis=1)
    return np.unique(np.concatenate([lowest, highest, [0, len(values) - 1]]))


def numbers(values: Array) -> list[float | None]:
    """Return numbers for JSON, with seven digits; NaN and infinity are None."""
    return [float(f"{value:.7g}") if np.isfinite(value) else None for value in values.tolist()]
