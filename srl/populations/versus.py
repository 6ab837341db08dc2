"""Lanes in which one agent of each copy is ours, and the others are played by somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from srl.api.lanes import Arrival, Lanes, LaneSpec, TeamSpec
from srl.api.policy import Policy
from srl.api.spaces import array_spec
from srl.base.tree import Array, Tree, map_tree
from srl.populations.pool import LATEST

LEARNER = "learner"


class Opponents(Protocol):
    def draw(self) -> str:
        """Whom the next game is against."""

    def policy(self, name: str) -> Policy: ...

    def note(self, name: str, points: float) -> None:
        """A game ended: 1 if we won, 0.5 drawn, 0 lost."""


@dataclass
class _Game:
    seat: int = 0
    """Which agent is ours."""
    opponent: str = ""


def versus_spec(spec: LaneSpec) -> LaneSpec:
    """One agent, who sits on any of the seats; ValueError if these are not alike."""
    first = spec.teams[0]
    for team in spec.teams[1:]:
        if (team.observation, team.action) != (first.observation, first.action):
            raise ValueError(
                f"{spec.environment}: in self-play one policy plays on all seats, but agents {first.agents[0]!r} and "
                f"{team.agents[0]!r} do not have the same spaces"
            )
    if sum(len(team.agents) for team in spec.teams) < 2:
        raise ValueError(f"{spec.environment}: self-play needs at least two agents; there is {first.agents[0]!r} only")
    aligned = all(team.aligned for team in spec.teams)
    team = TeamSpec(LEARNER, (LEARNER,), first.observation, first.action, aligned)
    return LaneSpec(spec.environment, spec.num_copies, (team,))


class VersusLanes:
    """Before each game a seat and an opponent are drawn for its copy. Opponents decide here, and are not recorded.

    A game's points are by what was earned: ours against the mean of the others.
    """

    def __init__(self, inner: Lanes, opponents: Opponents) -> None:
        self._inner = inner
        self._opponents = opponents
        self.spec = versus_spec(inner.spec)
        spec = inner.spec
        self._num = spec.num_copies
        # Of each agent: its team, and its first lane there.
        self._seats = [
            (team, index * self._num) for team, one in enumerate(spec.teams) for index in range(len(one.agents))
        ]
        self._generator = np.random.default_rng(0)
        self._games = [_Game() for _ in range(self._num)]
        self._alive = np.zeros((self._num, len(self._seats)), bool)
        self._earned = np.zeros((self._num, len(self._seats)))
        self._states: dict[str, dict[tuple[int, int], Array]] = {}  # opponent -> (copy, seat) -> its memory
        self._arrivals: tuple[Arrival, ...] = ()

    def reset(self, seed: int) -> tuple[Arrival, ...]:
        self._generator = np.random.default_rng(seed)
        self._alive[:] = False
        return self._receive(self._inner.reset(seed))

    def step(self, actions: tuple[Tree, ...]) -> tuple[Arrival, ...]:
        chosen: list[Tree] = [
            map_tree(lambda leaf, team=team: leaf.empty(len(team.agents) * self._num), array_spec(team.action))
            for team in self._inner.spec.teams
        ]
        for copy, game in enumerate(self._games):
            self._put(chosen, copy, game.seat, actions[0], copy)
        self._let_others_decide(chosen)
        return self._receive(self._inner.step(tuple(chosen)))

    def _put(self, chosen: list[Tree], copy: int, seat: int, actions: Tree, row: int) -> None:
        team, start = self._seats[seat]

        def put(target: Array, values: Array) -> None:
            target[start + copy] = values[row]

        map_tree(put, chosen[team], actions)

    def _let_others_decide(self, chosen: list[Tree]) -> None:
        waiting: dict[str, list[tuple[int, int]]] = {}
        for seat, (team, start) in enumerate(self._seats):
            for copy in np.flatnonzero(self._arrivals[team].acting[start : start + self._num]).tolist():
                if seat != self._games[copy].seat:
                    waiting.setdefault(self._games[copy].opponent, []).append((copy, seat))
        for name, places in waiting.items():
            rows = [(self._seats[seat][0], self._seats[seat][1] + copy) for copy, seat in places]
            parts = [map_tree(lambda a, lane=lane: a[lane], self._arrivals[team].observation) for team, lane in rows]
            observation = map_tree(lambda *values: np.stack(values), *parts)
            first = np.array([self._arrivals[team].first[lane] for team, lane in rows])
            decision = self._opponents.policy(name).act(observation, self._remembered(name, places), first)
            if "state" in decision:
                memory = np.asarray(decision["state"])
                self._states.setdefault(name, {}).update(zip(places, memory, strict=True))
            for row, (copy, seat) in enumerate(places):
                self._put(chosen, copy, seat, decision["action"], row)

    def _remembered(self, name: str, places: list[tuple[int, int]]) -> Array | None:
        """Where nothing is remembered an episode begins, and the policy empties it itself."""
        memory = self._states.get(name)
        if not memory:
            return None
        empty = np.zeros_like(next(iter(memory.values())))
        return np.stack([memory.get(place, empty) for place in places])

    def _receive(self, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
        self._arrivals = arrivals
        first, ended, reward, failed = (
            self._by_seat(arrivals, name) for name in ("first", "ended", "reward", "failed")
        )
        begins = first.any(1) & (~self._alive.any(1) | failed.any(1))
        for copy in np.flatnonzero(begins).tolist():
            self._games[copy] = _Game(int(self._generator.integers(len(self._seats))), self._opponents.draw())
        self._earned[begins] = 0.0
        self._alive[begins] = False
        self._earned += reward
        self._alive = (self._alive | first.astype(bool)) & ~ended.astype(bool)
        points = np.full(self._num, np.nan, np.float32)
        for copy in np.flatnonzero(ended.any(1) & ~self._alive.any(1)).tolist():
            points[copy] = self._points(copy)
            self._opponents.note(self._games[copy].opponent, float(points[copy]))
        return (self._ours(arrivals, points),)

    def _by_seat(self, arrivals: tuple[Arrival, ...], name: str) -> Array:
        """[copies, seats]"""
        columns = []
        for team, start in self._seats:
            arrival = arrivals[team]
            if name == "ended":
                values = arrival.terminated | arrival.truncated
            elif name == "failed":
                values = np.zeros(len(arrival.acting), bool) if arrival.failed is None else arrival.failed
            else:
                values = getattr(arrival, name)
            columns.append(values[start : start + self._num])
        return np.stack(columns, axis=1)

    def _points(self, copy: int) -> float:
        earned, seat = self._earned[copy], self._games[copy].seat
        others = (earned.sum() - earned[seat]) / (len(earned) - 1)
        return float(np.sign(earned[seat] - others)) / 2.0 + 0.5

    def _ours(self, arrivals: tuple[Arrival, ...], points: Array) -> Arrival:
        """What arrived for the agents that are ours."""
        seats = np.array([game.seat for game in self._games])
        team_of, start_of = (np.array(column) for column in zip(*self._seats, strict=True))
        teams, lanes = team_of[seats], start_of[seats] + np.arange(self._num)

        def gather(values: list[Array]) -> Array:
            return np.stack([values[team][lane] for team, lane in zip(teams, lanes, strict=True)])

        def column(name: str) -> Array:
            return gather([getattr(arrival, name) for arrival in arrivals])

        failed: Array | None = None
        if any(arrival.failed is not None for arrival in arrivals):
            failed = np.any(self._by_seat(arrivals, "failed"), axis=1)
        told: Mapping[str, Array] = {}
        if not np.isnan(points).all():
            self_play = np.array([game.opponent == LATEST for game in self._games])
            told = {
                "points_against_self": np.where(self_play, points, np.nan),
                "points_against_others": np.where(self_play, np.nan, points),
            }
        return Arrival(
            map_tree(lambda *leaves: gather(list(leaves)), *(arrival.observation for arrival in arrivals)),
            column("reward"),
            column("terminated"),
            column("truncated"),
            column("acting"),
            column("first"),
            failed,
            tuple(report for arrival in arrivals for report in arrival.failures),
            told,
        )

    def close(self) -> None:
        self._inner.close()
