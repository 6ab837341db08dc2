"""A run that ended, for users of the library."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import srl
from srl.api.status import RunStatus
from srl.base.tree import Array
from srl.storage.episode_file import read_episodes
from srl.storage.metric_table import metric_columns
from srl.storage.run_directory import RunDirectory
from srl.terminal.notebook import status_html


@dataclass(frozen=True)
class Run:
    """A run that ended, or one that :func:`srl.load_run` found."""

    path: Path
    state: str  # `finished` or `stopped`; `failed` raises RunFailed. Of a run that was found also `running` or `killed`
    reason: str
    status: RunStatus  # last status: steps, returns, speed

    @property
    def name(self) -> str:
        return self.path.name

    def metrics(self) -> Any:
        """Return the rows of metrics.jsonl as a pandas DataFrame or, without pandas, as a dictionary of arrays of equal
        length, with NaN where a row lacks a number. The columns are described in docs/howto/results.md."""
        return _table(metric_columns(RunDirectory(self.path).metrics))

    def episodes(self) -> Any:
        """Return every episode as a DataFrame or a dictionary of arrays, like `metrics`: `step`, `update`, `policy`,
        `actor`, `host`, `return`, `length`, `lane` and what the environment reports."""
        return _table(read_episodes(RunDirectory(self.path).episodes))

    # The methods below use the public functions, because those are above this package.

    def plot(self, **options: Any) -> Any:
        """Return a figure of the learning curve, which a notebook shows; options as for :func:`srl.plot`."""
        return srl.plot(self.path, **options)

    def evaluate(self, **options: Any) -> Any:
        """Play complete episodes and return their results; options as for :func:`srl.evaluate`."""
        return srl.evaluate(self.path, **options)

    def video(self, out: str | Path | None = None, **options: Any) -> Any:
        """Record a video, which a notebook shows; options as for :func:`srl.record`."""
        return srl.record(self.path, out, **options)

    def replay(self, **options: Any) -> Any:
        """Make recorded updates again and compare the parameters; options as for :func:`srl.replay_run`."""
        return srl.replay_run(self.path, **options)

    def blocks(self, **options: Any) -> Any:
        """Return histograms of what the actors produced; options as for :func:`srl.recorded_blocks`."""
        return srl.recorded_blocks(self.path, **options)

    def __repr__(self) -> str:
        mean = self.status.return_mean
        reached = f"{self.status.steps:,} steps" + (f", return {mean:.1f}" if mean is not None else "")
        return f"<Run {str(self.path)!r}: {self.state}, {reached}>"

    def _repr_html_(self) -> str:
        return f"{status_html(self.status)}<code>{escape(str(self.path))}</code>"


def _table(columns: dict[str, Array]) -> Any:
    try:
        pandas: Any = importlib.import_module("pandas")
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


class RunFailed(RuntimeError):
    """The run failed. The message says why; `status` is its last status, or None if it never started."""

    def __init__(self, text: str, status: RunStatus | None = None) -> None:
        super().__init__(text)
        self.status = status
