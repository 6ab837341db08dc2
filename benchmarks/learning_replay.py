"""Learning curves of DQN, SAC and TD3 with the same settings in SRL and Stable-Baselines3, kept as small CSV files.

    python benchmarks/learning_replay.py sac Pendulum-v1 --seeds 1 2 3 [--sb3 ~/.cache/srl-peers/sb3] [--plot FILE]

`--sb3` names a virtual environment with stable-baselines3; `--only sb3` runs only that side. Each finished run adds its
rows to benchmarks/results/ALGO-ENVIRONMENT.csv (curves.py says which), and a table of all runs in this file is printed;
with no seeds (`--seeds`) only that. `--schedule linear` lets the learning rate fall to 0 in both libraries, and adds to
ALGO-ENVIRONMENT-linear.csv. Both libraries use one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from curves import GREEDY, POINTS, RESULTS, SRL, greedy_return, keep, plot, read, table, training_rows

from srl.base.errors import nearest

SB3 = "Stable-Baselines3"
EPISODES = 100


@dataclass(frozen=True)
class Task:
    """Settings of an algorithm for an environment, for both libraries."""

    steps: int
    learning_rate: float
    batch_size: int = 256
    replay_size: int = 1_000_000
    learning_starts: int = 10_000
    gamma: float = 0.99
    hidden_sizes: tuple[int, ...] = (256, 256)
    every: tuple[int, int] = (1, 1)
    """Gradient steps, and decisions between them."""
    target_update: int | None = None
    """DQN: decisions between updates of the target network; with every=(K, M) at least M, for a target network cannot
    change between K gradient steps in a row."""
    schedule: str = "constant"
    """Schedule of the learning rate: `linear` falls to 0 over the run."""
    exploration: tuple[float, float] | None = None
    """DQN: share of the run over which the probability of a random action falls, and its last value."""

    @property
    def updates_per_decision(self) -> float:
        return self.every[0] / self.every[1]


def _mujoco(algo: str, steps: int = 300_000) -> Task:
    return Task(steps, 1e-3, hidden_sizes=(400, 300)) if algo == "td3" else Task(steps, 3e-4)


# RL Zoo's settings; for SAC on MuJoCo the library's defaults, as there.
_LANDER = Task(100_000, 6.3e-4, 128, 50_000, 128, every=(4, 4), target_update=250, exploration=(0.12, 0.1))
TASKS = {
    ("dqn", "CartPole-v1"): Task(
        50_000, 2.3e-3, 64, 100_000, 1_000, every=(128, 256), target_update=256, exploration=(0.16, 0.04)
    ),
    ("dqn", "LunarLander-v3"): _LANDER,
    **{(algo, "Pendulum-v1"): Task(10_000, 1e-3, learning_starts=256) for algo in ("sac", "td3")},
    **{
        (algo, f"{name}-v5"): _mujoco(algo) for algo in ("sac", "td3") for name in ("HalfCheetah", "Hopper", "Walker2d")
    },
}
SHARED = ("learning_rate", "batch_size", "replay_size", "learning_starts", "gamma", "updates_per_decision")


def run_srl(algo: str, environment: str, task: Task, seed: int, path: Path) -> Iterator[dict[str, Any]]:
    """Train and evaluate. Yield the rows."""
    words = ["--algo", algo, "--recipe", "none", "--algo.update-threads", "1", "--algo.hidden-sizes"]
    words += [str(size) for size in task.hidden_sizes]
    words += [f"--algo.{name.replace('_', '-')}={getattr(task, name)}" for name in SHARED]
    words += [f"--algo.learning-rate-schedule={task.schedule}"]
    if task.target_update is not None and task.exploration is not None:
        words += [f"--algo.target-update={round(task.target_update * task.updates_per_decision)}"]
        words += [f"--algo.exploration-fraction={task.exploration[0]}", f"--algo.epsilon-final={task.exploration[1]}"]
    place = ["--root", str(path.parent), "--name", path.name, "--scheduler", "inline", "--sinks"]
    _run([sys.executable, "-m", "srl", "train", environment, *words, f"--steps={task.steps}", f"--seed={seed}", *place])
    yield from training_rows(path)
    yield {"kind": GREEDY, "step": task.steps, "return": round(greedy_return(path, EPISODES), 2)}


def run_sb3(python: Path, algo: str, environment: str, task: Task, seed: int, path: Path) -> Iterator[dict[str, Any]]:
    path.mkdir(parents=True)
    options: dict[str, Any] = {
        "learning_rate": task.learning_rate,
        "batch_size": task.batch_size,
        "buffer_size": task.replay_size,
        "learning_starts": task.learning_starts,
        "gamma": task.gamma,
        "gradient_steps": task.every[0],
        "train_freq": task.every[1],
        "policy_kwargs": {"net_arch": task.hidden_sizes},
    }
    if task.exploration is not None:
        options["target_update_interval"] = task.target_update
        options["exploration_fraction"], options["exploration_final_eps"] = task.exploration
    settings = {"algo": algo, "steps": task.steps, "options": options, "points": POINTS, "episodes": EPISODES}
    settings["schedule"] = task.schedule
    script = Path(__file__).with_name("learning_sb3.py")
    _run([str(python), str(script), environment, json.dumps(settings), str(seed), str(path)])
    yield from training_rows(path)
    greedy = json.loads((path / "greedy.json").read_text())
    yield {"kind": GREEDY, "step": task.steps, "return": round(greedy, 2)}


def _run(command: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algo", help="dqn, sac or td3")
    parser.add_argument("environment", help=", ".join(sorted({name for _, name in TASKS})))
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--sb3", type=Path, metavar="DIR", help="virtual environment of Stable-Baselines3")
    parser.add_argument("--only", choices=("srl", "sb3"), help="side to run")
    parser.add_argument("--schedule", choices=("constant", "linear"), help="another schedule of the learning rate")
    parser.add_argument("--root", type=Path, help="directory in which to keep the runs")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory of the CSV")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="file for the curves (png, pdf or svg)")
    given = parser.parse_args()
    task = TASKS.get((given.algo, given.environment))
    if task is None:
        known = [" ".join(pair) for pair in TASKS]
        found = f"{given.algo} {given.environment}"
        parser.error(f"no settings for {found!r}{nearest(found, known)}")
    if given.only == "sb3" and given.sb3 is None:
        parser.error("--only sb3 needs --sb3 DIR")
    name = f"{given.algo}-{given.environment}"
    if given.schedule not in (None, task.schedule):
        task, name = replace(task, schedule=given.schedule), f"{name}-{given.schedule}"
    file = given.results / f"{name}.csv"
    sides = {"srl": [SRL], "sb3": [SB3]}.get(given.only) or ([SRL] if given.sb3 is None else [SRL, SB3])
    with tempfile.TemporaryDirectory(prefix="srl-learning-") as temporary:
        root = (given.root or Path(temporary)) / name
        for seed in given.seeds:
            for library in sides:
                began = time.monotonic()
                path = root / f"{library}-{seed}"
                if library == SRL:
                    rows = list(run_srl(given.algo, given.environment, task, seed, path))
                else:
                    rows = list(run_sb3(given.sb3 / "bin/python", given.algo, given.environment, task, seed, path))
                keep(file, library, seed, rows)
                took = time.monotonic() - began
                print(f"{library}, seed {seed}: greedy {rows[-1]['return']:.1f}, {took:.0f} s", file=sys.stderr)
    rows = read(file)
    if given.plot is not None:
        plot(rows, given.environment, given.plot)
    print(table(rows))


if __name__ == "__main__":
    main()
