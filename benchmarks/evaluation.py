"""Cost of evaluation in the background: `python benchmarks/evaluation.py [--workload pong] [--share 0.03]`.

One run with an evaluator, which is stopped (SIGSTOP) in every second window of time: so both kinds of window see the
same machine, however busy others make it. Each window with it is compared with the mean of the two beside it, so that a
drift counts for nothing.

`cpu_share` is what it costs: of the CPU time of the whole run, in windows in which it played without a pause, the part
that was the evaluator's. `per_cpu_second` says that there is no other cost: decisions learned from per CPU second of
all
other processes, with the evaluator against without. Both hardly depend on who else uses the machine. `fps` is the same
per second of wall time, which does: its 95 % interval is wide.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from srl.api.status import RunStatus
from srl.base.statistics import Mean, mean_of
from srl.bench.options import BenchOptions
from srl.bench.throughput import options_for
from srl.experiments.session.launch import start


class Mark(NamedTuple):
    """Sums since the start of the run."""

    time: float
    steps: int
    evaluator: float
    """CPU seconds."""
    others: float


class ThroughputMeasurement(NamedTuple):
    seconds: float
    steps: int
    evaluator: float
    others: float

    @classmethod
    def between(cls, begin: Mark, end: Mark) -> ThroughputMeasurement:
        return cls(*(after - before for before, after in zip(begin, end, strict=True)))

    @property
    def fps(self) -> float:
        return self.steps / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.steps / self.others


class Windows:
    """Measures windows of a run, alternating with and without the evaluator."""

    def __init__(self, warmup: float, seconds: float, count: int) -> None:
        self._warmup, self._seconds, self._count = warmup, seconds, count
        self._began: Mark | None = None
        self._updated: float | None = None
        self._stopped = False
        self.found: dict[bool, list[ThroughputMeasurement]] = {
            False: [],
            True: [],
        }  # by whether the evaluator was stopped
        self.evaluations = 0

    def __call__(self, status: RunStatus) -> None:
        now = time.monotonic()
        pids = {worker.name: worker.pid for worker in status.workers if worker.pid}
        pid = next((pid for name, pid in pids.items() if name.startswith("evaluators/")), 0)
        if status.updates and self._updated is None:
            self._updated = now
        if self._updated is None or now - self._updated < self._warmup or not pid:
            return
        self.evaluations = status.evaluation.count if status.evaluation is not None else 0
        others = sum(cpu_seconds(other) for other in (os.getpid(), *pids.values()) if other != pid)
        mark = Mark(now, status.steps, cpu_seconds(pid), others)
        if self._began is not None:
            if now - self._began.time < self._seconds:
                return
            self.found[self._stopped].append(ThroughputMeasurement.between(self._began, mark))
            if len(self.found[True]) == self._count:
                os.kill(pid, signal.SIGCONT)
                raise KeyboardInterrupt
            self._stopped = not self._stopped
            os.kill(pid, signal.SIGSTOP if self._stopped else signal.SIGCONT)
        self._began = mark


def cpu_seconds(pid: int) -> float:
    """Return the exact CPU time of all threads; the resolution of `psutil` is a hundredth of a second, a whole turn."""
    nanoseconds = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError):  # it has ended
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds * 1e-9


def compared(windows: Windows, rate: Callable[[ThroughputMeasurement], float]) -> Mean:
    """Compare each window with the evaluator with the mean of the two next to it without."""
    around = [(rate(before) + rate(after)) / 2.0 for before, after in pairwise(windows.found[True])]
    return mean_of(
        [rate(one) / mean for one, mean in zip(windows.found[False][1:], around, strict=False) if mean > 0.0]
    )


def measure(workload: str, every: int, share: float, seconds: float, count: int) -> dict[str, object]:
    env, options = options_for(BenchOptions(workload=workload))
    options = options.replace(eval_every=every, eval_share=share)
    windows = Windows(3.0, seconds, count)
    with tempfile.TemporaryDirectory(prefix="srl-bench-") as root:
        start(env, options, "bench", Path(root), windows, time.time())
    playing = windows.found[False]
    evaluator, others, span = (
        sum(getattr(window, name) for window in playing) for name in ("evaluator", "others", "seconds")
    )
    fps, per_cpu_second = (compared(windows, rate) for rate in (lambda w: w.fps, lambda w: w.per_cpu_second))
    return {
        "workload": workload,
        "share": share,
        "evaluator_cores": round(evaluator / span, 4),
        "run_cores": round((evaluator + others) / span, 3),
        "cpu_share": round(evaluator / (evaluator + others), 4),
        "per_cpu_second": [round(per_cpu_second.value, 4), round(per_cpu_second.interval, 4)],
        "fps": [round(fps.value, 4), round(fps.interval, 4)],
        "decisions_per_second": round(mean_of([window.fps for window in playing]).value),
        "windows": len(playing) - 1,
        "evaluations": windows.evaluations,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="cartpole")
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--every", type=int, default=1, help="steps between evaluations; 1 means without a pause")
    parser.add_argument("--seconds", type=float, default=0.75, help="length of a window")
    parser.add_argument("--windows", type=int, default=48, help="number of windows of each kind")
    told = parser.parse_args()
    print(json.dumps(measure(told.workload, told.every, told.share, told.seconds, told.windows)))
