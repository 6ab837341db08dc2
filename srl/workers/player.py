"""Whole episodes with fixed policies: what evaluation, `srl eval` and `srl record` have in common."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from srl.api.lanes import Arrival, Lanes, TeamSpec
from srl.api.policy import Policy
from srl.api.spaces import array_spec
from srl.base.meter import Meter, Phase
from srl.base.tree import Array, Tree, map_tree
from srl.workers.host import one_thread
from srl.workers.roles import assign_teams


class Player:
    """Steps lanes of its own. Policies only decide here: nothing is recorded, no statistics are taken in.

    How many episodes a lane plays is settled before the first: taking the first ones to end would favour short ones.
    """

    def __init__(
        self,
        lanes: Lanes,
        policies: Mapping[str, Policy],
        patterns: Mapping[str, str],
        greedy: bool = True,
        meter: Meter | None = None,
    ) -> None:
        """`patterns` says which agents play by which of the policies: pattern of their names -> policy."""
        self.lanes = lanes
        self._greedy = greedy
        self._meter = meter or Meter.alone()
        teams = assign_teams(lanes.spec, tuple(patterns))
        self._names = {team: name for name, members in zip(patterns.values(), teams, strict=True) for team in members}
        self._policies = policies
        self._arrivals: tuple[Arrival, ...] = ()
        self._states: list[Tree | None] = []
        self._books: list[_Book] = []

    def begin(self, seed: int, episodes: int) -> None:
        """Start every copy anew; the copies share the `episodes` as evenly as can be."""
        spec = self.lanes.spec
        shares = episodes // spec.num_copies + (np.arange(spec.num_copies) < episodes % spec.num_copies)
        self._books = [_Book(np.tile(shares, len(team.agents))) for team in spec.teams]
        self._arrivals = self.lanes.reset(seed)
        self._states = [None] * len(self._arrivals)

    def play(self, seed: int, episodes: int) -> None:
        """All of them, in a process that is the user's."""
        self.begin(seed, episodes)
        with one_thread():
            while not self.done:
                self.step()

    def step(self) -> None:
        """One decision for every lane that acts."""
        self._meter.enter(Phase.INFERENCE)
        actions = tuple(self._decide(team, arrival) for team, arrival in enumerate(self._arrivals))
        acted = [arrival.acting.copy() for arrival in self._arrivals]
        self._meter.enter(Phase.ENV)
        self._arrivals = self.lanes.step(actions)
        self._meter.enter(Phase.OTHER)
        for book, arrival, who in zip(self._books, self._arrivals, acted, strict=True):
            book.add(arrival, who)

    @property
    def done(self) -> bool:
        return all(book.full for book in self._books)

    def results(self) -> dict[str, tuple[list[float], list[float]]]:
        """Policy -> returns and lengths of the episodes its agents have played so far."""
        found: dict[str, tuple[list[float], list[float]]] = {}
        for team, book in enumerate(self._books):
            returns, lengths = found.setdefault(self._names[team], ([], []))
            returns += book.returns
            lengths += book.lengths
        return found

    def _decide(self, team: int, arrival: Arrival) -> Tree:
        """Actions [L, ...]; lanes that do not act get zeros."""
        spec: TeamSpec = self.lanes.spec.teams[team]
        num_lanes = len(arrival.acting)
        acting = np.flatnonzero(arrival.acting)
        actions: Tree = map_tree(lambda leaf: leaf.empty(num_lanes), array_spec(spec.action))
        if len(acting) == 0:
            return actions
        observation = map_tree(lambda array: np.ascontiguousarray(array[acting]), arrival.observation)
        memory = self._states[team]
        state = None if memory is None else map_tree(lambda array: array[acting], memory)
        policy = self._policies[self._names[team]]
        decision = policy.act(observation, state, arrival.first[acting], greedy=self._greedy)
        if "state" in decision:  # a recurrent policy's memory, kept by lane: not every lane acts at every step
            if memory is None:
                memory = self._states[team] = map_tree(
                    lambda array: np.zeros((num_lanes, *array.shape[1:]), array.dtype), decision["state"]
                )
            _place(memory, acting, decision["state"])
        _place(actions, acting, decision["action"])
        return actions


def _place(target: Tree, lanes: Array, values: Tree) -> None:
    def put(array: Array, rows: Array) -> None:
        array[lanes] = rows

    map_tree(put, target, values)


class _Book:
    """Counts each lane's episodes up to its share [L]."""

    def __init__(self, shares: Array) -> None:
        self._return = np.zeros(len(shares))
        self._length = np.zeros(len(shares))
        self._played = np.zeros(len(shares), int)
        self._shares = shares
        self.returns: list[float] = []
        self.lengths: list[float] = []

    def add(self, arrival: Arrival, acted: Array) -> None:
        self._return += arrival.reward
        self._length += acted
        for lane in np.flatnonzero(arrival.terminated | arrival.truncated):
            total = float(arrival.facts["return"][lane] if "return" in arrival.facts else self._return[lane])
            length = float(arrival.facts["length"][lane] if "length" in arrival.facts else self._length[lane])
            self._return[lane] = self._length[lane] = 0.0
            if np.isnan(total):
                continue  # no whole episode: a lost life that counts as an end
            if self._played[lane] < self._shares[lane]:
                self.returns.append(total)
                self.lengths.append(length)
            self._played[lane] += 1
        if arrival.failed is not None:
            self._return[arrival.failed] = self._length[arrival.failed] = 0.0

    @property
    def full(self) -> bool:
        return bool((self._played >= self._shares).all())
