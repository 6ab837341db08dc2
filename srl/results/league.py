"""League: games between a run's versions and other players, and their ratings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.lanes import LONGEST_EPISODE, LanesConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Space
from srl.base.config import TrustCode
from srl.base.object_names import load_object
from srl.base.seeding import derive, generator
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.adapters.masks import MASK_KEY, allowed_choices
from srl.environments.random_actions import random_actions
from srl.populations.versus import VersusLanes, versus_spec
from srl.results.load import load
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.saved_policies import choose_checkpoint
from srl.workers.episode_player import EpisodePlayer

MAX_COPIES = 16
DRAWN = 0.5
RANDOM = "random"


@dataclass(frozen=True)
class League:
    players: tuple[str, ...]  # versions by their number of steps, oldest first, then the other players
    points: tuple[tuple[float, ...], ...]  # [i][j]: mean points of i against j (win 1, draw 0.5); diagonal NaN
    games: int  # minimum number of games per pair; players alternate seats
    ratings: Mapping[str, float]  # openskill ratings, which start at 25; empty if it is not installed
    truncated: int = 0  # number of games that did not end within `max_steps` and count as drawn


class _FixedOpponent:
    """The same opponent for all games; collects the points."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.points: list[float] = []

    def draw(self) -> str:
        return "other"

    def policy(self, name: str) -> Policy:
        return self._policy

    def add_result(self, name: str, points: float) -> None:
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
    simulations: int | None = None,
    trust_code: TrustCode = False,
) -> League:
    """Play games between all pairs of a run's kept versions and other players.

    Up to `versions` versions play, spread evenly over the run and including the newest. Other players are `random` or a
    function `path/file.py:function`, which receives an observation and a random generator and returns an action.

    Versions sample their actions, as in training; with `greedy`, they take the most likely ones. In a deterministic
    game, two greedy players repeat the same game for each seating. A game that does not end within `max_steps` moves
    counts as drawn. `simulations` and `trust_code` are as for :func:`srl.load`.
    """
    if games < 1 or versions < 1:
        raise ValueError(f"games and versions must be at least 1, found {games} and {versions}")
    run = run_directory.find(path, ROOT)
    config = run.load_config(trust_code)
    environment: LanesConfig = config["lanes"].with_separate_seats()
    if len(config["policies"]) != 1:
        raise ValueError(
            f"{run.name} has the policies {', '.join(config['policies'])}; a league rates versions of a single policy. "
            f"`srl eval {run.name}` lets these play against each other and prints the return of each"
        )
    players = _players(run, versions, against, seed, _mask_key(environment), simulations, trust_code)
    names = list(players)
    points = np.full((len(names), len(names)), np.nan)
    results: list[tuple[str, str, float]] = []
    num_truncated = 0
    for i, one in enumerate(names):
        for j, other in enumerate(names[i + 1 :], i + 1):
            mine, truncated = match(
                environment, players[one], players[other], games, greedy, derive(seed, i, j), max_steps
            )
            num_truncated += truncated
            points[i, j], points[j, i] = float(np.mean(mine)), 1.0 - float(np.mean(mine))
            results += [(one, other, result) for result in mine]
    return League(tuple(names), tuple(map(tuple, points.tolist())), games, ratings(names, results), num_truncated)


def _mask_key(environment: LanesConfig) -> str:
    lanes = environment.build(1)
    lanes.close()
    return lanes.spec.teams[0].mask_key


def _players(
    run: run_directory.RunDirectory,
    versions: int,
    against: Sequence[str],
    seed: int,
    mask_key: str,
    simulations: int | None,
    trust_code: TrustCode,
) -> dict[str, Policy]:
    kept = checkpoints.checkpoints(run.checkpoints)
    if not kept:
        choose_checkpoint(run, "latest")  # raises the error for a run without checkpoints
    chosen = sorted({round(i) for i in np.linspace(len(kept) - 1, 0, min(versions, len(kept)))})
    players: dict[str, Policy] = {}
    trained: Any = None
    for number in chosen:
        checkpoint = kept[number]
        trained = load(run.path, checkpoint=checkpoint, seed=seed, simulations=simulations, trust_code=trust_code)
        players[f"{checkpoints.step_of(kept[number]):,}"] = trained.policy
    functions = [name.rpartition(":")[2] for name in against]
    for name, function in zip(against, functions, strict=True):
        label = function if functions.count(function) == 1 else name
        if label in players:
            raise ValueError(f"{name} is given twice as an opponent")
        players[label] = opponent(name, trained.action, seed, mask_key)
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
    """Play at least `games` games on alternating seats. Returns the points of `one` and the number of truncated games.

    With `greedy`, both players take their most likely actions.
    """
    inner = environment.build(min(MAX_COPIES, games))
    try:
        versus_spec(inner.spec)
        opponents = _FixedOpponent(other)
        lanes = VersusLanes(inner, opponents, seats_in_turn=True, greedy=greedy)
        player = EpisodePlayer(lanes, {"one": one}, {"*": "one"}, greedy, max_steps=max_steps)
        player.play(seed, games)
        truncated = player.results()["one"].truncated
        return opponents.points + [DRAWN] * truncated, truncated
    finally:
        inner.close()


def ratings(names: Sequence[str], results: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """Return ratings computed from games (two players, points of the first); empty without openskill.

    Games are rated in random order, so that games against the last opponent do not dominate.
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


class _UntrainedPolicy(Policy):
    version = 0

    def load(self, parameters: Array, version: int) -> None:
        pass


class RandomPolicy(_UntrainedPolicy):
    """A policy that samples uniformly among the allowed actions."""

    def __init__(self, action: Space, seed: int, mask_key: str = MASK_KEY) -> None:
        self._action, self._mask_key = action, mask_key
        self._generator = generator(seed, "random opponent")

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        allowed = allowed_choices(observation, len(first), self._mask_key)
        return {"action": random_actions(self._action, len(first), self._generator, allowed)}


class ScriptedPolicy(_UntrainedPolicy):
    """A policy that calls a function with an observation and a random generator to get an action."""

    def __init__(self, function: Callable[[Any, np.random.Generator], Any], seed: int) -> None:
        self._function = function
        self._generator = generator(seed, "scripted opponent")

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        rows = [map_tree(lambda array, row=row: array[row], observation) for row in range(len(first))]
        actions = [self._function(row, self._generator) for row in rows]
        if isinstance(actions[0], Mapping):
            return {"action": {key: np.stack([action[key] for action in actions]) for key, _ in leaves(actions[0])}}
        return {"action": np.stack([np.asarray(action) for action in actions])}


def opponent(name: str, action: Space, seed: int, mask_key: str = MASK_KEY) -> Policy:
    """Return the opponent `random`, or a scripted one from `package.module:function` or `path/file.py:function`."""
    if name == RANDOM:
        return RandomPolicy(action, seed, mask_key)
    if ":" not in name:
        raise ValueError(f"no opponent {name!r}; use `random` or a function as path/file.py:function")
    return ScriptedPolicy(load_object(name), seed)
