"""Seconds until MuZero solves CartPole-v1: 100 greedy episodes with a mean return of at least 475.

    python benchmarks/muzero_cartpole.py --seeds 10
    python benchmarks/muzero_cartpole.py --seeds 3 -- --recipe none --algo.simulations 8

Each seed is one `srl train`, which ends as soon as an evaluation of 100 episodes reaches the mean. The clock starts
with the command. Evaluations are a part of both times, and not of the steps. Options after `--` are those of
`srl train`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from srl.api.status import EvaluationStatus
from srl.callbacks.callback import Callback

SOLVED, EPISODES = 475.0, 100


class UntilSolved(Callback):
    """Ends a run after an evaluation that reaches the mean: `--callbacks benchmarks/muzero_cartpole.py:UntilSolved`."""

    def on_evaluation(self, result: EvaluationStatus) -> None:
        with (self.run.path / "evaluations.jsonl").open("a") as file:
            file.write(
                json.dumps({"step": result.step, "return": result.return_mean, "episodes": result.episodes}) + "\n"
            )
        if result.return_mean >= SOLVED and result.episodes >= EPISODES:
            self.run.stop(f"{result.episodes} greedy episodes have a mean return of {result.return_mean:.1f}")


def timed(arguments: argparse.Namespace, seed: int, root: Path) -> dict[str, Any]:
    """Train until the task is solved, or the steps are over."""
    name = f"seed-{seed}"
    command = [sys.executable, "-m", "srl", "train", "CartPole-v1", "--algo", "muzero", "--seed", str(seed)]
    command += ["--root", str(root), "--name", name, "--steps", str(arguments.steps)]
    command += ["--eval-every", str(arguments.eval_every), "--eval-episodes", str(EPISODES)]
    command += ["--callbacks", f"{__file__}:UntilSolved", *arguments.options]
    began, before = time.time(), os.times()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds, after = time.time() - began, os.times()
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
    lines = (root / name / "evaluations.jsonl").read_text().splitlines()
    found = [(row["step"], round(row["return"], 1)) for row in map(json.loads, lines)]
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "seed": seed,
        "solved": found[-1][1] >= SOLVED,
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "steps": found[-1][0],
        "returns": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--eval-every", type=int, default=500)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="srl-muzero-cartpole-") as root:
        found = []
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            found.append(timed(arguments, seed, Path(root)))
            print(json.dumps(found[-1]), flush=True)
    solved = [one for one in found if one["solved"]]
    print(f"solved {len(solved)} of {len(found)} seeds within {arguments.steps} steps")
    for name in ("seconds", "cpu_seconds", "steps") if solved else ():
        numbers = [one[name] for one in solved]
        print(f"{name}: median {statistics.median(numbers):.0f}, longest {max(numbers):.0f}")


if __name__ == "__main__":
    main()
