"""Environment steps per second of hide-and-seek, and where the time goes: `python benchmarks/hide_and_seek.py`.

A turn is a whole episode of all lanes, reset and preparation included. Settings take turns, several times; the best and
the median are given, because other work on a machine only ever makes a turn slower. CPU seconds are those of this
process, which uses one core.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from srl.environments.hide_and_seek.lanes import HideAndSeekConfig, HideAndSeekLanes
from srl.environments.hide_and_seek.scripted_players import BusyPlayers, RandomPlayers


@dataclass(frozen=True)
class Setting:
    title: str
    variant: str
    players: Any
    bar: float
    """Required environment steps per second on one core."""
    lanes: int
    options: tuple[tuple[str, Any], ...] = ()


SIX_BOXES = (("num_boxes", 6),)
THREE = (("num_boxes", 9), ("num_hiders", 3), ("num_seekers", 3))
SETTINGS = (
    Setting("quadrant 2v2, random play", "quadrant", RandomPlayers, 2800, 64),
    Setting("quadrant 2v2, busy play", "quadrant", BusyPlayers, 2000, 64),
    Setting("full 2v2, 6 boxes, busy play", "full", BusyPlayers, 1400, 32, SIX_BOXES),
    Setting("full 3v3, 9 boxes, busy play", "full", BusyPlayers, 850, 32, THREE),
)


class Clock:
    """CPU time of some methods, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, method: str, name: str) -> None:
        setattr(owner, method, self.timed(getattr(owner, method), name))

    def timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            begun = time.process_time()
            result = function(*args, **kwargs)
            self.seconds[name] += time.process_time() - begun
            return result

        return call


class Run:
    """Lanes with scripted players."""

    def __init__(self, setting: Setting, seed: int = 0) -> None:
        self.setting, self.clock = setting, Clock()
        lanes = HideAndSeekConfig(setting.variant, dict(setting.options)).build(setting.lanes)
        assert isinstance(lanes, HideAndSeekLanes)
        self.lanes, self.game = lanes, lanes.game
        lanes.reset(seed)
        self.players = setting.players(self.game, seed)
        self.held = self.decisions = 0
        self.clock.watch(self.game.worlds, "step", "physics")
        self.clock.watch(self.game.perception, "update", "rays")
        self.clock.watch(self.game, "begin", "reset")
        self.clock.watch(self.lanes, "step", "all")
        self.turns: list[tuple[float, float, dict[str, float]]] = []  # rate by CPU time, by wall time, us of the parts

    def restart(self) -> None:
        self.lanes.reset(0)
        self.turns.clear()
        self.held = self.decisions = 0

    def turn(self, steps: int) -> None:
        self.clock.seconds.clear()
        wall = 0.0
        num = self.setting.lanes
        for _ in range(steps):
            actions = tuple(np.ascontiguousarray(self.players.act().transpose(1, 0, 2)))
            begun = time.perf_counter()
            self.lanes.step(actions)
            wall += time.perf_counter() - begun
            self.held += int(np.count_nonzero(self.game.manipulation.held >= 0))
            self.decisions += self.game.manipulation.held.size
        count, spent = steps * num, self.clock.seconds
        parts = {name: spent[name] / count * 1e6 for name in ("physics", "rays", "reset")}
        parts["rules"] = spent["all"] / count * 1e6 - sum(parts.values())
        self.turns.append((count / spent["all"], count / wall, parts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="part of the titles of the settings to run")
    options = parser.parse_args()
    runs = [Run(setting) for setting in SETTINGS if options.only in setting.title]
    for run in runs:
        run.turn(2)  # warmup: compilation and caches
        run.restart()
    for _ in range(options.turns):
        for run in runs:
            run.turn(run.game.options.horizon + 1)
    print(f"{'':<30}{'env steps per s (CPU)':>24}{'wall':>8}{'bar':>7}   us: physics  rays  rules  reset   grabs")
    for run in runs:
        by_cpu = [turn[0] for turn in run.turns]
        best = max(run.turns, key=lambda turn: turn[0])
        parts = best[2]
        print(
            f"{run.setting.title:<30}{max(by_cpu):>11,.0f} (median {statistics.median(by_cpu):,.0f})"
            f"{max(turn[1] for turn in run.turns):>9,.0f}{run.setting.bar:>7,.0f}   "
            f"{parts['physics']:>11.0f}{parts['rays']:>6.0f}{parts['rules']:>7.0f}{parts['reset']:>7.1f}"
            f"{run.held / run.decisions:>8.0%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
