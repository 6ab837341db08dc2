"""Lanes in which the learner plays one agent in each copy, and opponents play the others."""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

import numpy as np

from srl.api.control import OptionValue
from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep
from srl.api.policy import Policy
from srl.api.spaces import array_spec
from srl.base.tree import Array, Tree, map_tree
from srl.populations.opponent_pool import LATEST

LEARNER = "learner"


class Opponents(Protocol):
    """Source of opponents for :class:`VersusLanes`."""

    def draw(self) -> str:
        """Draw an opponent for the next game and return its name."""

    def policy(self, name: str) -> Policy: ...

    def add_result(self, name: str, points: float) -> None:
        """Record a game against an opponent: 1 point if the learner won, 0.5 if drawn, 0 if lost."""


def versus_spec(spec: LaneSpec) -> LaneSpec:
    """Return the spec for one agent that can play in any seat. Raises ValueError if the seats' spaces differ."""
    first = spec.teams[0]
    for team in spec.teams[1:]:
        if (team.observation, team.action) != (first.observation, first.action):
            raise ValueError(
                f"{spec.environment}: in self-play one policy plays all seats, but the spaces of agents "
                f"{first.agents[0]!r} and {team.agents[0]!r} differ"
            )
    if sum(len(team.agents) for team in spec.teams) < 2:
        raise ValueError(f"{spec.environment}: self-play needs at least two agents, found only {first.agents[0]!r}")
    aligned = all(team.aligned for team in spec.teams)
    team = TeamSpec(LEARNER, (LEARNER,), first.observation, first.action, aligned, first.mask_key)
    return LaneSpec(spec.environment, spec.num_copies, (team,))


class VersusLanes(Lanes):
    """Single-agent lanes: the learner plays in one seat of each copy, against opponents in the others. Before each
    game, a seat and an opponent are drawn for its copy; with `seats_in_turn`, successive games use successive seats.
    Opponents act here, by sampling unless `greedy`, and are not recorded. A game's points compare the learner's return
    with the mean of the others. All seats have the same spaces, so the lanes of all teams are concatenated into one
    row, and a seat's lane is an index into it.
    """

    def __init__(
        self, inner: Lanes, opponents: Opponents, *, seats_in_turn: bool = False, greedy: bool = False
    ) -> None:
        self._inner = inner
        self._opponents = opponents
        self.spec = versus_spec(inner.spec)
        self._num = inner.spec.num_copies
        sizes = [len(team.agents) * self._num for team in inner.spec.teams]
        self._ends = np.cumsum(sizes).tolist()  # end of each team's lanes
        self._num_seats = int(self._ends[-1]) // self._num
        self._lanes = np.arange(self._ends[-1]).reshape(self._num_seats, self._num).T  # [copies, seats]
        self._generator = np.random.default_rng(0)
        self._seats_in_turn, self._greedy = seats_in_turn, greedy
        self._num_begun = 0
        self._seat = np.zeros(self._num, np.int64)  # [copies]: the learner's seat
        self._opponent = [""] * self._num
        self._alive = np.zeros((self._num, self._num_seats), bool)
        self._earned = np.zeros((self._num, self._num_seats))
        self._memories: dict[str, Array] = {}  # opponent -> [lanes, ...], cleared by the policy as an episode begins
        self._seen: Tree = {}  # [lanes, ...], like the next two
        self._first, self._acting = np.zeros((2, self._ends[-1]), bool)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._generator = np.random.default_rng(seed)
        self._alive[:] = False
        return self._receive(self._inner.reset(seed))

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        chosen = map_tree(lambda leaf: leaf.empty(self._ends[-1]), array_spec(self.spec.teams[0].action))
        _put(chosen, self._learner_lanes, actions[0])
        self._add_opponents_actions(chosen)
        teams = [slice(begin, end) for begin, end in pairwise([0, *self._ends])]
        parts = tuple(map_tree(lambda leaf, team=team: leaf[team], chosen) for team in teams)
        return self._receive(self._inner.step(parts))

    @property
    def _learner_lanes(self) -> Array:
        """The learner's lane in each copy, [copies]."""
        lanes: Array = self._lanes[np.arange(self._num), self._seat]
        return lanes

    def _add_opponents_actions(self, chosen: Tree) -> None:
        waits = self._acting[self._lanes]  # [copies, seats]
        waits[np.arange(self._num), self._seat] = False
        copies, seats = np.nonzero(waits)
        waiting: dict[str, list[int]] = {}
        for copy, lane in zip(copies.tolist(), self._lanes[copies, seats].tolist(), strict=True):
            waiting.setdefault(self._opponent[copy], []).append(lane)
        for name, lanes in waiting.items():
            memory = self._memories.get(name)
            decision = self._opponents.policy(name).act(
                map_tree(lambda leaf, lanes=lanes: leaf[lanes], self._seen),
                None if memory is None else memory[lanes],
                self._first[lanes],
                greedy=self._greedy,
            )
            if "state" in decision:
                state = np.asarray(decision["state"])
                if memory is None:
                    memory = self._memories[name] = np.zeros((self._ends[-1], *state.shape[1:]), state.dtype)
                memory[lanes] = state
            _put(chosen, lanes, decision["action"])

    def _receive(self, time_steps: tuple[TimeStep, ...]) -> tuple[TimeStep, ...]:
        def joined(name: str) -> Array:
            return np.concatenate([getattr(time_step, name) for time_step in time_steps])

        self._seen = map_tree(
            lambda *leaves: np.concatenate(leaves), *(time_step.observation for time_step in time_steps)
        )
        self._first, self._acting = joined("first"), joined("acting")
        reward, terminated, truncated = joined("reward"), joined("terminated"), joined("truncated")
        broken = [np.zeros(len(one.acting), bool) if one.failed is None else one.failed for one in time_steps]
        failed: Array = np.any(np.concatenate(broken)[self._lanes], axis=1)  # [copies]
        first, ended = self._first[self._lanes], (terminated | truncated)[self._lanes]  # [copies, seats]
        begins = first.any(1) & (~self._alive.any(1) | failed)
        for copy in np.flatnonzero(begins).tolist():
            self._seat[copy] = self._next_seat()
            self._opponent[copy] = self._opponents.draw()
        self._earned[begins] = 0.0
        self._alive[begins] = False
        self._earned += reward[self._lanes]
        self._alive = (self._alive | first) & ~ended
        own = self._learner_lanes
        time_step = TimeStep(
            map_tree(lambda leaf: leaf[own], self._seen),
            reward[own],
            terminated[own],
            truncated[own],
            self._acting[own],
            self._first[own],
            failed if failed.any() else None,
            tuple(report for one in time_steps for report in one.failures),
        )
        over = np.flatnonzero(ended.any(1) & ~self._alive.any(1))
        if len(over):
            time_step.facts = self._count_points(over)
        return (time_step,)

    def _next_seat(self) -> int:
        self._num_begun += 1
        if self._seats_in_turn:
            return self._num_begun % self._num_seats
        return int(self._generator.integers(self._num_seats))

    def _count_points(self, over: Array) -> dict[str, Array]:
        """Report the points of finished games to the opponents and return them, [copies]; NaN elsewhere."""
        against_self, against_others = np.full((2, self._num), np.nan, np.float32)
        for copy in over.tolist():
            opponent = self._opponent[copy]
            points = game_points(self._earned[copy], int(self._seat[copy]))
            (against_self if opponent == LATEST else against_others)[copy] = points
            self._opponents.add_result(opponent, points)
        return {"points_against_self": against_self, "points_against_others": against_others}

    def set_option(self, name: str, value: OptionValue) -> None:
        self._inner.set_option(name, value)

    def close(self) -> None:
        self._inner.close()


def game_points(returns: Array, seat: int) -> float:
    """Return 1 if the seat's return is above the mean of the others, 0.5 if equal, 0 if below."""
    others = (returns.sum() - returns[seat]) / (len(returns) - 1)
    return float(np.sign(returns[seat] - others)) / 2.0 + 0.5


def _put(target: Tree, lanes: Array | list[int], values: Tree) -> None:
    map_tree(lambda row, part: row.__setitem__(lanes, part), target, values)
