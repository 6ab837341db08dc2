"""Speed of training hide-and-seek, compared with the limit given by its raw costs.

`python benchmarks/hide_and_seek_training.py [--recipe hide-and-seek] [--seconds 45] [--game quadrant] [--costs-only]`

First the CPU time of one agent decision in the environment, in inference and in the update, each alone in this
process; two cores could do 2 / (sum of these) decisions per second. Then a run of `srl.train` with the same policy,
then the costs once more, because machines change their speed within a minute: the limit is that of both together.
What is done for the first time only (memory, kernels) does not count as a cost. With `--costs-only` there is no run,
and the costs are multiplied: what as many steps as the paper's would take.
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
from srl.environments.hide_and_seek.options import least, most
from srl.environments.hide_and_seek.variants import VARIANTS
from srl.environments.registry import lanes_config
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.apply import apply
from srl.experiments.recipes.single_agent import RECIPES

WARM_UP = 2  # steps
PAPER_EPISODES = 132.3e6
"""Episodes (of all agents) until the fourth stage, with batches of 64,000 chunks."""


def raw_costs(game: str, config: Any, worlds: int, horizon: int) -> dict[str, float]:
    """Microseconds of CPU per agent decision: play an episode, then learn from its last block, twice.

    Where team sizes are drawn, agents that are absent do not count as deciding. Here they are asked and learned
    from, so that inference and update are by rows; in a run they are not.
    """
    lanes = lanes_config(game).build(worlds)
    time_steps = lanes.reset(0)
    team = lanes.spec.teams[0]
    policy = config.build_policy(team.observation, team.action, 0)
    trainer = config.build_trainer(team.observation, team.action, 0)
    rows: list[dict[str, Any]] = []
    state: Any = None
    times = {"environment": 0.0, "inference": 0.0}
    decisions = 0
    played = max(episode_steps(game), horizon)
    for step in range(WARM_UP + played):
        if step == WARM_UP:
            times, decisions = dict.fromkeys(times, 0.0), 0
        observation = {
            key: np.concatenate([a.observation[key] for a in time_steps]) for key in time_steps[0].observation
        }
        first = np.concatenate([a.first for a in time_steps])
        before = np.zeros((len(first), config.state_size), np.float32) if state is None else state
        decisions += sum(int(a.acting.sum()) for a in time_steps)
        began = time.process_time()
        decision = policy.act(observation, state, first)
        times["inference"] += time.process_time() - began
        state = decision["state"]
        began = time.process_time()
        actions = np.split(np.asarray(decision["action"]), len(time_steps))
        time_steps = lanes.step(tuple(actions))
        times["environment"] += time.process_time() - began
        marks = {
            name: np.concatenate([getattr(a, name) for a in time_steps])
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
    costs = {"environment": times["environment"] / decisions, "inference": times["inference"] / (played * len(first))}
    for _ in range(2):
        began = time.process_time()
        trainer.step(batch, 0.0)
        costs["update"] = (time.process_time() - began) / acting[:-1].size
    return {name: seconds * 1e6 for name, seconds in costs.items()}


def episode_steps(game: str) -> int:
    return VARIANTS[game.partition("/")[2]].horizon


def mean_agents(game: str) -> float:
    options = VARIANTS[game.partition("/")[2]]
    return sum((least(count) + most(count)) / 2 for count in (options.num_hiders, options.num_seekers))


def tell_the_papers(game: str, costs: dict[str, float]) -> None:
    """Print the core hours for the number of episodes until the fourth stage in the paper."""
    decisions = PAPER_EPISODES * episode_steps(game) * mean_agents(game)
    hours = {name: decisions * cost / 3.6e9 for name, cost in costs.items()}
    told = ", ".join(f"{name} {hour:,.0f}" for name, hour in hours.items())
    print(
        f"{PAPER_EPISODES / 1e6:.1f} M episodes of {episode_steps(game)} steps and {mean_agents(game):g} agents: "
        f"{decisions / 1e9:.0f} G decisions, {sum(hours.values()):,.0f} core hours ({told})"
    )


def trained(game: str, recipe: str, seconds: float, options: dict[str, Any]) -> float:
    """Return the agent decisions consumed by training per second, from the first update on."""
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
        srl.train(game, recipe=recipe, steps=10**9, root=Path(folder), name="run", sinks=(), on_status=watch, **options)
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="quadrant")
    parser.add_argument("--costs-only", action="store_true")
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
    config = apply(recipe, TrainOptions(), ()).algorithm
    game = f"hide-and-seek/{arguments.game}"
    before = raw_costs(game, config, arguments.worlds, arguments.horizon)
    if arguments.costs_only:
        told = ", ".join(f"{name} {cost:.0f}" for name, cost in before.items())
        print(f"{game}, us of CPU per agent decision: {told}; all {sum(before.values()):.0f}")
        tell_the_papers(game, before)
        return
    options = {
        "lanes": arguments.worlds,
        "horizon": arguments.horizon,
        "batch": arguments.worlds * arguments.horizon * 4 * arguments.actors,
        "trainers": arguments.trainers,
        "actors": arguments.actors,
        "max_lag": arguments.max_lag,
    }
    rate = trained(game, arguments.recipe, arguments.seconds, options)
    after = raw_costs(game, config, arguments.worlds, arguments.horizon)
    costs = {name: (before[name] + after[name]) / 2 for name in before}
    limit = 2e6 / sum(costs.values())
    told = ", ".join(f"{name} {cost:.0f} ({before[name]:.0f}, {after[name]:.0f})" for name, cost in costs.items())
    print(f"us of CPU per agent decision (before, after): {told}; two cores: {limit:,.0f} decisions/s")
    print(f"trained: {rate:,.0f} decisions/s, {100 * rate / limit:.0f} % of the limit")


if __name__ == "__main__":
    main()
