"""Seconds until a policy makes no mistake in tic-tac-toe, on any line and in both seats.

    python benchmarks/tic_tac_toe.py --algo alphazero --seeds 5     # trains, and checks every 2 seconds
    python benchmarks/tic_tac_toe.py --algo muzero --seconds 600
    python benchmarks/tic_tac_toe.py --run runs/NAME                # checks the last checkpoint of a run

A run ends when `--in-a-row` checks of successive checkpoints found no mistake. The clock starts with the command.
Options after `--` are those of `srl train`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import srl
from srl.callbacks.callback import Callback
from srl.testing.solved_games import PerfectPlay, perfect_play

GAME = "game:tic-tac-toe"


def check(path: Path, simulations: int | None = None) -> PerfectPlay:
    """Check a run or a checkpoint."""
    trained = srl.load(path, simulations=simulations)
    knows_rules = "state" in trained.observation.items  # type: ignore[attr-defined]  # a Dict
    game = srl.lanes_config(GAME)
    return perfect_play(trained.policy, game.with_states() if knows_rules else game.with_joint_seats())


class UntilPerfect(Callback):
    """Ends a run after several perfect checks in a row: `--callbacks benchmarks/tic_tac_toe.py:UntilPerfect`."""

    def __init__(self, in_a_row: int = 3) -> None:
        self.in_a_row = in_a_row
        self.found: list[dict[str, Any]] = []

    def on_checkpoint(self, path: Path) -> None:
        result = check(path)
        self.found.append({"steps": self.run.steps, "mistakes": list(result.mistakes), "time": time.time()})
        (self.run.path / "mistakes.json").write_text(json.dumps(self.found))
        self.run.log(mistakes=float(sum(result.mistakes)))
        last = self.found[-self.in_a_row :]
        if len(last) == self.in_a_row and not any(sum(one["mistakes"]) for one in last):
            self.run.stop(f"no mistake in {self.in_a_row} checks in a row")

    def state(self) -> dict[str, Any]:
        return {"found": self.found}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.found = list(state["found"])


def timed(arguments: argparse.Namespace, seed: int, root: Path) -> dict[str, Any]:
    """Train until play is perfect, or the time is over."""
    name = f"seed-{seed}"
    command = [sys.executable, "-m", "srl", "train", GAME, "--algo", arguments.algo, "--seed", str(seed)]
    command += ["--root", str(root), "--name", name, "--steps", "100000000", "--checkpoint-seconds", "2"]
    command += ["--keep-last", "100"]  # a check on a busy machine may take longer than a few checkpoints
    command += ["--callbacks", f"{__file__}:UntilPerfect,in_a_row={arguments.in_a_row}", *arguments.options]
    began, before = time.time(), os.times()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.seconds)
        seconds: float | None = time.time() - began
        if done.returncode:
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            seconds = None
    except subprocess.TimeoutExpired:
        seconds = None
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    found = json.loads((root / name / "mistakes.json").read_text()) if (root / name / "mistakes.json").exists() else []
    checks = [(round(one["time"] - began, 1), one["steps"], sum(one["mistakes"])) for one in found]
    shown = None if seconds is None else round(seconds, 1)
    return {"seed": seed, "seconds": shown, "cpu_seconds": round(cpu, 1), "checks": checks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run or checkpoint to check")
    parser.add_argument("--simulations", type=int, help="simulations of each move, 0 for the policy network alone")
    parser.add_argument("--algo", default="alphazero")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0, help="most seconds of a run")
    parser.add_argument("--in-a-row", type=int, default=3)
    parser.add_argument("options", nargs="*")
    arguments = parser.parse_args()
    if arguments.run:
        result = check(arguments.run, arguments.simulations)
        print(f"positions {result.positions}, mistakes {result.mistakes} (as player 0, as player 1)")
        sys.exit(not result.perfect)
    with TemporaryDirectory(prefix="srl-tic-tac-toe-") as root:
        found = []
        for seed in range(arguments.seeds):
            found.append(timed(arguments, seed, Path(root)))
            print(json.dumps(found[-1]), flush=True)
    seconds = [one["seconds"] for one in found if one["seconds"] is not None]
    median = statistics.median(seconds) if seconds else float("nan")
    cpu = [one["cpu_seconds"] for one in found if one["seconds"] is not None]
    longest = max(seconds, default=float("nan"))
    print(f"perfect with {len(seconds)} of {len(found)} seeds; median {median:.1f} s, longest {longest:.1f} s")
    if cpu:
        print(f"CPU seconds of all processes, with the checks: median {statistics.median(cpu):.1f}, most {max(cpu)}")


if __name__ == "__main__":
    main()
