"""Whole episodes with fixed policies: what evaluation, `srl eval` and `srl record` have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from srl.api.lanes import Arrival, Lanes, TeamSpec
from srl.api.policy import Policy
from srl.api.spaces import array_spec
from srl.base.meter import Meter, Phase
from srl.base.seeding import derive
from srl.base.tree import Array, Tree, map_tree
from srl.workers.process import one_thread
from srl.workers.roles import assign_teams


@dataclass
class Played:
    """Episodes of the agents of one policy, or of one team."""

    returns: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    cut: int = 0
    """Those of them that were cut off at the limit of steps; their returns are what was earned until then."""

    def add(self, other: Played) -> None:
        self.returns += other.returns
        self.lengths += other.lengths
        self.cut += other.cut


class Player:
    """Steps lanes of its own. Policies only decide here: nothing is recorded, no statistics are taken in.

    How many episodes a lane plays is settled before the first: taking the first ones to end would favor short ones.

    An episode of `max_steps` steps is cut off and counts as it stands. Its lane cannot begin another by itself, so it
    waits: until its episode ends after all, or until all lanes that have episodes left wait, when every copy starts
    anew.
    """

    def __init__(
        self,
        lanes: Lanes,
        policies: Mapping[str, Policy],
        patterns: Mapping[str, str],
        greedy: bool = True,
        meter: Meter | None = None,
        max_steps: int | None = None,
    ) -> None:
        """`patterns` says which agents play by which of the policies: pattern of their names -> policy. Without
        `max_steps` episodes may last for ever."""
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps, of an episode, must be at least 1, found {max_steps}")
        self.lanes = lanes
        self._max_steps = math.inf if max_steps is None else max_steps
        self._greedy = greedy
        self._meter = meter or Meter.unshared()
        teams = assign_teams(lanes.spec, tuple(patterns))
        self._names = {team: name for name, members in zip(patterns.values(), teams, strict=True) for team in members}
        self._policies = policies
        self._arrivals: tuple[Arrival, ...] = ()
        self._states: list[Tree | None] = []
        self._books: list[_Book] = []
        self._seed = self._round = 0

    def begin(self, seed: int, episodes: int) -> None:
        """Start every copy anew; the copies share the `episodes` as evenly as can be."""
        spec = self.lanes.spec
        shares = episodes // spec.num_copies + (np.arange(spec.num_copies) < episodes % spec.num_copies)
        self._books = [_Book(np.tile(shares, len(team.agents)), self._max_steps) for team in spec.teams]
        self._seed, self._round = seed, 0
        self._reset(seed)

    def _reset(self, seed: int) -> None:
        self._arrivals = self.lanes.reset(seed)
        self._states = [None] * len(self._arrivals)
        for book in self._books:
            book.start()

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
        if all(book.waits for book in self._books) and not self.done:
            self._round += 1
            self._reset(derive(self._seed, "round", self._round))

    @property
    def done(self) -> bool:
        return all(book.full for book in self._books)

    def results(self) -> dict[str, Played]:
        """Policy -> the episodes its agents have played so far."""
        found: dict[str, Played] = {}
        for team, book in enumerate(self._books):
            found.setdefault(self._names[team], Played()).add(book.done)
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

    def __init__(self, shares: Array, max_steps: float) -> None:
        self._max_steps = max_steps
        self._shares = shares
        self._played = np.zeros(len(shares), int)
        self.done = Played()
        self.start()

    def start(self) -> None:
        """Every copy was started anew; what was under way is forgotten."""
        count = len(self._shares)
        self._return, self._length = np.zeros((2, count))
        self._steps = np.zeros(count, int)  # since the episode began or ended, also those at which others acted
        self._ended, self._waits = np.zeros((2, count), bool)

    def add(self, arrival: Arrival, acted: Array) -> None:
        self._return += arrival.reward
        self._length += acted
        self._steps += 1
        for lane in np.flatnonzero(arrival.terminated | arrival.truncated):
            total = float(arrival.facts["return"][lane] if "return" in arrival.facts else self._return[lane])
            length = float(arrival.facts["length"][lane] if "length" in arrival.facts else self._length[lane])
            if np.isnan(total):
                continue  # no whole episode: a lost life that counts as an end
            if not self._waits[lane]:
                self._count(lane, total, length)
            self._return[lane] = self._length[lane] = self._steps[lane] = 0
            self._ended[lane] = True
        begins = self._ended & arrival.first
        if arrival.failed is not None:
            begins |= arrival.failed
            self._return[arrival.failed] = self._length[arrival.failed] = 0.0
        self._steps[begins] = 0
        self._ended[begins] = self._waits[begins] = False
        for lane in np.flatnonzero((self._steps >= self._max_steps) & ~self._waits):
            if not self._ended[lane]:  # else it is dead, and the others play on without end
                self.done.cut += self._count(lane, float(self._return[lane]), float(self._length[lane]))
            self._waits[lane] = True

    def _count(self, lane: np.intp, total: float, length: float) -> bool:
        """Whether it still belongs to the lane's share."""
        counts = bool(self._played[lane] < self._shares[lane])
        if counts:
            self.done.returns.append(total)
            self.done.lengths.append(length)
        self._played[lane] += 1
        return counts

    @property
    def full(self) -> bool:
        return bool((self._played >= self._shares).all())

    @property
    def waits(self) -> bool:
        """Nothing more comes of these lanes, until they are started anew."""
        return bool((self._waits | (self._played >= self._shares)).all())
