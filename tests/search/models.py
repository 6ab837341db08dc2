"""Random models for tests of searches: a state is a number, and everything else is looked up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from search.reference import Node, Outcome, SlowSearch

from srl.search import Evaluation, SearchResult, Step

STATES = 200


@dataclass
class RandomModel:
    """`discounts` are drawn from for each action: negative ones pass the turn to the other player, 0 ends."""

    num_actions: int
    discounts: tuple[float, ...] = (0.95,)
    masks: bool = False
    num_outcomes: int = 0
    seed: int = 0
    value_scale: float = 1.0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.width = width = max(self.num_actions, self.num_outcomes)
        self.next = rng.integers(STATES, size=(STATES, width))
        self.reward = (self.value_scale * rng.normal(0, 0.4, (STATES, width))).astype(np.float32)
        self.discount = rng.choice(self.discounts, (STATES, width)).astype(np.float32)
        self.value = (self.value_scale * rng.normal(0, 1, STATES)).astype(np.float32)
        self.logits = rng.normal(0, 1.5, (STATES, width)).astype(np.float32)
        self.legal = rng.random((STATES, width)) < (0.5 if self.masks else 1.0)
        self.legal[np.arange(STATES), rng.integers(self.num_actions, size=STATES)] = True
        self.legal[:, self.num_actions :] = False
        self.chance = rng.random(STATES) < (0.5 if self.num_outcomes else 0.0)
        self.legal[self.chance] = np.arange(width) < self.num_outcomes
        self.roots = np.flatnonzero(~self.chance)

    def step(self, state: Any, action: Any) -> Step:
        after = self.next[state, action]
        return Step(
            after,
            self.reward[state, action],
            self.discount[state, action],
            self.value[after],
            self.logits[after],
            self.legal[after],
            self.chance[after] if self.num_outcomes else None,
        )

    def one(self, state: int, action: int) -> Outcome:
        after = int(self.next[state, action])
        numbers = (self.reward[state, action], self.discount[state, action], self.value[after])
        reward, discount, value = map(float, numbers)
        return Outcome(
            after,
            reward,
            discount,
            value,
            self.logits[after].tolist(),
            self.legal[after].tolist(),
            bool(self.chance[after]),
        )

    def root(self, states: Any) -> tuple[Evaluation, Any]:
        """Return the roots and their masks."""
        legal = self.legal[states][:, : self.num_actions]
        return Evaluation(states, self.value[states], self.logits[states][:, : self.num_actions]), legal

    def slow_root(self, state: int) -> Node:
        legal = np.flatnonzero(self.legal[state][: self.num_actions])
        return Node(state, float(self.value[state]), {int(a): float(self.logits[state, a]) for a in legal})


def slow_visits(model: RandomModel, search: SlowSearch, states: Any) -> tuple[Any, Any]:
    """Return the visits [L, A] and root values [L] of slow searches."""
    search.num_actions = model.num_actions
    visits, values = np.zeros((len(states), model.num_actions), int), np.zeros(len(states))
    for lane, state in enumerate(states.tolist()):
        root = search.run(model.slow_root(state), model.one)
        visits[lane] = [root.visits(a) for a in range(model.num_actions)]
        gains = [gain for found in root.returns.values() for gain in found]
        values[lane] = (root.value + sum(gains)) / (1 + len(gains))
    return visits, values


def same(one: SearchResult, other: SearchResult) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
