"""What evaluation in the background costs: `python benchmarks/evaluation.py [--workload pong] [--share 0.03]`.

One run with an evaluator, which is stopped (SIGSTOP) in every second window of time: so both kinds of window see the
same machine, however busy others make it. Each window with it is compared with the mean of the two beside it, so that a
drift counts for nothing; the figure to read is the mean of these ratios with its 95 % interval. Many short windows give
a narrower interval than few long ones. `evaluator_cpu` is the share of a core that it took while it could.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import psutil

from srl.api.status import RunStatus
from srl.base.statistics import mean_of
from srl.experiments.bench_options import BenchOptions
from srl.experiments.benchmark import options_for
from srl.experiments.train import start


class Windows:
    """Watches a run: measures windows of time, with and without the evaluator in turn."""

    def __init__(self, warmup: float, seconds: float, count: int) -> None:
        self._warmup, self._seconds, self._count = warmup, seconds, count
        self._began: tuple[float, int, float] | None = None
        self._updated: float | None = None
        self._stopped = False
        self.rates: dict[bool, list[float]] = {False: [], True: []}
        self.shares: list[float] = []
        self.evaluations = 0

    def __call__(self, status: RunStatus) -> None:
        now = time.monotonic()
        pid = next((worker.pid for worker in status.workers if worker.group == "evaluators"), 0)
        if status.updates and self._updated is None:
            self._updated = now
        if self._updated is None or now - self._updated < self._warmup or not pid:
            return
        self.evaluations = status.evaluation.count if status.evaluation is not None else 0
        used = sum(psutil.Process(pid).cpu_times()[:2])
        if self._began is not None:
            then, steps, before = self._began
            if now - then < self._seconds:
                return
            self.rates[self._stopped].append((status.steps - steps) / (now - then))
            if not self._stopped:
                self.shares.append((used - before) / (now - then))
            if len(self.rates[True]) == self._count:
                os.kill(pid, signal.SIGCONT)
                raise KeyboardInterrupt
            self._stopped = not self._stopped
            os.kill(pid, signal.SIGSTOP if self._stopped else signal.SIGCONT)
        self._began = (now, status.steps, used)


def measure(workload: str, every: int, share: float, seconds: float, count: int) -> dict[str, object]:
    env, options = options_for(BenchOptions(workload=workload))
    options = replace(options, eval_every=every, eval_share=share)
    windows = Windows(3.0, seconds, count)
    with tempfile.TemporaryDirectory(prefix="srl-bench-") as root:
        start(env, options, "bench", Path(root), windows, time.time())
    alone = windows.rates[True]
    around = [(before + after) / 2.0 for before, after in pairwise(alone)]
    ratios = [rate / mean for rate, mean in zip(windows.rates[False][1:], around, strict=False) if mean > 0]
    ratio = mean_of(ratios)
    return {
        "workload": workload,
        "share": share,
        "fps_without": round(mean_of(windows.rates[True]).value),
        "fps_with": round(mean_of(windows.rates[False]).value),
        "ratio": round(ratio.value, 4),
        "interval": round(ratio.interval, 4),
        "windows": len(ratios),
        "evaluator_cpu": round(mean_of(windows.shares).value, 4),
        "evaluations": windows.evaluations,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", default="cartpole")
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--every", type=int, default=1, help="steps between evaluations; 1: one after the other")
    parser.add_argument("--seconds", type=float, default=0.75, help="of a window")
    parser.add_argument("--windows", type=int, default=48, help="of each kind")
    told = parser.parse_args()
    print(json.dumps(measure(told.workload, told.every, told.share, told.seconds, told.windows)))
