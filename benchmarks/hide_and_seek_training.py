"""Training hide-and-seek against the limit that its raw costs set.

`python benchmarks/hide_and_seek_training.py [--recipe hide-and-seek] [--seconds 45]`

First the CPU time of one agent decision in the environment, in inference and in the update, each alone in this
process; two cores could do 2 / (sum of these) decisions per second. Then a run of `srl.train` with the same policy,
then the costs once more, because machines change their speed within a minute: the limit is that of both together.
What is done for the first time only (memory, kernels) does not count as a cost.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import srl
from srl.api.status import RunStatus
from srl.api.trainer import Trajectory
from srl.environments.ids import lanes_config
from srl.experiments.choosing import apply
from srl.experiments.options import TrainOptions
from srl.experiments.recipes import RECIPES

GAME = "hide-and-seek/quadrant"
EPISODE, WARM_UP = 80, 2  # steps


def raw_costs(config: Any, worlds: int, horizon: int) -> dict[str, float]:
    """Microseconds of CPU per agent decision: play an episode, then learn from its last block, twice."""
    lanes = lanes_config(GAME).build(worlds)
    arrivals = lanes.reset(0)
    team = lanes.spec.teams[0]
    policy = config.build_policy(team.observation, team.action, 0)
    trainer = config.build_trainer(team.observation, team.action, 0)
    rows: list[dict[str, Any]] = []
    state: Any = None
    times = {"environment": 0.0, "inference": 0.0}
    played = max(EPISODE, horizon)
    for step in range(WARM_UP + played):
        if step == WARM_UP:
            times = dict.fromkeys(times, 0.0)
        observation = {key: np.concatenate([a.observation[key] for a in arrivals]) for key in arrivals[0].observation}
        first = np.concatenate([a.first for a in arrivals])
        before = np.zeros((len(first), config.state_size), np.float32) if state is None else state
        began = time.process_time()
        decision = policy.act(observation, state, first)
        times["inference"] += time.process_time() - began
        state = decision["state"]
        began = time.process_time()
        actions = np.split(np.asarray(decision["action"]), len(arrivals))
        arrivals = lanes.step(tuple(actions))
        times["environment"] += time.process_time() - began
        marks = {
            name: np.concatenate([getattr(a, name) for a in arrivals])
            for name in ("reward", "terminated", "truncated", "acting")
        }
        rows.append({"observation": observation, "first": first, "state": before, "decision": decision, **marks})
    lanes.close()

    def stacked(key: str) -> Any:
        parts = [row[key] for row in rows[-horizon - 1 :]]
        if isinstance(parts[0], dict):
            return {name: np.stack([np.asarray(part[name]) for part in parts]) for name in parts[0]}
        return np.stack(parts)

    acting = np.concatenate([np.ones((1, len(first)), bool), stacked("acting")[:-1]])
    batch = Trajectory(
        stacked("observation"),
        stacked("decision"),
        stacked("reward"),
        stacked("terminated"),
        stacked("truncated"),
        acting,
        stacked("first"),
        np.zeros(acting.shape, np.int32),
        stacked("state"),
    )
    costs = {name: seconds / (played * len(first)) for name, seconds in times.items()}
    for _ in range(2):
        began = time.process_time()
        trainer.step(batch, 0.0)
        costs["update"] = (time.process_time() - began) / int(acting[:-1].sum())
    return {name: seconds * 1e6 for name, seconds in costs.items()}


def trained(recipe: str, seconds: float, options: dict[str, Any]) -> float:
    """Agent decisions learnt from per second, from the first update on."""
    seen: list[tuple[float, int]] = []
    interrupted = False

    def watch(status: RunStatus) -> None:
        nonlocal interrupted
        if interrupted:
            return
        if status.updates and (not seen or seen[-1][1] != status.steps):
            seen.append((time.monotonic(), status.steps))
        if seen and time.monotonic() - seen[0][0] > seconds:
            interrupted = True
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        srl.train(GAME, recipe=recipe, steps=10**9, root=Path(folder), name="run", sinks=(), on_status=watch, **options)
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", default="hide-and-seek")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--horizon", type=int, default=40)
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--max-lag", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    recipe = {one.name: one for one in RECIPES}[arguments.recipe]
    config = apply(recipe, TrainOptions(), ()).ppo
    before = raw_costs(config, arguments.worlds, arguments.horizon)
    options = {
        "lanes": arguments.worlds,
        "horizon": arguments.horizon,
        "batch": arguments.worlds * arguments.horizon * 4 * arguments.actors,
        "trainers": arguments.trainers,
        "actors": arguments.actors,
        "max_lag": arguments.max_lag,
    }
    rate = trained(arguments.recipe, arguments.seconds, options)
    after = raw_costs(config, arguments.worlds, arguments.horizon)
    costs = {name: (before[name] + after[name]) / 2 for name in before}
    limit = 2e6 / sum(costs.values())
    told = ", ".join(f"{name} {cost:.0f} ({before[name]:.0f}, {after[name]:.0f})" for name, cost in costs.items())
    print(f"us of CPU per agent decision (before, after): {told}; two cores: {limit:,.0f} decisions/s")
    print(f"trained: {rate:,.0f} decisions/s, {100 * rate / limit:.0f} % of the limit")


if __name__ == "__main__":
    main()
