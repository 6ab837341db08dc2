"""Recorder for lanes that do not step together: agents that take turns, wait or die."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from srl.api.block import POSITION, Block
from srl.api.lanes import TimeStep
from srl.api.streams import Cell, OpenBlock, PushProducer
from srl.base.meter import Counter, Meter
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array, Tree, leaves
from srl.workers.actor.episodes import EpisodeTracker
from srl.workers.actor.recorder import Teams, action_paths, memory_paths


@dataclass
class _Lane:
    """One agent of one environment copy. Without an admitted block, it acts in a scratch block and is not recorded."""

    scratch: Block
    opened: OpenBlock | None = None
    row: int = 0
    first_step: int = 0  # number of row 0 of the current block, counting all rows of this lane
    acted: bool = False  # whether the environment has the current row's action but has not returned its result
    memory: dict[str, Array] = field(default_factory=dict)  # this lane's recurrent memory, by path in the next row

    @property
    def block(self) -> Block:
        return self.scratch if self.opened is None else self.opened.block


class UnalignedRecorder:
    """Recorder that fills one block per lane. A row is written only when its lane needs a decision or its episode ends.

    Lanes never wait for admission: a paused agent would stall its whole game, including lanes whose blocks the trainer
    is waiting for. A lane without an admitted block keeps acting, and is recorded again when it gets one.
    """

    is_plain = False

    def __init__(
        self,
        producer: PushProducer,
        team_lanes: list[int],
        meter: Meter,
        slot: int = 0,
        positions: Array | None = None,
    ) -> None:
        self._producer = producer
        self._meter = meter
        self._horizon = producer.memory.spec.horizon
        self._teams = Teams(team_lanes)
        self._slices, total = self._teams.slices, self._teams.num_lanes
        self._first_track = slot * total
        self._lanes = [_Lane(producer.scratch_block()) for _ in range(total)]
        self._positions = positions  # [L], or None if the layout has no positions
        for number in range(total):
            self._set_position(number)
        specs = dict(producer.memory.spec.arrays())
        self._actions = {path: specs[path].empty(total) for path in action_paths(producer.memory.spec)}  # [L, ...]
        self._memory = memory_paths(producer.memory.spec)
        self._written: list[int] = []  # lanes whose current row needs a decision
        self._full: list[int] = []  # lanes whose last row has its decision
        self.tracker = EpisodeTracker(total)

    def arrive(self, time_steps: Sequence[TimeStep]) -> None:
        for time_step, lanes in zip(time_steps, self._slices, strict=True):
            ended = time_step.terminated | time_step.truncated
            failed = np.zeros_like(ended) if time_step.failed is None else time_step.failed
            for index in np.flatnonzero(failed):
                self._restart(lanes.start + int(index))
            for index in np.flatnonzero(time_step.acting | ended):
                self._write(lanes.start + int(index), int(index), time_step)

    def _write(self, number: int, index: int, time_step: TimeStep) -> None:
        lane = self._lanes[number]
        if lane.acted:
            self._answer(number, index, time_step)
        if lane.opened is not None and not lane.opened.alive:
            self._discard(lane)
        if lane.opened is None:
            lane.first_step += 1  # the rows in the scratch block are missing
            self._enter(number, self._producer.open())
        arrays, row = lane.block.arrays, lane.row
        for path, leaf in leaves(time_step.observation, "observation"):
            arrays[path][row, 0] = leaf[index]
        arrays["acting"][row, 0] = time_step.acting[index]
        arrays["first"][row, 0] = time_step.first[index]
        for path, values in lane.memory.items():
            arrays[path][row, 0] = values
        self._written.append(number)

    def _answer(self, number: int, index: int, time_step: TimeStep) -> None:
        """Write the result of the lane's last action into its row, and advance to the next row."""
        lane = self._lanes[number]
        arrays, row = lane.block.arrays, lane.row
        arrays["reward"][row, 0] = time_step.reward[index]
        arrays["terminated"][row, 0] = time_step.terminated[index]
        arrays["truncated"][row, 0] = time_step.truncated[index]
        if arrays["acting"][row, 0]:
            ended = bool(time_step.terminated[index] or time_step.truncated[index])
            recorded = lane.opened is not None
            self.tracker.count_step(number, float(time_step.reward[index]), ended, time_step.facts, index, recorded)
            self._meter.add(Counter.DECISIONS if recorded else Counter.UNRECORDED)
        if lane.opened is not None:
            lane.row += 1
        lane.acted = False

    def _restart(self, number: int) -> None:
        """Discard the lane's unfinished rows, because its environment failed."""
        lane = self._lanes[number]
        if lane.opened is not None:
            self._discard(lane)
        lane.acted = False
        self.tracker.forget(np.array([number]))

    def _enter(self, number: int, opened: OpenBlock | None) -> None:
        """Continue in another block, or in the scratch block."""
        lane = self._lanes[number]
        lane.opened, lane.row = opened, 0
        if opened is not None:
            opened.track, opened.first_step = self._first_track + number, lane.first_step
            self._set_position(number)

    def _set_position(self, number: int) -> None:
        if self._positions is not None:
            self._lanes[number].block.arrays[POSITION][...] = self._positions[number]

    def _discard(self, lane: _Lane) -> None:
        assert lane.opened is not None
        self._producer.discard(lane.opened)
        lane.first_step += lane.row
        lane.opened, lane.row = None, 0

    def open(self) -> bool:
        if any(lane.opened is None for lane in self._lanes):
            self._producer.poll()
        return True

    def release(self) -> None:
        """Do nothing, because lanes without a block act anyway and nothing waits for them."""

    def cells(self) -> list[Cell]:
        return [Cell(self._lanes[number].block, self._lanes[number].row) for number in self._written]

    def min_version(self) -> int:
        opened = (self._lanes[number].opened for number in self._written)
        return max((block.min_version for block in opened if block is not None and block.alive), default=0)

    def take_decisions(self) -> None:
        for number in self._written:
            lane = self._lanes[number]
            for path, values in self._actions.items():
                values[number] = lane.block.arrays[path][lane.row, 0]
            for after, before in self._memory:
                lane.memory[before] = lane.block.arrays[after][lane.row, 0].copy()
            lane.acted = True
            if lane.opened is not None and lane.row == self._horizon:
                self._full.append(number)
        self._written.clear()

    def post_full(self) -> bool:
        for number in self._full:
            self._post(number)
        self._full.clear()
        return False

    def _post(self, number: int) -> None:
        """Post the lane's block; its last row becomes the first row of the next block."""
        lane = self._lanes[number]
        full = lane.opened
        assert full is not None
        last: dict[str, Array] = {path: values[lane.row].copy() for path, values in full.block.arrays.items()}
        self._producer.post(full, self.tracker.drain(number) if full.alive else None)
        lane.first_step += self._horizon
        following = self._producer.open()
        if following is not None and int(last["version"].min()) < following.min_version:
            self._producer.discard(following)  # the policy version of this row's decision is too old for the new block
            following = None
        self._enter(number, following)
        for path, values in last.items():
            lane.block.arrays[path][0] = values

    def actions(self) -> tuple[Tree, ...]:
        return self._teams.actions(self._actions)

    def abandon(self) -> None:
        for number in range(len(self._lanes)):
            self._restart(number)
        self._written.clear()

    def state(self) -> State:
        lanes = [
            [-1 if lane.opened is None else lane.opened.block.index, lane.row, lane.acted, lane.first_step]
            for lane in self._lanes
        ]
        return {
            "fields": pack({"lanes": lanes, "written": self._written}),
            **{
                f"memory/{number}/{path}": values.copy()
                for number, lane in enumerate(self._lanes)
                for path, values in lane.memory.items()
            },
            **{f"actions/{path}": values.copy() for path, values in self._actions.items()},
            **under("episodes", self.tracker.state()),
        }

    def restore(self, state: State) -> None:
        fields = unpack(state["fields"])
        for number, (index, row, acted, first_step) in enumerate(fields["lanes"]):
            lane = self._lanes[number]
            lane.first_step = first_step
            lane.opened, lane.row, lane.acted = self._producer.open_blocks().get(index), row, acted
            lane.memory = part(state, f"memory/{number}")
        self._written = fields["written"]
        for path, values in part(state, "actions").items():
            self._actions[path][...] = values
        self.tracker.restore(part(state, "episodes"))
