"""Time of a sweep, and a sweep that is killed: `python benchmarks/sweep.py --runs 12 --steps 100000 --rounds 3`.

Each round trains the same runs one after another, as `srl train` would with all cores, and as `srl sweep` does by
default; whichever comes first alternates. Then a sweep is killed with SIGKILL when half of its runs have finished, and
started again: no finished run may change, and none may be missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median


def command(root: Path, name: str, runs: int, steps: int, *more: str) -> list[str]:
    words = [sys.executable, "-m", "srl", "sweep", "CartPole-v1", "--seeds", str(runs), "--steps", str(steps)]
    return [*words, "--name", name, "--root", str(root), *more]


def seconds(words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def finished(folder: Path) -> dict[str, str]:
    """Return a hash of the metrics of each finished run."""
    found = {}
    for status in folder.glob("*/status.json"):
        if json.loads(status.read_bytes())["state"] == "finished":
            metrics = (status.parent / "metrics.jsonl").read_bytes()
            found[status.parent.name] = hashlib.sha256(metrics).hexdigest()
    return found


def killed_and_started_again(root: Path, runs: int, steps: int) -> dict[str, int]:
    words, folder = command(root, "killed", runs, steps), root / "killed"
    sweep = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while len(finished(folder)) < runs // 2:
        assert sweep.poll() is None, "the sweep ended before it could be killed"
        time.sleep(0.05)
    sweep.kill()
    sweep.wait()
    before = finished(folder)
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = finished(folder)
    repeated = sum(after.get(name) != content for name, content in before.items())
    return {"finished_before": len(before), "repeated": repeated, "missing": runs - len(after)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    times: dict[str, list[float]] = {"one after another": [], "srl sweep": []}
    more = {"one after another": ("--scheduler", "processes", "--jobs", "1"), "srl sweep": ()}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for number in range(options.rounds):
            for way in list(times)[:: 1 if number % 2 == 0 else -1]:
                words = command(root, f"{way.replace(' ', '-')}-{number}", options.runs, options.steps, *more[way])
                times[way].append(seconds(words))
        kill = killed_and_started_again(root, options.runs, options.steps)
    ratios = [new / old for old, new in zip(*times.values(), strict=True)]
    cores = len(os.sched_getaffinity(0))
    if options.json:
        print(json.dumps({"cores": cores, "seconds": times, "ratios": ratios, "killed": kill}))
        return 0
    print(f"{options.runs} runs of {options.steps:,} steps on {cores} cores, {options.rounds} rounds")
    for way, found in times.items():
        print(f"  {way:<18} {median(found):6.1f} s  ({', '.join(f'{each:.1f}' for each in found)})")
    print(f"  ratio              {median(ratios):6.2f}    ({', '.join(f'{each:.2f}' for each in ratios)})")
    print(f"killed in the middle and started again: {kill}")
    return 0 if kill["repeated"] == kill["missing"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
