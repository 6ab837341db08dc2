"""Throughput of two checkouts of SRL, side by side: `python benchmarks/checkouts.py BEFORE [AFTER] [--workload pong]`.

Both runs start once. From then on one of them is stopped (SIGSTOP) while the other one runs for a short window, in the
order ABBA, so that both see the same machine, however busy others make it. Ratios are AFTER / BEFORE of the
sums over all windows; the interval is a bootstrap over pairs of neighboring windows. `steps/s` depends on the load of
the machine, `steps per CPU second` hardly does. `--threads` prints what each thread costs per million steps.

Each directory needs a virtual environment in `.venv`. AFTER is this checkout by default. `--set` and `--set-after`
change options of `srl train`, for example `--set-after 'callbacks=["file.py:MyCallback"]'`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

HERE = Path(__file__).resolve()
SETTLE_SECONDS = 4.0
MODES = {"inline": {}, "host": {"actors": 2}, "remote": {"actors": 2}}  # as in docs/benchmarks.md


def serve(workload: str, inference: str, settings: Sequence[str]) -> None:
    """Run a workload without end, and print a line for each status. It runs in the Python of either checkout, so that
    it uses only what both have."""
    from srl.bench.options import BenchOptions
    from srl.bench.throughput import options_for
    from srl.experiments.session.launch import start

    env, options = options_for(BenchOptions(workload=workload, inference=inference, **MODES[inference]))  # type: ignore[arg-type]
    options = options.replace(**{name: _value(text) for name, _, text in (word.partition("=") for word in settings)})

    def show(status: Any) -> None:
        line = {
            "steps": status.steps,
            "first": status.seconds_to_first_update,
            "restarts": status.restarts,
            "messages": list(status.messages),
            "workers": {str(worker.pid): worker.name for worker in status.workers},
        }
        print(json.dumps(line), flush=True)

    with tempfile.TemporaryDirectory(prefix="srl-bench-") as root:
        start(env, options, "bench", Path(root), show, psutil.Process().create_time())


def _value(text: str) -> Any:
    with suppress(ValueError):
        value = json.loads(text)
        return tuple(value) if isinstance(value, list) else value
    return text


class Window(NamedTuple):
    seconds: float
    steps: int
    cpu: float  # CPU seconds of all processes


@dataclass
class Side:
    """The run of one checkout, which is stopped except during its windows."""

    directory: Path
    workload: str
    inference: str
    settings: list[str]
    windows: list[Window] = field(default_factory=list)
    threads: dict[str, float] = field(default_factory=dict)  # worker and thread -> CPU seconds in windows
    status: dict[str, Any] = field(default_factory=dict)
    memory: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        python = str(self.directory / ".venv" / "bin" / "python")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [python, str(HERE), "--serve", self.workload, self.inference, *self.settings],
            cwd=self.directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,
        )
        self.root = psutil.Process(self.process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.status = json.loads(line)

    def wait_for_update(self, seconds: float) -> None:
        deadline = time.monotonic() + 120
        while not self.status.get("first"):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.errors.seek(0)
                raise SystemExit(f"{self.directory}: no update\n{self.errors.read()[-3000:]}")
            time.sleep(0.05)
        time.sleep(seconds)

    def _tree(self) -> list[psutil.Process]:
        return [self.root, *self.root.children(recursive=True)]

    def pause(self) -> None:
        self._send(signal.SIGSTOP)

    def _send(self, number: int) -> None:
        """Stop the controller before its workers, and let it continue after them, so that it finds none frozen."""
        tree = self._tree()
        for process in tree if number == signal.SIGSTOP else reversed(tree):
            with suppress(psutil.Error):
                process.send_signal(number)

    def settle(self) -> None:
        """Continue for a while after the long pause in which the other run started: the run may replace its zygote."""
        self._send(signal.SIGCONT)
        time.sleep(SETTLE_SECONDS)
        self._send(signal.SIGSTOP)

    def measure(self, seconds: float) -> None:
        """Let the run continue for a window."""
        before, steps = self._cpu(), self.status["steps"]
        began = time.monotonic()
        self._send(signal.SIGCONT)
        time.sleep(seconds)
        self._send(signal.SIGSTOP)
        ended = time.monotonic()
        time.sleep(0.05)  # the reader has the last line
        after = self._cpu()
        grown = {key: cpu - before.get(key, 0.0) for key, cpu in after.items()}
        for (_, _, name), cpu in grown.items():
            self.threads[name] = self.threads.get(name, 0.0) + cpu
        self.windows.append(Window(ended - began, self.status["steps"] - steps, sum(grown.values())))

    def _cpu(self) -> dict[tuple[int, int, str], float]:
        """Return the CPU seconds of each thread."""
        found = {}
        workers = self.status.get("workers", {})
        for process in self._tree():
            with suppress(OSError, psutil.Error):
                name = workers.get(str(process.pid)) or ("controller" if process == self.root else _title(process))
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    with suppress(OSError):
                        spent = int((task / "schedstat").read_text().split()[0]) / 1e9
                        main = int(task.name) == process.pid
                        thread = "main" if main else (task / "comm").read_text().strip()
                        found[process.pid, int(task.name), f"{name} {thread}"] = spent
        return found

    def measure_memory(self) -> None:
        infos = [process.memory_full_info() for process in self._tree()]
        self.memory = sum(info.rss for info in infos) / 2**20, sum(info.pss for info in infos) / 2**20

    def close(self) -> None:
        self._send(signal.SIGCONT)
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            for process in reversed(self._tree()):
                with suppress(psutil.Error):
                    process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.errors.close()

    def total(self, indices: Sequence[int] | None = None) -> Window:
        chosen = self.windows if indices is None else [self.windows[index] for index in indices]
        return Window(*(sum(values) for values in zip(*chosen, strict=True)))


def _title(process: psutil.Process) -> str:
    """Return the module that a process runs."""
    words = process.cmdline()
    return words[words.index("-m") + 1] if "-m" in words else " ".join(words[:2])


def ratios(before: Window, after: Window) -> tuple[float, float]:
    """Return the ratios of steps per second and of steps per CPU second."""
    speed = (after.steps / after.seconds) / (before.steps / before.seconds)
    return speed, (after.steps / after.cpu) / (before.steps / before.cpu)


def compare(before: Side, after: Side, windows: int, seconds: float) -> None:
    for side in (before, after):
        side.settle()
    for turn in range(windows):
        for side in (before, after) if turn % 2 == 0 else (after, before):
            side.measure(seconds)


def describe(before: Side, after: Side, threads: bool) -> None:
    title = f"{after.workload} {after.inference}"
    for name, side in (("before", before), ("after", after)):
        total = side.total()
        text = f"{total.steps / total.seconds:,.0f} steps/s, {total.steps / total.cpu:,.0f} steps per CPU second"
        first, (rss, pss) = side.status["first"], side.memory
        print(f"{title:20} {name:7} {text}; first update {first:.2f} s, {rss:.0f} MB ({pss:.0f} MB shared once)")
        if side.status["restarts"]:
            print(f"{side.status['restarts']} workers were restarted: use shorter windows. {side.status['messages']}")
    random = np.random.default_rng(0)
    count = len(before.windows)
    draws = [random.integers(0, count, count).tolist() for _ in range(1000)]
    samples = np.array([ratios(before.total(draw), after.total(draw)) for draw in draws])
    low, high = np.percentile(samples, [2.5, 97.5], axis=0)
    both = zip(before.windows, after.windows, strict=True)
    pairs = [ratios(*pair) for pair in both if all(window.steps for window in pair)]  # updates may be rare
    for index, what in enumerate(("steps/s", "steps per CPU second")):
        ratio = ratios(before.total(), after.total())[index]
        middle = statistics.median([pair[index] for pair in pairs] or [math.nan])
        interval = f"({low[index]:.3f} to {high[index]:.3f}; median of {len(pairs)} pairs {middle:.3f})"
        print(f"{title:20} ratio   {ratio:.3f} {interval} {what}", flush=True)
    if threads:
        for name in sorted({*before.threads, *after.threads}):
            costs = [1e6 * side.threads.get(name, 0.0) / side.total().steps for side in (before, after)]
            if max(costs) > 0.0005:
                text = f"{costs[0]:8.4f} -> {costs[1]:8.4f} CPU s per million steps ({costs[1] - costs[0]:+.4f})"
                print(f"  {name:45} {text}")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], sys.argv[4:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=HERE.parents[1])
    parser.add_argument("--workload", nargs="+", default=["cartpole"])
    parser.add_argument("--inference", nargs="+", choices=list(MODES), default=["inline"])
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=0.8, help="duration of a window; pauses are twice as long")
    parser.add_argument("--warmup", type=float, default=3.0, help="seconds after the first update")
    parser.add_argument("--set", nargs="+", default=[], metavar="OPTION=VALUE", help="options of both runs")
    parser.add_argument("--set-after", nargs="+", default=[], metavar="OPTION=VALUE", help="more options of AFTER")
    parser.add_argument("--threads", action="store_true", help="print the CPU time of each thread")
    a = parser.parse_args()
    for workload in a.workload:
        for inference in a.inference:
            sides: list[Side] = []
            try:
                for directory, settings in ((a.before, a.set), (a.after, [*a.set, *a.set_after])):
                    sides.append(Side(directory.resolve(), workload, inference, settings))
                    sides[-1].wait_for_update(a.warmup)
                    sides[-1].measure_memory()
                    sides[-1].pause()
                compare(sides[0], sides[1], a.windows, a.seconds)
                describe(sides[0], sides[1], a.threads)
            finally:
                for side in sides:
                    side.close()


if __name__ == "__main__":
    main()
