"""Recording: where the rows of a group's lanes are written, and when a block is full."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from srl.api.block import STATE, BlockSpec
from srl.api.lanes import Arrival
from srl.api.streams import Cell, OpenBlock, PushProducer
from srl.base.meter import Counter, Meter
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import SEPARATOR, Array, Tree, from_leaves, leaves
from srl.workers.actor.episodes import EpisodeTally

ACTION = "decision/action"
WRITTEN = ("reward", "terminated", "truncated", "acting", "first", "observation")


class Recorder(Protocol):
    """The rows of one role's lanes in one group."""

    tally: EpisodeTally
    is_plain: bool
    """One team, one array of observations, one of actions, no memory: a group may fill such rows in a loop."""

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Write what the environment gave; `arrivals` are those of the role's teams."""

    def prepare(self) -> bool:
        """Have a place for the present row. False: not allowed to go on yet."""

    def cells(self) -> list[Cell]:
        """Rows that need a decision; none if all are decided already."""

    def min_version(self) -> int: ...

    def decided(self) -> bool:
        """The cells are decided. True if the lanes may act on them now, False if a new row must be prepared first."""

    def actions(self) -> tuple[Tree, ...]:
        """One tree [L, ...] for each team."""

    def abandon(self) -> None:
        """The environment broke as a whole: forget the unfinished rows."""

    def state(self) -> State: ...

    def restore(self, state: State) -> None:
        """Go on where another one stopped; the producer was restored before."""


def memory_paths(spec: BlockSpec) -> list[tuple[str, str]]:
    """Of each array of a policy's memory: where a decision leaves it, and where the lane's next row has it."""
    paths = [path for path, _ in spec.arrays() if path.partition("/")[0] == STATE]
    return [(f"decision/{path}", path) for path in paths]


class Teams:
    """A role's lanes, cut at its teams."""

    def __init__(self, team_lanes: list[int]) -> None:
        edges = np.cumsum([0, *team_lanes])
        self.slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        self.num_lanes = int(edges[-1])

    def actions(self, arrays: Mapping[str, Array]) -> tuple[Tree, ...]:
        """Actions [L, ...] by their paths in a block, as one tree for each team."""
        if set(arrays) == {ACTION}:
            return tuple(arrays[ACTION][lanes] for lanes in self.slices)
        parts = {path.removeprefix(f"{ACTION}{SEPARATOR}"): leaf for path, leaf in arrays.items()}
        return tuple(from_leaves({path: leaf[lanes] for path, leaf in parts.items()}) for lanes in self.slices)


def action_paths(spec: BlockSpec) -> list[str]:
    return [path for path, _ in spec.arrays() if path == ACTION or path.startswith(f"{ACTION}{SEPARATOR}")]


class AlignedRecorder:
    """Lanes that keep the same time: one block for all of them, one row for each step.

    The decision for the last row bootstraps the block, and is taken over as the first decision of the next one,
    unless by then the staleness bound asks for a newer version.
    """

    def __init__(self, producer: PushProducer, team_lanes: list[int], meter: Meter) -> None:
        self._producer = producer
        self._meter = meter
        self._spec = producer.memory.spec
        self.horizon = self._spec.horizon
        self._teams = Teams(team_lanes)
        self._slices = self._teams.slices
        self._opened: OpenBlock | None = None
        self.row = 0
        self._decided = False
        self._carry = {path: spec.empty(self._spec.lanes) for path, spec in self._spec.arrays()}  # path -> [L, ...]
        self._carry["version"][...] = -1
        self._observations = [path for path in self._carry if path.split("/")[0] == "observation"]
        self._actions = action_paths(self._spec)
        self._bare = self._actions == [ACTION]
        self._memory = memory_paths(self._spec)
        self._arrays: dict[str, Array] = {}
        self._whole = len(self._slices) == 1  # one team: rows are written whole
        self.is_plain = self._whole and self._observations == ["observation"] and self._bare and not self._memory
        self._written: tuple[Array, ...] = ()  # what the environment fills, if plain
        self._has_facts = False
        self._cut: Array | None = None  # [T+1, L]: where an environment broke; no episode ended there
        self.tally = EpisodeTally(self._spec.lanes)

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        if self._opened is None:
            self._write_carry(arrivals)
            return
        if self.is_plain:
            self.write(arrivals[0])
            return
        arrays, row = self._arrays, self.row
        for arrival, lanes in zip(arrivals, self._slices, strict=True):
            arrays["reward"][row, lanes] = arrival.reward
            arrays["terminated"][row, lanes] = arrival.terminated
            arrays["truncated"][row, lanes] = arrival.truncated
            arrays["acting"][row + 1, lanes] = arrival.acting
            arrays["first"][row + 1, lanes] = arrival.first
            for path, leaf in leaves(arrival.observation, "observation"):
                arrays[path][row + 1, lanes] = leaf
            if arrival.failed is not None:
                self._erase(lanes, arrival.failed)
            if arrival.facts:
                self._take_facts(arrival)
        for kept, remembered in self._memory:
            arrays[remembered][row + 1] = arrays[kept][row]
        self.row = row + 1
        self._decided = False

    def undecided(self) -> OpenBlock | None:
        """The open block, if its present row needs a decision on which the lanes will act."""
        return None if self._decided or self.row == self.horizon else self._opened

    def write(self, arrival: Arrival) -> None:
        """Write what came of the present row's actions, and the next row; of a plain recorder."""
        reward, terminated, truncated, acting, first, observation = self._written
        row = self.row
        reward[row] = arrival.reward
        terminated[row] = arrival.terminated
        truncated[row] = arrival.truncated
        if arrival.failed is not None:
            self._erase(self._slices[0], arrival.failed)
        if arrival.facts:
            self._take_facts(arrival)
        self.row = row = row + 1
        acting[row] = arrival.acting
        first[row] = arrival.first
        observation[row] = arrival.observation
        self._decided = False

    def _write_carry(self, arrivals: Sequence[Arrival]) -> None:
        """The environment was reset before any block was open."""
        for arrival, lanes in zip(arrivals, self._slices, strict=True):
            self._carry["acting"][lanes] = arrival.acting
            self._carry["first"][lanes] = arrival.first
            for path, leaf in leaves(arrival.observation, "observation"):
                self._carry[path][lanes] = leaf
        self._carry["version"][...] = -1

    def _erase(self, lanes: slice, failed: Array) -> None:
        """The step that led here never happened in these lanes: nobody learns from it, and the episode is cut."""
        arrays, row = self._arrays, self.row
        if self._cut is None:
            self._cut = np.zeros((self._spec.rows, self._spec.lanes), bool)
        for at in range(max(0, row - 1), row + 1):
            going_on = failed & ~(arrays["terminated"][at, lanes] | arrays["truncated"][at, lanes])
            arrays["truncated"][at, lanes] |= going_on
            self._cut[at, lanes] |= going_on
        arrays["acting"][row, lanes] &= ~failed
        arrays["reward"][row, lanes][failed] = 0.0

    def _take_facts(self, arrival: Arrival) -> None:
        ended = arrival.terminated | arrival.truncated
        self._has_facts = True
        if ended.any() and "return" in arrival.facts:
            lengths = arrival.facts.get("length", np.zeros(len(ended)))
            for lane in np.flatnonzero(ended):
                if np.isfinite(arrival.facts["return"][lane]):
                    self.tally.record(float(arrival.facts["return"][lane]), float(lengths[lane]))
        self.tally.note(arrival.facts, ended)

    def prepare(self) -> bool:
        if self._opened is not None:
            if self._opened.alive:
                return True
            self._keep_row()
            self._count(self.row)
            self._producer.discard(self._opened)
            self._opened = None
        opened = self._producer.open()
        if opened is None:
            self._producer.poll()
            opened = self._producer.open()
            if opened is None:
                return False
        self._producer.poll()  # asks for the next admission while this block fills
        self._opened = opened
        self._enter(opened)
        self.row = 0
        self._cut = None
        for path, values in self._carry.items():
            self._arrays[path][0] = values
        self._decided = int(self._carry["version"].min()) >= max(0, opened.min_version)
        return True

    def _enter(self, opened: OpenBlock) -> None:
        self._arrays = dict(opened.block.arrays)
        if self.is_plain:
            self._written = tuple(self._arrays[path] for path in WRITTEN)

    def _keep_row(self) -> None:
        """Take the present row along into the next block."""
        for path, values in self._carry.items():
            values[...] = self._arrays[path][self.row]
        if not self._decided:
            self._carry["version"][...] = -1

    def cells(self) -> list[Cell]:
        assert self._opened is not None
        return [] if self._decided else [Cell(self._opened.block, self.row)]

    def min_version(self) -> int:
        assert self._opened is not None
        return self._opened.min_version

    def decided(self) -> bool:
        self._decided = True
        if self.row < self.horizon:
            return True
        assert self._opened is not None
        self._keep_row()
        self._finish(self._opened)
        return False

    def _finish(self, opened: OpenBlock) -> None:
        self._count(self.horizon)
        self._meter.add(Counter.DECISIONS, int(np.count_nonzero(self._arrays["acting"][:-1])))
        self._opened = None
        self._producer.post(opened)

    def _count(self, rows: int) -> None:
        """Add the first rows of the present block to the episodes' figures."""
        if rows and not self._has_facts:
            arrays = self._arrays
            ended = arrays["terminated"][:rows] | arrays["truncated"][:rows]
            cut = None if self._cut is None else self._cut[:rows]
            self.tally.count_block(arrays["reward"][:rows], arrays["acting"][:rows], ended, cut)

    def actions(self) -> tuple[Tree, ...]:
        if self._whole and self._bare:
            return (self._arrays[ACTION][self.row],)
        return self._teams.actions({path: self._arrays[path][self.row] for path in self._actions})

    def abandon(self) -> None:
        if self._opened is not None:
            self._count(self.row)
            self._producer.discard(self._opened)
            self._opened = None
        self.tally.forget(np.arange(self._spec.lanes))

    def state(self) -> State:
        index = -1 if self._opened is None else self._opened.block.index
        cut = np.zeros((0, 0), bool) if self._cut is None else self._cut.copy()
        return {
            "facts": pack([index, self.row, self._decided, self._has_facts]),
            "cut": cut,
            **{f"carry/{path}": values.copy() for path, values in self._carry.items()},
            **under("tally", self.tally.state()),
        }

    def restore(self, state: State) -> None:
        index, self.row, self._decided, self._has_facts = unpack(state["facts"])
        self._opened = self._producer.open_blocks().get(index)
        if self._opened is not None:
            self._enter(self._opened)
        self._cut = state["cut"] if state["cut"].size else None
        for path, values in part(state, "carry").items():
            self._carry[path][...] = values
        self.tally.restore(part(state, "tally"))
