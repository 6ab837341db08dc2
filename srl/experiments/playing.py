"""Playing episodes with fixed policies, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.api.lanes import Arrival, LanesConfig
from srl.api.policy import Policy
from srl.api.spaces import array_spec
from srl.base.tree import map_tree
from srl.experiments.standard import role_patterns
from srl.workers.roles import assign_teams

MAX_COPIES = 16


def play(
    environment: LanesConfig,
    policies: Mapping[str, Policy],
    roles: tuple[str, ...],
    episodes: int,
    greedy: bool,
    seed: int,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns and lengths of `episodes` episodes of every lane's agent, the same number from each copy.

    Taking the first episodes to end would favour short ones; so each copy plays its share to the end.
    """
    copies = min(MAX_COPIES, episodes)
    lanes = environment.build(copies)
    try:
        spec = lanes.spec
        patterns = role_patterns(spec, roles)
        teams = assign_teams(spec, tuple(patterns))
        policy_of = {
            team: policies[name] for name, members in zip(patterns.values(), teams, strict=True) for team in members
        }
        arrivals = lanes.reset(seed)
        books = [_Book(spec.num_lanes(team), -(-episodes // copies)) for team in range(len(spec.teams))]
        while not all(book.full() for book in books):
            actions = tuple(
                _decide(policy_of[team], arrival, spec.teams[team], greedy) for team, arrival in enumerate(arrivals)
            )
            acted = [arrival.acting.copy() for arrival in arrivals]
            arrivals = lanes.step(actions)
            for book, arrival, who in zip(books, arrivals, acted, strict=True):
                book.add(arrival, who)
        returns = [value for book in books for value in book.returns]
        lengths = [value for book in books for value in book.lengths]
        return tuple(returns), tuple(lengths)
    finally:
        lanes.close()


def _decide(policy: Policy, arrival: Arrival, team: Any, greedy: bool) -> Any:
    """Actions [L, ...]; lanes that do not act get zeros."""
    acting = np.flatnonzero(arrival.acting)
    actions = map_tree(lambda leaf: leaf.empty(len(arrival.acting)), array_spec(team.action))
    if len(acting) == 0:
        return actions
    observation = map_tree(lambda array: np.ascontiguousarray(array[acting]), arrival.observation)
    chosen = policy.act(observation, None, arrival.first[acting], greedy=greedy)["action"]

    def place(target: Any, values: Any) -> None:
        target[acting] = values

    map_tree(place, actions, chosen)
    return actions


class _Book:
    """Counts each lane's episodes up to its share."""

    def __init__(self, num_lanes: int, share: int) -> None:
        self._return = np.zeros(num_lanes)
        self._length = np.zeros(num_lanes)
        self._played = np.zeros(num_lanes, int)
        self._share = share
        self.returns: list[float] = []
        self.lengths: list[float] = []

    def add(self, arrival: Arrival, acted: Any) -> None:
        self._return += arrival.reward
        self._length += acted
        for lane in np.flatnonzero(arrival.terminated | arrival.truncated):
            if self._played[lane] < self._share:
                total = arrival.facts["return"][lane] if "return" in arrival.facts else self._return[lane]
                length = arrival.facts["length"][lane] if "length" in arrival.facts else self._length[lane]
                self.returns.append(float(total))
                self.lengths.append(float(length))
            self._played[lane] += 1
            self._return[lane] = self._length[lane] = 0.0

    def full(self) -> bool:
        return bool((self._played >= self._share).all())
