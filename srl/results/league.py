"""Who beats whom: a run's versions against each other and against players that were not trained, and their ratings."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import LONGEST_EPISODE, LanesConfig
from srl.api.policy import Policy
from srl.base.config import from_data
from srl.base.seeding import derive
from srl.populations.versus import VersusLanes, versus_spec
from srl.results.load import load
from srl.results.opponents import RANDOM, opponent
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.saved_policies import choose_checkpoint
from srl.workers.episode_player import Player

MAX_COPIES = 16
DRAWN = 0.5


@dataclass(frozen=True)
class League:
    players: tuple[str, ...]
    """Versions by their steps, from the oldest on, then the others."""
    points: tuple[tuple[float, ...], ...]
    """[i][j]: points per game of player i against player j: 1 won, 0.5 drawn, 0 lost. The diagonal is NaN."""
    games: int
    """Of each pair, at least; seats are taken in turn."""
    ratings: Mapping[str, float]
    """By openskill, 25 to begin with; empty where it is not installed."""
    cut: int = 0
    """How many games of all did not end within `max_steps`, and count as drawn."""


class _One:
    """Always the same opponent; keeps the points."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.points: list[float] = []

    def draw(self) -> str:
        return "other"

    def policy(self, name: str) -> Policy:
        return self._policy

    def note(self, name: str, points: float) -> None:
        self.points.append(points)


def league(
    path: str | Path,
    *,
    versions: int = 5,
    against: Sequence[str] = (RANDOM,),
    games: int = 100,
    greedy: bool = False,
    seed: int = 0,
    max_steps: int = LONGEST_EPISODE,
) -> League:
    """Play every pair of a run's kept versions (evenly spread, the newest among them) and other players: `random`, or
    functions as `path/file.py:function` that get one observation and a random generator and return an action.

    Versions draw their actions, as in training; with `greedy` all of them take their likeliest. Where the game itself
    draws nothing, two greedy players then play one game for each seat, again and again. A game of `max_steps` moves is
    cut off, and drawn.
    """
    if games < 1 or versions < 1:
        raise ValueError(f"games and versions must be at least 1, found {games} and {versions}")
    run = run_directory.find(path, ROOT)
    config = run.read_config()
    environment: LanesConfig = from_data(config["lanes"])
    if len(config["policies"]) != 1:
        raise ValueError(f"{run.name} has the policies {', '.join(config['policies'])}; a league is of versions of one")
    players = _players(run, versions, against, seed, _mask_key(environment))
    names = list(players)
    points = np.full((len(names), len(names)), np.nan)
    results: list[tuple[str, str, float]] = []
    num_cut = 0
    for i, one in enumerate(names):
        for j, other in enumerate(names[i + 1 :], i + 1):
            mine, cut = match(environment, players[one], players[other], games, greedy, derive(seed, i, j), max_steps)
            num_cut += cut
            points[i, j], points[j, i] = float(np.mean(mine)), 1.0 - float(np.mean(mine))
            results += [(one, other, result) for result in mine]
    return League(tuple(names), tuple(map(tuple, points.tolist())), games, ratings(names, results), num_cut)


def _mask_key(environment: LanesConfig) -> str:
    lanes = environment.build(1)
    lanes.close()
    return lanes.spec.teams[0].mask_key


def _players(
    run: run_directory.RunDirectory, versions: int, against: Sequence[str], seed: int, mask_key: str
) -> dict[str, Policy]:
    kept = checkpoints.checkpoints(run.checkpoints)
    if not kept:
        choose_checkpoint(run, "latest")  # says that there is none
    chosen = sorted({round(i) for i in np.linspace(len(kept) - 1, 0, min(versions, len(kept)))})
    players: dict[str, Policy] = {}
    trained: Any = None
    for number in chosen:
        trained = load(run.path, checkpoint=kept[number], seed=seed)
        players[f"{checkpoints.step_of(kept[number]):,}"] = trained.policy
    functions = [name.rpartition(":")[2] for name in against]
    for name, function in zip(against, functions, strict=True):
        called = function if functions.count(function) == 1 else name
        if called in players:
            raise ValueError(f"{name} is named twice among the opponents")
        players[called] = opponent(name, trained.action, seed, mask_key)
    return players


def match(
    environment: LanesConfig,
    one: Policy,
    other: Policy,
    games: int,
    greedy: bool,
    seed: int,
    max_steps: int = LONGEST_EPISODE,
) -> tuple[list[float], int]:
    """Points of `one` in so many games or a few more, on each seat in turn, and how many were cut off and drawn; with
    `greedy` nobody draws an action."""
    copies = min(MAX_COPIES, games)
    inner = environment.build(copies)
    try:
        versus_spec(inner.spec)
        opponents = _One(other)
        lanes = VersusLanes(inner, opponents, seats_in_turn=True, greedy=greedy)
        player = Player(lanes, {"one": one}, {"*": "one"}, greedy, max_steps=max_steps)
        player.play(seed, games)
        cut = player.results()["one"].cut
        return opponents.points + [DRAWN] * cut, cut
    finally:
        inner.close()


def ratings(names: Sequence[str], results: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """From games of two players and the points of the first: 1 won, 0.5 drawn, 0 lost; empty without openskill.

    Games are taken in a random order, so that no player is rated on the last of another's.
    """
    if importlib.util.find_spec("openskill") is None:
        return {}
    from openskill.models import PlackettLuce

    model = PlackettLuce()
    rated = {name: model.rating(name=name) for name in names}
    for index in np.random.default_rng(0).permutation(len(results)):
        one, other, points = results[index]
        ranks = [0, 0] if points == DRAWN else [0, 1] if points > DRAWN else [1, 0]
        (rated[one],), (rated[other],) = model.rate([[rated[one]], [rated[other]]], ranks=ranks)
    return {name: float(rating.mu) for name, rating in rated.items()}
