"""How often hiders are seen, by whom: a trained policy against random players, both ways.

`python benchmarks/hide_and_seek_learning.py RUN [--episodes 256] [--checkpoint latest]`

Plays hide-and-seek with trained and random hiders against trained and random seekers, and prints the share of steps
after preparation in which a hider is seen, with its 95 % interval, beside the two ratios that the bars are about.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import srl
from srl.base.config import from_data
from srl.experiments.opponents import RandomPolicy
from srl.runs import directory

FACTS = ("seen_share", "never_seen", "max_box_move_prep", "num_box_lock_prep", "max_ramp_move_prep", "hider_return")


def played(environment: Any, hiders: Any, seekers: Any, episodes: int, seed: int) -> dict[str, list[float]]:
    """Facts of whole episodes, of all worlds alike."""
    worlds = min(64, episodes)
    lanes = environment.build(worlds)
    policies = [seekers if team.name == "seekers" else hiders for team in lanes.spec.teams]
    states: list[Any] = [None] * len(policies)
    found: dict[str, list[float]] = {name: [] for name in FACTS}
    arrivals = lanes.reset(seed)
    while len(found["seen_share"]) < episodes:
        actions = []
        for index, (policy, arrival) in enumerate(zip(policies, arrivals, strict=True)):
            decision = policy.act(arrival.observation, states[index], arrival.first, greedy=False)
            states[index] = decision.get("state")
            actions.append(decision["action"])
        arrivals = lanes.step(tuple(actions))
        first = arrivals[0]
        ended = np.flatnonzero((first.terminated | first.truncated)[:worlds])
        for name in FACTS:
            if len(ended) and name in first.facts:
                found[name] += [float(first.facts[name][lane]) for lane in ended]
    lanes.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--checkpoint", default="latest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = directory.find(arguments.run, Path("runs"))
    config = run.read_config()
    environment = from_data(config["lanes"])
    names = list(config["policies"])
    by_team = {team: next((name for name in names if name == team), names[0]) for team in ("hiders", "seekers")}
    seen: dict[tuple[str, str], float] = {}
    for who_hides in ("random", "trained"):
        for who_seeks in ("random", "trained"):
            teams = []
            for team, who in (("hiders", who_hides), ("seekers", who_seeks)):
                trained = srl.load(run.path, policy=by_team[team], checkpoint=arguments.checkpoint, seed=arguments.seed)
                random = RandomPolicy(trained.action, arguments.seed)
                teams.append(random if who == "random" else trained.policy)
            facts = played(environment, *teams, arguments.episodes, arguments.seed)
            means = {name: float(np.nanmean(values)) for name, values in facts.items() if values}
            shares = np.array(facts["seen_share"])
            seen[who_hides, who_seeks] = means["seen_share"]
            interval = 1.96 * shares.std() / len(shares) ** 0.5
            if arguments.json:
                print(json.dumps({"hiders": who_hides, "seekers": who_seeks, "episodes": len(shares), **means}))
            else:
                told = ", ".join(f"{name} {value:.3f}" for name, value in means.items() if name != "seen_share")
                share = f"seen {means['seen_share']:.3f} +- {interval:.3f}"
                print(f"{who_hides:>7} hiders, {who_seeks:>7} seekers: {share}; {told}")
    seeking = seen["random", "trained"] / seen["random", "random"]
    hiding = seen["trained", "trained"] / seen["random", "trained"]
    print(f"against random hiders, trained seekers see {seeking:.2f} times as often as random ones (bar 1.5)")
    print(f"by trained seekers, trained hiders are seen {hiding:.2f} times as often as random ones (bar 0.7)")


if __name__ == "__main__":
    main()
