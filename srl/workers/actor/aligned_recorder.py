"""Recorder for lanes that step together: one block for all of them, one row per step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.block import POSITION
from srl.api.lanes import TimeStep
from srl.api.streams import Cell, OpenBlock, PushProducer
from srl.base.meter import Counter, Meter
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array, Tree, leaves
from srl.workers.actor.episodes import EpisodeTracker
from srl.workers.actor.recorder import ACTION, Teams, action_paths, memory_paths

WRITTEN = ("reward", "terminated", "truncated", "acting", "first", "observation")


class AlignedRecorder:
    """Recorder that fills one block at a time for all of a role's lanes in one group.

    The value of the last row bootstraps the block. That row, with its decision, is also the first row of the next
    block; the decision is made again if its policy version is too old for that block. Between blocks, the row is kept
    in `_last_row`, because the posted block belongs to the trainer and the next one may not have been admitted.
    """

    def __init__(
        self,
        producer: PushProducer,
        team_lanes: list[int],
        meter: Meter,
        slot: int = 0,
        positions: Array | None = None,
    ) -> None:
        self._producer = producer
        self._track = slot
        self._first_step = 0  # number of row 0 of the current block, counting all rows of this recorder
        self._meter = meter
        self._spec = producer.memory.spec
        self.horizon = self._spec.horizon
        self._teams = Teams(team_lanes)
        self._slices = self._teams.slices
        self.opened: OpenBlock | None = None
        self.row = 0  # current row: its observation is written, its reward is not
        self.decided = False  # whether the current row has its decision
        self._last_row = {path: spec.empty(self._spec.lanes) for path, spec in self._spec.arrays()}  # path -> [L, ...]
        self._last_row["version"][...] = -1
        self._positions = positions  # [L], or None if the layout has no positions
        if positions is not None:
            self._last_row[POSITION][...] = positions
        self._actions = action_paths(self._spec)
        self._single_action = self._actions == [ACTION]
        self._memory = memory_paths(self._spec)
        self._arrays: dict[str, Array] = {}
        self._single_team = len(self._slices) == 1
        observations = [path for path in self._last_row if path.split("/")[0] == "observation"]
        single_arrays = observations == ["observation"] and self._single_action and not self._memory
        self.is_plain = self._single_team and single_arrays
        self._counted = 0  # rows of the open block whose decisions are counted
        self._written: tuple[Array, ...] = ()  # arrays that `write` fills, if plain
        self._failed: Array | None = None  # [T+1, L]: where an environment failed; no episode ended there
        self.tracker = EpisodeTracker(self._spec.lanes)

    def open(self) -> bool:
        if self.opened is not None:
            if self.opened.alive:
                return True
            self.release()
        opened = self._producer.open()
        if opened is None:
            self._producer.poll()
            opened = self._producer.open()
            if opened is None:
                return False
        self._producer.poll()  # requests the next admission while this block fills
        opened.track, opened.first_step = self._track, self._first_step
        self._enter(opened)
        self.row = self._counted = 0
        self._failed = None
        if self._positions is not None:
            self._arrays[POSITION][...] = self._positions
        for path, values in self._last_row.items():
            self._arrays[path][0] = values
        self.decided = int(self._last_row["version"].min()) >= max(0, opened.min_version)
        return True

    def release(self) -> None:
        if self.opened is not None:
            self._keep_row()
            self._count(self.row)
            self._producer.discard(self.opened)
            self.opened = None
            self._first_step += self.row

    def _enter(self, opened: OpenBlock) -> None:
        self.opened = opened
        self._arrays = dict(opened.block.arrays)
        if self.is_plain:
            self._written = tuple(self._arrays[path] for path in WRITTEN)

    def _keep_row(self) -> None:
        """Keep the current row for the next block."""
        for path, values in self._last_row.items():
            values[...] = self._arrays[path][self.row]
        if not self.decided:
            self._last_row["version"][...] = -1

    def cells(self) -> list[Cell]:
        assert self.opened is not None
        return [] if self.decided else [Cell(self.opened.block, self.row)]

    def min_version(self) -> int:
        assert self.opened is not None
        return self.opened.min_version if self.opened.alive else 0

    def take_decisions(self) -> None:
        self.decided = True

    def post_full(self) -> bool:
        if self.row < self.horizon:
            return False
        opened = self.opened
        assert opened is not None
        self._keep_row()
        self._count(self.horizon)
        self.count_decisions()
        self.opened = None
        self._first_step += self.horizon
        # Without a consumer the block is discarded: its episodes wait for the next one.
        self._producer.post(opened, self.tracker.drain() if opened.alive else None)
        return True

    def count_decisions(self) -> None:
        """Add the decisions in the open block to the counter. A slow environment may take minutes to fill a block."""
        if self.opened is not None:
            acting = self._arrays["acting"][self._counted : self.row]
            self._meter.add(Counter.DECISIONS, int(np.count_nonzero(acting)))
            self._counted = self.row

    def actions(self) -> tuple[Tree, ...]:
        if self._single_team and self._single_action:
            return (self._arrays[ACTION][self.row],)
        return self._teams.actions({path: self._arrays[path][self.row] for path in self._actions})

    def arrive(self, time_steps: Sequence[TimeStep]) -> None:
        if self.opened is None:
            self._write_last_row(time_steps)
            return
        if self.is_plain:
            self.write(time_steps[0])
            return
        arrays, row = self._arrays, self.row
        for time_step, lanes in zip(time_steps, self._slices, strict=True):
            arrays["reward"][row, lanes] = time_step.reward
            arrays["terminated"][row, lanes] = time_step.terminated
            arrays["truncated"][row, lanes] = time_step.truncated
            arrays["acting"][row + 1, lanes] = time_step.acting
            arrays["first"][row + 1, lanes] = time_step.first
            for path, leaf in leaves(time_step.observation, "observation"):
                arrays[path][row + 1, lanes] = leaf
            if time_step.failed is not None:
                self._erase(lanes, time_step.failed)
            if time_step.facts:
                self._note_facts(time_step, lanes.start)
        for after, before in self._memory:
            arrays[before][row + 1] = arrays[after][row]
        self.row = row + 1
        self.decided = False

    def write(self, time_step: TimeStep) -> None:
        """Write the outcome of the current row's actions, then the next row's observations. Only where `is_plain`."""
        reward, terminated, truncated, acting, first, observation = self._written
        row = self.row
        reward[row] = time_step.reward
        terminated[row] = time_step.terminated
        truncated[row] = time_step.truncated
        if time_step.failed is not None:
            self._erase(self._slices[0], time_step.failed)
        if time_step.facts:
            self._note_facts(time_step, 0)
        self.row = row = row + 1
        acting[row] = time_step.acting
        first[row] = time_step.first
        observation[row] = time_step.observation
        self.decided = False

    def _write_last_row(self, time_steps: Sequence[TimeStep]) -> None:
        """Store the first observations in `_last_row`, which becomes row 0 of the first block."""
        for time_step, lanes in zip(time_steps, self._slices, strict=True):
            self._last_row["acting"][lanes] = time_step.acting
            self._last_row["first"][lanes] = time_step.first
            for path, leaf in leaves(time_step.observation, "observation"):
                self._last_row[path][lanes] = leaf
        self._last_row["version"][...] = -1

    def _erase(self, lanes: slice, failed: Array) -> None:
        """Exclude the failed step from training, and truncate the episodes of the lanes where `failed` is set."""
        arrays, row = self._arrays, self.row
        if self._failed is None:
            self._failed = np.zeros((self._spec.rows, self._spec.lanes), bool)
        for at in range(max(0, row - 1), row + 1):
            running = failed & ~(arrays["terminated"][at, lanes] | arrays["truncated"][at, lanes])
            arrays["truncated"][at, lanes] |= running
            self._failed[at, lanes] |= running
        arrays["acting"][row, lanes] &= ~failed
        arrays["reward"][row, lanes][failed] = 0.0

    def _note_facts(self, time_step: TimeStep, first_lane: int) -> None:
        self.tracker.note(self.row, time_step.facts, time_step.terminated | time_step.truncated, first_lane)

    def _count(self, rows: int) -> None:
        """Add the first `rows` rows of the current block to the episode statistics."""
        if rows:
            arrays = self._arrays
            ended = arrays["terminated"][:rows] | arrays["truncated"][:rows]
            failed = None if self._failed is None else self._failed[:rows]
            self.tracker.count_block(arrays["reward"][:rows], arrays["acting"][:rows], ended, failed)

    def abandon(self) -> None:
        if self.opened is not None:
            self._count(self.row)
            self._producer.discard(self.opened)
            self.opened = None
        self._first_step += self.row + 1  # the next row does not follow the last one
        self.tracker.forget(np.arange(self._spec.lanes))

    def state(self) -> State:
        index = -1 if self.opened is None else self.opened.block.index
        return {
            "fields": pack([index, self.row, self.decided, self._first_step]),
            "failed": np.zeros((0, 0), bool) if self._failed is None else self._failed.copy(),
            **{f"last_row/{path}": values.copy() for path, values in self._last_row.items()},
            **under("episodes", self.tracker.state()),
        }

    def restore(self, state: State) -> None:
        index, self.row, self.decided, self._first_step = unpack(state["fields"])
        opened = self._producer.open_blocks().get(index)
        if opened is not None:
            self._enter(opened)
        self._failed = state["failed"] if state["failed"].size else None
        for path, values in part(state, "last_row").items():
            self._last_row[path][...] = values
        self.tracker.restore(part(state, "episodes"))
