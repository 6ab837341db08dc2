"""`srl stop` at random moments of the first seconds of a run: how often the run stops and leaves nothing behind.

    python benchmarks/stop.py --rounds 100 --seconds 3

Each round starts a run, waits until it has printed or created anything, and then for a random time. `stopped` counts
rounds in which `srl stop` succeeded, the run ended, and no process of it is left.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from srl.cli.main import main as srl_main

SRL = [sys.executable, "-m", "srl"]


def left_behind(mark: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and process.environ().get("SRL_STOP") == mark:
                found.append(" ".join(process.cmdline())[:80])
        except psutil.Error:
            continue
    return found


def trial(root: Path, number: int, delay: float, options: list[str]) -> tuple[str, float]:
    """Return what went wrong, or an empty string, and the seconds from `srl stop` to the end of the run."""
    name, mark = f"run{number}", f"{os.getpid()}-{number}"
    environment = {**os.environ, "SRL_STOP": mark}
    words = [*SRL, "train", "CartPole-v1", "--root", str(root), "--name", name, "--steps", "1000000000", *options]
    with open(root / f"{name}.out", "wb") as out:
        run = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)
    while not (root / name).exists() and not (root / f"{name}.out").stat().st_size:
        time.sleep(0.001)
    time.sleep(delay)
    began = time.monotonic()
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        stopped = srl_main(["stop", name, "--root", str(root)])  # here, because a new process would be late
    try:
        code = run.wait(20.0)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        return f"it went on; srl stop: {told.getvalue()}", time.monotonic() - began
    took = time.monotonic() - began
    if stopped or code not in (130, 143):
        return f"exit codes {stopped} and {code}; srl stop: {told.getvalue()}", took
    deadline = time.monotonic() + 5.0
    while (left := left_behind(mark)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return f"left behind: {left}" if left else "", took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=3.0)
    given, options = parser.parse_known_args()
    failures, times = 0, []
    with tempfile.TemporaryDirectory(prefix="srl-bench-") as place:
        for number in range(given.rounds):
            delay = random.uniform(0.0, given.seconds)
            wrong, took = trial(Path(place), number, delay, options)
            times.append(took)
            if wrong:
                failures += 1
                print(f"{delay:.2f} s: {wrong}", flush=True)
    times.sort()
    print(f"stopped {given.rounds - failures} of {given.rounds} runs")
    print(f"seconds from `srl stop` to the end: median {times[len(times) // 2]:.1f}, max {times[-1]:.1f}")


if __name__ == "__main__":
    main()
