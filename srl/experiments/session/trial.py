"""A short trial of a run, to estimate its speed, time and memory."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.status import RunStatus
from srl.experiments.graph.preparation import PreparedRun
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.launch import launch

MEASURED_SECONDS = 3.0
"""Time after the first update in which speed is measured."""
LONGEST_SECONDS = 20.0
"""Time after the start of all workers after which a trial without an update ends."""
START_SECONDS = 60.0
"""Time after which a trial ends if its workers have not started."""


@dataclass(frozen=True)
class TrialResult:
    """What a trial measured."""

    speed: float  # decisions per second that the trainers used; without an update, those that the actors made
    updates: int
    memory_mb: float  # resident memory of all processes; memory that they share counts once
    processes: int
    seconds: float
    activity: str = ""  # what the run waited for or did at the end, as its status says


class _Measurement:
    """Speed and memory of a run, from its statuses. Interrupts the run when it has seen enough."""

    def __init__(self) -> None:
        self._first: RunStatus | None = None
        self._began: float | None = None
        self.result = TrialResult(0.0, 0, 0.0, 0, 0.0)

    def __call__(self, status: RunStatus) -> None:
        if status.state == "starting" and status.elapsed >= START_SECONDS:
            self.result = TrialResult(0.0, 0, 0.0, 0, status.elapsed)
            raise KeyboardInterrupt
        if status.state != "running":
            return
        self._began = status.elapsed if self._began is None else self._began
        if self._first is None and status.version > 0:
            self._first = status
        speed, updates, seconds = status.env_fps, 0, status.elapsed - self._began
        if self._first is not None and status.elapsed > self._first.elapsed:
            updates = status.version - self._first.version
            speed = (status.steps - self._first.steps) / (status.elapsed - self._first.elapsed) if updates else speed
        pids = {worker.pid for worker in status.workers if worker.pid} | {os.getpid()}
        memory = max(self.result.memory_mb, _memory_mb(pids))
        self.result = TrialResult(speed, updates, memory, len(pids), seconds, status.bottleneck)
        measured = 0.0 if self._first is None else status.elapsed - self._first.elapsed
        if (measured >= MEASURED_SECONDS and updates) or seconds >= LONGEST_SECONDS:
            raise KeyboardInterrupt  # ends the run as Ctrl-C does


def without_warmup(options: TrainOptions) -> TrainOptions:
    """Return options with which gradient steps begin with the first block, so that a trial measures them."""
    algorithm: Any = options.algorithm
    if not hasattr(algorithm, "learning_starts"):
        return options
    return options.replace(algorithm=dataclasses.replace(algorithm, learning_starts=1))


def trial(prepared: PreparedRun) -> TrialResult:
    """Train for a few seconds in a temporary directory and return what was measured."""
    if prepared.options.workers.scheduler in CLUSTERS:
        raise ValueError("--dry-run tries the run on this machine; use it with --scheduler processes or inline")
    options = prepared.options.replace(sinks=())
    measure = _Measurement()
    with tempfile.TemporaryDirectory(prefix="srl-trial-") as root:
        launch(dataclasses.replace(prepared, options=options), "trial", Path(root), measure)
    return measure.result


def _memory_mb(pids: set[int]) -> float:
    """Return the memory of processes, in which each shared page counts in parts (Linux's proportional set size)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1024
