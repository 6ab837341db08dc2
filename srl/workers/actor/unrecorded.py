"""Lanes of a policy that does not learn; they are not recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.block import POSITION
from srl.api.lanes import TimeStep
from srl.api.streams import Cell, PushProducer
from srl.base.meter import Counter, Meter
from srl.base.state import State, part, under
from srl.base.tree import Tree, leaves
from srl.workers.actor.episodes import EpisodeTracker
from srl.workers.actor.recorder import Teams, action_paths, memory_paths


class UnrecordedLanes:
    """Recorder that only requests decisions, in a scratch block. Lanes may wait, die or join; idle ones keep their
    memory."""

    is_plain = False

    def __init__(self, producer: PushProducer, team_lanes: list[int], meter: Meter) -> None:
        self._teams = Teams(team_lanes)
        self._slices = self._teams.slices
        self._meter = meter
        self._block = producer.scratch_block()
        self._arrays = self._block.arrays
        if POSITION in self._arrays:
            self._arrays[POSITION][...] = 1.0
        self._memory = memory_paths(producer.memory.spec)
        self._actions = action_paths(producer.memory.spec)
        self._decided = False
        self.tracker = EpisodeTracker(self._teams.num_lanes)

    def arrive(self, time_steps: Sequence[TimeStep]) -> None:
        arrays = self._arrays
        acted = arrays["acting"][0].copy()
        for after, before in self._memory:
            arrays[before][0][acted] = arrays[after][0][acted]
        for time_step, lanes in zip(time_steps, self._slices, strict=True):
            arrays["acting"][0, lanes], arrays["first"][0, lanes] = time_step.acting, time_step.first
            for path, leaf in leaves(time_step.observation, "observation"):
                arrays[path][0, lanes] = leaf
            ended = time_step.terminated | time_step.truncated
            for index in np.flatnonzero(acted[lanes] | ended):
                lane, reward = lanes.start + int(index), float(time_step.reward[index])
                self.tracker.count_step(lane, reward, bool(ended[index]), time_step.facts, int(index))
            if time_step.failed is not None:
                self.tracker.forget(lanes.start + np.flatnonzero(time_step.failed))
        self._decided = False

    def open(self) -> bool:
        return True

    def release(self) -> None:
        """Do nothing, because there is no block."""

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
        self.tracker.forget(np.arange(self._teams.num_lanes))

    def state(self) -> State:
        arrays = {f"row/{path}": values[0].copy() for path, values in self._arrays.items()}
        return {"decided": np.array(self._decided), **arrays, **under("episodes", self.tracker.state())}

    def restore(self, state: State) -> None:
        self._decided = bool(state["decided"])
        for path, values in part(state, "row").items():
            self._arrays[path][0] = values
        self.tracker.restore(part(state, "episodes"))
