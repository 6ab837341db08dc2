"""Returns and times of SRL and Stable-Baselines3 with the same steps and hyperparameters.

    python benchmarks/learning.py CartPole-v1 --sb3 ~/.cache/srl-peers/sb3 --seeds 3 [--plot curves.png] [--json]

`--sb3` names a virtual environment with stable-baselines3 (for MuJoCo also mujoco); without it only SRL runs. The final
return is the mean of the last 100 training episodes, unscaled, on both sides; the time is that of the whole command,
from its start to its exit, the rate that of its second half, without the start. Seeds alternate between the two, so
that a slow hour hits both. For times alone a few steps are enough: `--steps 60000`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.base.errors import nearest
from srl.base.statistics import mean_of

SRL, SB3 = "SRL", "Stable-Baselines3"


@dataclass(frozen=True)
class Task:
    """An environment and the hyperparameters of both libraries. Actor and critic each have a 64 x 64 tanh network."""

    steps: int
    lanes: int
    """Total number of environment copies."""
    horizon: int
    """Steps of each copy per batch."""
    minibatch: int
    epochs: int
    learning_rate: float
    learning_rate_schedule: str = "linear"
    clip: float = 0.2
    clip_schedule: str = "constant"
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy: float = 0.0
    normalize: bool = False
    """Whether to normalize observations, and rewards (Stable-Baselines3) or returns (SRL)."""
    actors: int = 1
    """Number of SRL's processes that share the copies."""
    max_lag: int = 0
    """Maximum lag of SRL: 0 alternates collecting and training, as Stable-Baselines3 does; 1 overlaps them."""


_MUJOCO = Task(1_000_000, 8, 256, 256, 10, 6e-4, normalize=True, max_lag=1)
TASKS = {
    # The tuned settings of RL Zoo, the library's own collection.
    "CartPole-v1": Task(100_000, 8, 32, 256, 20, 1e-3, clip_schedule="linear", gamma=0.98, gae_lambda=0.8),
    "Acrobot-v1": Task(500_000, 16, 256, 64, 4, 3e-4, "constant", gae_lambda=0.94, normalize=True),
    # The PPO paper's batches of 2048 and 10 epochs, with larger minibatches and steps: those of 64 take
    # Stable-Baselines3 two to three times as long.
    "HalfCheetah-v5": _MUJOCO,
    "Hopper-v5": _MUJOCO,
}


@dataclass(frozen=True)
class Result:
    who: str
    seed: int
    final_return: float
    wall_seconds: float
    steps: int
    rate: float
    """Steps per second."""


def srl_words(environment: str, task: Task) -> list[str]:
    """Return the command line of `srl train`. Stable-Baselines3 normalizes advantages per minibatch, and uses the full
    squared error of the critic, where SRL uses half of it."""
    schedule = task.learning_rate_schedule
    ppo = {
        "epochs": task.epochs,
        "num-minibatches": task.lanes * task.horizon // task.minibatch,
        "learning-rate": task.learning_rate,
        "learning-rate-schedule": schedule,
        "clip": task.clip,
        "clip-schedule": task.clip_schedule,
        "gamma": task.gamma,
        "gae-lambda": task.gae_lambda,
        "entropy-coefficient": task.entropy,
        "value-coefficient": 1.0,
        "normalize-advantage": "minibatch",
        "normalize-return": "running" if task.normalize else "none",
    }
    sizes = {
        "steps": task.steps,
        "actors": task.actors,
        "lanes": task.lanes // task.actors,
        "horizon": task.horizon,
        "batch": task.lanes * task.horizon,
        "max-lag": task.max_lag,
    }
    words = ["train", environment, "--recipe", "none", "--sinks"]
    words += [f"--{name}={value}" for name, value in sizes.items()]
    words += [f"--ppo.{name}={value}" for name, value in ppo.items()]
    return [*words, "--ppo.normalize-observation"] if task.normalize else words


def run_srl(environment: str, task: Task, seed: int, path: Path) -> Result:
    command = [sys.executable, "-m", "srl", *srl_words(environment, task), f"--seed={seed}"]
    wall = _timed([*command, "--root", str(path.parent), "--name", path.name])
    status = json.loads((path / "status.json").read_text())
    return Result(SRL, seed, status["return_mean"], wall, status["steps"], _rate(_records(path)))


def run_sb3(python: Path, environment: str, task: Task, seed: int, path: Path) -> Result:
    path.mkdir(parents=True)
    script = Path(__file__).with_name("learning_sb3.py")
    settings = json.dumps(dataclasses.asdict(task))
    wall = _timed([str(python), str(script), environment, settings, str(seed), str(path)])
    records = _records(path)
    return Result(SB3, seed, records[-1]["return"], wall, records[-1]["step"], _rate(records))


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def _rate(records: list[dict[str, Any]]) -> float:
    """Return the steps per second in the second half of a run."""
    last = records[-1]
    middle = next(record for record in records if record["step"] >= last["step"] / 2)
    return float((last["step"] - middle["step"]) / max(last["elapsed"] - middle["elapsed"], 1e-9))


def _timed(command: list[str]) -> float:
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return time.monotonic() - began


def summary(results: list[Result]) -> dict[str, Any]:
    """Return mean, 95 % interval and time of each library, and the ratio of their times."""
    sides: dict[str, Any] = {}
    for who in dict.fromkeys(result.who for result in results):
        mine = [result for result in results if result.who == who]
        final = mean_of([result.final_return for result in mine])
        sides[who] = {
            "seeds": len(mine),
            "final_return": final.value,
            "interval": final.interval if len(mine) > 1 else None,
            "wall_seconds": mean_of([result.wall_seconds for result in mine]).value,
            "rate": mean_of([result.rate for result in mine]).value,
        }
    if len(sides) == 2:
        sides["time_ratio"] = sides[SRL]["wall_seconds"] / sides[SB3]["wall_seconds"]
        sides["rate_ratio"] = sides[SRL]["rate"] / sides[SB3]["rate"]
    return sides


def table(environment: str, task: Task, summed: dict[str, Any]) -> str:
    lines = [
        f"{environment}, {task.steps:,} steps",
        "",
        "| | seeds | final return | 95 % interval | wall time | steps/s |",
        "|---|---|---|---|---|---|",
    ]
    for who in (SRL, SB3):
        if who in summed:
            side = summed[who]
            interval = "-" if side["interval"] is None else f"± {side['interval']:.1f}"
            lines.append(
                f"| {who} | {side['seeds']} | {side['final_return']:.1f} | {interval} | {side['wall_seconds']:.1f} s "
                f"| {side['rate']:,.0f} |"
            )
    if "time_ratio" in summed:
        ratios = f"{summed['time_ratio']:.2f} of Stable-Baselines3's time, at {summed['rate_ratio']:.1f} times its rate"
        lines += ["", f"SRL takes {ratios}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("environment", help=", ".join(TASKS))
    parser.add_argument("--sb3", type=Path, metavar="DIR", help="virtual environment of Stable-Baselines3")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="number of steps (default: that of the environment)")
    parser.add_argument("--root", type=Path, help="directory in which to keep the runs")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="file for curves over wall time (png, pdf or svg)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.environment not in TASKS:
        parser.error(f"no settings for {given.environment!r}{nearest(given.environment, TASKS)}")
    if given.sb3 is not None and not (given.sb3 / "bin" / "python").exists():
        parser.error(f"{given.sb3} is no virtual environment: it has no bin/python")
    task = TASKS[given.environment]
    if given.steps is not None:
        task = dataclasses.replace(task, steps=given.steps)

    with tempfile.TemporaryDirectory(prefix="srl-learning-") as temporary:
        root = (given.root or Path(temporary)) / given.environment
        results = []
        for seed in range(given.seeds):
            results.append(run_srl(given.environment, task, seed, root / "srl" / f"seed-{seed}"))
            if given.sb3 is not None:
                python = given.sb3 / "bin" / "python"
                results.append(run_sb3(python, given.environment, task, seed, root / "sb3" / f"seed-{seed}"))
            print(*results[-2:], sep="\n", file=sys.stderr)
        summed = summary(results)
        if given.plot is not None:
            import srl

            sides = {SRL: root / "srl", **({SB3: root / "sb3"} if given.sb3 is not None else {})}
            labeled = [f"{who}={path}" for who, path in sides.items()]
            srl.plot(*labeled, x="time", out=given.plot, title=given.environment)
    if given.json:
        runs = [dataclasses.asdict(result) for result in results]
        print(json.dumps({"environment": given.environment, "task": dataclasses.asdict(task), "runs": runs, **summed}))
    else:
        print(table(given.environment, task, summed))


if __name__ == "__main__":
    main()
