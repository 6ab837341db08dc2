"""How often hiders are seen: trained and random hiders against trained and random seekers.

`python benchmarks/hide_and_seek_learning.py RUN [--episodes 256] [--checkpoint latest] [--plot FILE]`

Plays hide-and-seek with trained and random hiders against trained and random seekers, and prints the share of steps
after preparation in which a hider is seen, with its 95 % interval, beside the two ratios that the bars are about.
"""

from __future__ import annotations

import argparse
import itertools
import json
from typing import Any

import numpy as np
import torch

import srl
from srl.api.policy import Policy
from srl.base.config import from_data
from srl.environments.hide_and_seek.rules.stages import STAGES
from srl.results.league import RandomPolicy
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory

KINDS = ("random", "trained")
SHOWN = {
    "seen_share": "share of steps with a hider in sight",
    "longest_sight_share": "longest time one hider is in sight, share",
    "approach_speed": "seekers' speed to whom they see, m/s",
    "never_seen": "episodes in which no hider is seen, share",
    "max_box_move_prep": "farthest box in preparation, m",
    "num_box_lock_prep": "boxes locked in preparation",
    "max_ramp_move_prep": "farthest ramp in preparation, m",
    "seeker_high_share": "share of steps with a seeker up high",
}
FACTS = (*SHOWN, "hider_return", *(f"stage_{name}" for name in STAGES))


def played(environment: Any, hiders: Any, seekers: Any, episodes: int, seed: int) -> dict[str, list[float]]:
    """Collects facts of complete episodes."""
    worlds = min(64, episodes)
    lanes = environment.build(worlds)
    policies = [seekers if team.name.startswith("seeker") else hiders for team in lanes.spec.teams]
    states: list[Any] = [None] * len(policies)
    found: dict[str, list[float]] = {name: [] for name in FACTS}
    time_steps = lanes.reset(seed)
    while len(found["seen_share"]) < episodes:
        actions = []
        for index, (policy, time_step) in enumerate(zip(policies, time_steps, strict=True)):
            decision = policy.act(time_step.observation, states[index], time_step.first, greedy=False)
            states[index] = decision.get("state")
            actions.append(decision["action"])
        time_steps = lanes.step(tuple(actions))
        first = time_steps[0]
        ended = np.flatnonzero(first.terminated | first.truncated)
        for name in FACTS:
            if len(ended) and name in first.facts:
                found[name] += [float(first.facts[name][lane]) for lane in ended]
    lanes.close()
    return found


def compared(run: RunDirectory, checkpoint: str, episodes: int, seed: int) -> list[dict[str, Any]]:
    """Yield a row of means for each pair of trained or random hiders and seekers."""
    config = run.read_config()
    environment = from_data(config["lanes"])
    names = list(config["policies"])
    by_team = {team: next((name for name in names if name == team), names[0]) for team in ("hiders", "seekers")}
    rows = []
    for hiders, seekers in itertools.product(KINDS, KINDS):
        teams: list[Policy] = []
        for team, kind in (("hiders", hiders), ("seekers", seekers)):
            trained = srl.load(run.path, policy=by_team[team], checkpoint=checkpoint, seed=seed)
            teams.append(RandomPolicy(trained.action, seed) if kind == "random" else trained.policy)
        facts = played(environment, teams[0], teams[1], episodes, seed)
        means = {name: float(np.nanmean(values)) for name, values in facts.items() if values}
        shares = np.array(facts["seen_share"])
        interval = 1.96 * float(shares.std()) / len(shares) ** 0.5
        steps = int(trained.metadata["steps"])
        rows.append({"steps": steps, "hiders": hiders, "seekers": seekers, "interval": interval, **means})
    return rows


def ratios(rows: list[dict[str, Any]]) -> tuple[float, float]:
    """Return how much more trained seekers see of random hiders than random seekers do, and how much less of trained
    hiders."""
    seen = {(row["hiders"], row["seekers"]): row["seen_share"] for row in rows}
    found = seen["random", "trained"]
    return found / seen["random", "random"], seen["trained", "trained"] / found


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Draw the facts of the four pairs over the checkpoints, and the share of episodes in each stage."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(3, 3, figsize=(12, 9), layout="constrained", sharex=True)
    panels = list(grid.flat)
    for hiders, seekers in itertools.product(KINDS, KINDS):
        pair = [row for row in rows if (row["hiders"], row["seekers"]) == (hiders, seekers)]
        steps = [row["steps"] / 1e6 for row in pair]
        for axes, (fact, title) in zip(panels, SHOWN.items(), strict=False):
            label = f"{hiders} hiders, {seekers} seekers"
            (line,) = axes.plot(steps, [row[fact] for row in pair], marker="o", markersize=3, label=label)
            axes.set_title(title, fontsize=9)
            if fact == "seen_share":
                low, high = ([row[fact] + sign * row["interval"] for row in pair] for sign in (-1, 1))
                axes.fill_between(steps, low, high, alpha=0.15, color=line.get_color())
        if (hiders, seekers) == ("trained", "trained"):
            for name in STAGES:
                panels[-1].plot(steps, [row[f"stage_{name}"] for row in pair], marker="o", markersize=3, label=name)
    panels[-1].set_title("both trained: episodes that show a stage, share", fontsize=9)
    for axes in panels:
        axes.grid(alpha=0.3)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.0), max(high, 0.02))
    for axes in grid[-1]:
        axes.set_xlabel("decisions learned from, millions")
    for axes in (panels[0], panels[-1]):
        axes.set_ylim(0, 1.7 * axes.get_ylim()[1])  # space for the legend
        axes.legend(fontsize=7, loc="upper left", ncols=1 if axes is panels[0] else 2)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--checkpoint", default="latest")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot", default="", help="file for a figure of all kept checkpoints")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = run_directory.find(arguments.run, ROOT)
    every = [str(path) for path in checkpoints.checkpoints(run.checkpoints)]
    chosen = every if arguments.plot else [arguments.checkpoint]
    rows: list[dict[str, Any]] = []
    for checkpoint in chosen:
        these = compared(run, checkpoint, arguments.episodes, arguments.seed)
        for row in these:
            if arguments.json:
                print(json.dumps(row), flush=True)
                continue
            told = ", ".join(f"{name} {row[name]:.3f}" for name in FACTS[1:])
            seen = f"seen {row['seen_share']:.3f} +- {row['interval']:.3f}"
            print(f"{row['hiders']:>7} hiders, {row['seekers']:>7} seekers: {seen}; {told}", flush=True)
        rows += these
        seeking, hiding = ratios(these)
        print(f"against random hiders, trained seekers see {seeking:.2f} times as often as random ones (bar 1.5)")
        print(f"by trained seekers, trained hiders are seen {hiding:.2f} times as often as random ones (bar 0.7)")
    if arguments.plot:
        draw(rows, arguments.plot)


if __name__ == "__main__":
    main()
