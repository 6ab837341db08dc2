"""Playing whole episodes with fixed policies, for evaluation, `srl eval` and `srl record`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from srl.api.block import IDENTITY
from srl.api.lanes import Lanes, TeamSpec, TimeStep
from srl.api.policy import Policy
from srl.api.spaces import array_spec
from srl.base.meter import Meter, Phase
from srl.base.seeding import derive
from srl.base.tree import Array, Tree, map_tree
from srl.workers.process import one_thread
from srl.workers.role import assign_teams


@dataclass
class EpisodeResults:
    """Results of the episodes played by one policy's agents, or by one team."""

    returns: list[float] = field(default_factory=list)
    lengths: list[float] = field(default_factory=list)
    truncated: int = 0  # episodes truncated at the step limit; they count with their return so far
    facts: dict[str, list[float]] = field(default_factory=dict)
    """Other statistics of the episodes, without NaN (`facts` of :class:`srl.api.lanes.TimeStep`)."""

    def add(self, other: EpisodeResults) -> None:
        self.returns += other.returns
        self.lengths += other.lengths
        self.truncated += other.truncated
        for name, values in other.facts.items():
            self.facts.setdefault(name, []).extend(values)


class EpisodePlayer:
    """Player of whole episodes. Policies only choose actions: nothing is recorded, and no statistics are updated.

    Each lane's number of episodes is fixed at the start, because taking the first episodes to end would favor short
    ones. An episode is truncated after `max_steps` steps and counts with its return so far. Its lane cannot start
    another episode on its own: it waits until the episode ends after all, or until all lanes with episodes left are
    waiting and every copy is reset.
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
        """`patterns` maps agent name patterns to policies. Without `max_steps`, episodes have no limit."""
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, found {max_steps}")
        self.lanes = lanes
        self._max_steps = math.inf if max_steps is None else max_steps
        self._greedy = greedy
        self._meter = meter or Meter.unshared()
        teams = assign_teams(lanes.spec, tuple(patterns))
        self._names = {team: name for name, members in zip(patterns.values(), teams, strict=True) for team in members}
        self._policies = policies
        self._time_steps: tuple[TimeStep, ...] = ()
        self._states: list[Tree | None] = []
        self._lane_episodes: list[_LaneEpisodes] = []
        self._seed = self._round = 0

    def begin(self, seed: int, episodes: int) -> None:
        """Reset every copy and divide the `episodes` among the copies as evenly as possible."""
        spec = self.lanes.spec
        shares = episodes // spec.num_copies + (np.arange(spec.num_copies) < episodes % spec.num_copies)
        self._lane_episodes = [_LaneEpisodes(np.tile(shares, len(team.agents)), self._max_steps) for team in spec.teams]
        self._seed, self._round = seed, 0
        self._reset(seed)

    def _reset(self, seed: int) -> None:
        self._time_steps = self.lanes.reset(seed)
        self._states = [None] * len(self._time_steps)
        for episodes in self._lane_episodes:
            episodes.start()

    def play(self, seed: int, episodes: int) -> None:
        """Play all episodes. For use in the user's own process, not in a worker."""
        self.begin(seed, episodes)
        with one_thread():
            while not self.done:
                self.step()

    def step(self) -> None:
        """Choose actions for all lanes that act, and step once."""
        self._meter.enter(Phase.INFERENCE)
        actions = tuple(self._decide(team, time_step) for team, time_step in enumerate(self._time_steps))
        acted = [time_step.acting.copy() for time_step in self._time_steps]
        self._meter.enter(Phase.ENV)
        self._time_steps = self.lanes.step(actions)
        self._meter.enter(Phase.OTHER)
        for episodes, time_step, acted_lanes in zip(self._lane_episodes, self._time_steps, acted, strict=True):
            episodes.add(time_step, acted_lanes)
        if all(episodes.waits for episodes in self._lane_episodes) and not self.done:
            self._round += 1
            self._reset(derive(self._seed, "round", self._round))

    @property
    def done(self) -> bool:
        return all(episodes.full for episodes in self._lane_episodes)

    def results(self) -> dict[str, EpisodeResults]:
        """Return the results so far, by policy."""
        found: dict[str, EpisodeResults] = {}
        for team, episodes in enumerate(self._lane_episodes):
            found.setdefault(self._names[team], EpisodeResults()).add(episodes.done)
        return found

    def _decide(self, team: int, time_step: TimeStep) -> Tree:
        """Return a team's actions [L, ...]; lanes that do not act get zeros."""
        spec: TeamSpec = self.lanes.spec.teams[team]
        num_lanes = len(time_step.acting)
        acting = np.flatnonzero(time_step.acting)
        actions: Tree = map_tree(lambda leaf: leaf.empty(num_lanes), array_spec(spec.action))
        if len(acting) == 0:
            return actions
        observation = map_tree(lambda array: np.ascontiguousarray(array[acting]), time_step.observation)
        memory = self._states[team]
        state = None if memory is None else map_tree(lambda array: array[acting], memory)
        policy = self._policies[self._names[team]]
        decision = policy.act(observation, state, time_step.first[acting], greedy=self._greedy)
        if "state" in decision:  # memory of a recurrent policy, kept by lane because not every lane acts at every step
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


class _LaneEpisodes:
    """Counter of each lane's episodes, up to its share [L]."""

    def __init__(self, shares: Array, max_steps: float) -> None:
        self._max_steps = max_steps
        self._shares = shares
        self._played = np.zeros(len(shares), int)
        self.done = EpisodeResults()
        self.start()

    def start(self) -> None:
        """Discard running episodes, because every copy was reset."""
        count = len(self._shares)
        self._return, self._length = np.zeros((2, count))
        self._steps = np.zeros(count, int)  # since the episode began or ended, even if only others acted
        self._ended, self._waits = np.zeros((2, count), bool)

    def add(self, time_step: TimeStep, acted: Array) -> None:
        self._return += time_step.reward
        self._length += acted
        self._steps += 1
        for lane in np.flatnonzero(time_step.terminated | time_step.truncated):
            total = float(time_step.facts["return"][lane] if "return" in time_step.facts else self._return[lane])
            length = float(time_step.facts["length"][lane] if "length" in time_step.facts else self._length[lane])
            if np.isnan(total):
                continue  # not a whole episode: a lost life, which counts as an end
            if not self._waits[lane] and self._count(lane, total, length):
                self._keep_facts(lane, time_step.facts)
            self._return[lane] = self._length[lane] = self._steps[lane] = 0
            self._ended[lane] = True
        begins = self._ended & time_step.first
        if time_step.failed is not None:
            begins |= time_step.failed
            self._return[time_step.failed] = self._length[time_step.failed] = 0.0
        self._steps[begins] = 0
        self._ended[begins] = self._waits[begins] = False
        for lane in np.flatnonzero((self._steps >= self._max_steps) & ~self._waits):
            if not self._ended[lane]:  # otherwise the agent is dead, and the other agents never finish
                self.done.truncated += self._count(lane, float(self._return[lane]), float(self._length[lane]))
            self._waits[lane] = True

    def _count(self, lane: np.intp, total: float, length: float) -> bool:
        """Count an episode. Return whether it belongs to the lane's share."""
        counts = bool(self._played[lane] < self._shares[lane])
        if counts:
            self.done.returns.append(total)
            self.done.lengths.append(length)
        self._played[lane] += 1
        return counts

    def _keep_facts(self, lane: np.intp, facts: Mapping[str, Array]) -> None:
        for name, values in facts.items():
            if name not in ("return", "length", *IDENTITY) and not math.isnan(value := float(values[lane])):
                self.done.facts.setdefault(name, []).append(value)

    @property
    def full(self) -> bool:
        return bool((self._played >= self._shares).all())

    @property
    def waits(self) -> bool:
        """Whether all these lanes must be reset before they can complete another episode."""
        return bool((self._waits | (self._played >= self._shares)).all())
