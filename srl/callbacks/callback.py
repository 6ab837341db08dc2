"""The callback contract: an object of the user whose methods the controller's process calls during a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from srl.api.control import OptionValue
from srl.api.status import EvaluationStatus, RunStatus


class RunControl(Protocol):
    """What a callback can read and do. All methods return at once."""

    name: str
    path: Path  # the run directory
    steps: int  # decisions learned from so far

    def log(self, **figures: float) -> None:
        """Record figures at the current step, like the run's own metrics."""

    def notify(self, text: str) -> None:
        """Show a message in the live view, between those of the run, and record it as one of its events."""

    def stop(self, reason: str) -> None:
        """End the run after a last checkpoint, as finished. The final report shows the reason."""

    def save_checkpoint(self) -> None:
        """Write a checkpoint now."""

    def evaluate(self) -> None:
        """Start an evaluation as soon as the evaluator is free; `on_evaluation` gets its result. Raises ValueError if
        the run has no evaluator."""

    def change(self, name: str, value: OptionValue) -> None:
        """Change an option of the algorithm that may change during a run, or `env.NAME`, an attribute of the
        environments. Raises ValueError if it cannot change."""


class Callback:
    """Base class of callbacks. Every method does nothing by default; `self.run` is set before the first call.

    Methods are called one after another, in the order of the events. They run in the controller's process, in a thread
    of their own except with the `inline` scheduler, so that a slow one delays no worker.
    """

    run: RunControl

    def on_start(self, run: RunControl) -> None:
        """The run begins or continues; the state of a resumed run is already restored."""

    def on_update(self, record: Mapping[str, Any]) -> None:
        """An update was made. `record` is its row in `metrics.jsonl`: `step`, `update`, `return`, `policy_loss`, ..."""

    def on_episode(self, record: Mapping[str, Any]) -> None:
        """An episode ended in the samples of an update: `step`, `policy`, `return`, `length`, and facts from `info`."""

    def on_evaluation(self, result: EvaluationStatus) -> None:
        """An evaluation ended."""

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint was written."""

    def on_end(self, report: RunStatus) -> None:
        """The run has ended; `report.state` says how."""

    def state(self) -> dict[str, Any]:
        """Return what the callback must remember in a resumed run, as plain data for JSON."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that an instance of the same class returned."""
