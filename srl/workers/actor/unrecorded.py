"""Lanes of a policy that does not learn; they are not recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.lanes import Arrival
from srl.api.streams import Cell, PushProducer
from srl.base.meter import Counter, Meter
from srl.base.state import State, part, under
from srl.base.tree import Tree, leaves
from srl.workers.actor.episodes import EpisodeTally
from srl.workers.actor.recorder import Teams, action_paths, memory_paths


class UnrecordedLanes:
    """Requests decisions in a scratch block. Lanes may wait, die and join; a lane that does not act keeps its
    memory."""

    is_plain = False

    def __init__(self, producer: PushProducer, team_lanes: list[int], meter: Meter) -> None:
        self._teams = Teams(team_lanes)
        self._slices = self._teams.slices
        self._meter = meter
        self._block = producer.scratch_block()
        self._arrays = self._block.arrays
        self._memory = memory_paths(producer.memory.spec)
        self._actions = action_paths(producer.memory.spec)
        self._decided = False
        self.tally = EpisodeTally(self._teams.num_lanes)

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        arrays = self._arrays
        acted = arrays["acting"][0].copy()
        for after, before in self._memory:
            arrays[before][0][acted] = arrays[after][0][acted]
        for arrival, lanes in zip(arrivals, self._slices, strict=True):
            arrays["acting"][0, lanes], arrays["first"][0, lanes] = arrival.acting, arrival.first
            for path, leaf in leaves(arrival.observation, "observation"):
                arrays[path][0, lanes] = leaf
            ended = arrival.terminated | arrival.truncated
            if arrival.facts:
                self.tally.note(arrival.facts, ended)
            for index in np.flatnonzero(acted[lanes] | ended):
                self.tally.count_step(lanes.start + int(index), float(arrival.reward[index]), bool(ended[index]))
            if arrival.failed is not None:
                self.tally.forget(lanes.start + np.flatnonzero(arrival.failed))
        self._decided = False

    def open(self) -> bool:
        return True

    def cells(self) -> list[Cell]:
        if self._decided or not self._arrays["acting"][0].any():
            return []
        return [Cell(self._block, 0)]

    def min_version(self) -> int:
        return 0

    def take_decisions(self) -> None:
        if not self._decided:
            self._decided = True
            self._meter.add(Counter.UNRECORDED, int(np.count_nonzero(self._arrays["acting"][0])))

    def post_full(self) -> bool:
        return False

    def actions(self) -> tuple[Tree, ...]:
        return self._teams.actions({path: self._arrays[path][0] for path in self._actions})

    def abandon(self) -> None:
        self._decided = False
        self._arrays["acting"][...] = False
        self.tally.forget(np.arange(self._teams.num_lanes))

    def state(self) -> State:
        arrays = {f"row/{path}": values[0].copy() for path, values in self._arrays.items()}
        return {"decided": np.array(self._decided), **arrays, **under("tally", self.tally.state())}

    def restore(self, state: State) -> None:
        self._decided = bool(state["decided"])
        for path, values in part(state, "row").items():
            self._arrays[path][0] = values
        self.tally.restore(part(state, "tally"))
