"""The replay memory: blocks go in, minibatches of units come out, priorities come back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from srl.api.block import BlockSpec
from srl.api.dataflow import WHOLE_EPISODE, Episodes, Replay, SequenceBatch, Sequences, TransitionBatch, Transitions
from srl.base.seeding import derive
from srl.base.state import NotResumable, State, pack, part, under, unpack
from srl.base.tree import Array, from_leaves
from srl.replay.frames import build_store, store_nbytes
from srl.replay.goals import GoalRewards
from srl.replay.hindsight import Hindsight
from srl.replay.kernels import generations_of
from srl.replay.priorities import PrioritizedUnits
from srl.replay.ring import BlockRing
from srl.replay.sequences import EpisodeUnits, SequenceUnits
from srl.replay.storage import Arena
from srl.replay.targets import Searched, Targets
from srl.replay.transitions import TransitionUnits
from srl.replay.units import OBSERVATION, Units, numbering, rows_kept, shaped, stored_rows

NUM_BUFFERS = 2
STEP_NBYTES = 5  # of a row: its reward and flags


@dataclass(frozen=True)
class Drawn:
    """K x B units. The arrays are valid until the next draw but one."""

    batch: TransitionBatch | SequenceBatch
    index: Array  # [K, B] int64: where the units are in the memory
    generation: Array  # [K, B] int64: of the slots that they are in


def num_slots(dataflow: Replay, spec: BlockSpec, num_shards: int = 1) -> int:
    """Return the number of blocks that one of `num_shards` memories keeps."""
    return max(1, -(-dataflow.capacity // (num_shards * spec.horizon * spec.lanes)))


def bytes_needed(dataflow: Replay, spec: BlockSpec, num_shards: int = 1) -> int:
    """Return the size of a full memory in bytes."""
    kinds, slots = dict(spec.arrays()), num_slots(dataflow, spec, num_shards)
    kept = stored_rows(dataflow.unit, spec)
    arrays = sum(store_nbytes(path, kinds[path], slots, rows, spec.lanes) for path, rows in kept.items())
    return arrays + slots * spec.lanes * spec.rows * STEP_NBYTES


def check_units(dataflow: Replay, spec: BlockSpec, num_shards: int = 1, num_tracks: int = 1) -> None:
    """Raise ValueError if units of this kind cannot be drawn from such blocks. `num_tracks` is the number of lane
    groups whose blocks share the memory."""
    if dataflow.batch % num_shards:
        raise ValueError(f"batch must be a multiple of the {num_shards} trainers; found {dataflow.batch}")
    unit, horizon = dataflow.unit, spec.horizon
    from_decisions = dataflow.priorities is not None and dataflow.priorities.from_decisions
    if from_decisions and (isinstance(unit, Sequences) or not {"value", "action_value"} <= spec.decision.keys()):
        raise ValueError("priorities from decisions need transitions, and decisions with `value` and `action_value`")
    if not isinstance(unit, Sequences):
        return
    if dataflow.relabel is not None:
        raise ValueError(
            "her replaces the goals of single transitions, and this algorithm learns from sequences; use sac, td3, "
            "ddpg or dqn, or leave out --algo.her"
        )
    if spec.lanes % unit.num_agents:
        raise ValueError(
            f"sequences of {unit.num_agents} agents together need blocks with the lanes of all of them, found blocks "
            f"of {spec.lanes} lanes; all agents must have one policy and act at the same steps"
        )
    # The blocks from the first possible start on, so that it is not replaced before its last row arrives.
    blocks = num_tracks * -(-(unit.rows + min(unit.period, horizon) - 1) // horizon)
    if num_slots(dataflow, spec, num_shards) < blocks:
        needed = num_shards * blocks * horizon * spec.lanes
        raise ValueError(
            f"sequences of {unit.rows} steps need a replay of at least {needed:,} decisions, {blocks} blocks of "
            f"{horizon} steps x {spec.lanes} lanes{f' for each of {num_shards} parts' if num_shards > 1 else ''}; "
            f"found {dataflow.capacity:,}. Choose a larger --algo.replay-size, shorter sequences or fewer lanes"
        )
    within = unit.burn_in + max(unit.length, unit.period)
    if num_shards > 1 and horizon < within:
        raise ValueError(
            f"with {num_shards} trainers or replay workers, the blocks of a lane go to all of them, so sequences must "
            f"fit into one block: expected --horizon {within} or more (burn-in {unit.burn_in}, length {unit.length}, "
            f"period {unit.period}), found {horizon}"
        )


def check_steps(dataflow: Replay, spec: BlockSpec, num_shards: int, num_tracks: int) -> None:
    """Raise ValueError if no sum of rewards could have all its steps, because chains of blocks end before. Arguments
    are as for `check_units`."""
    unit, horizon = dataflow.unit, spec.horizon
    if not isinstance(unit, Transitions) or unit.n_step >= WHOLE_EPISODE:
        return
    if num_shards > 1 and horizon < unit.n_step:
        raise ValueError(
            f"with {num_shards} trainers or replay workers, the blocks of a lane go to all of them, so returns of "
            f"n-step {unit.n_step} would end with a block of {horizon} steps: expected --horizon {unit.n_step} or more"
        )
    blocks = num_tracks * -(-unit.n_step // horizon)
    if num_slots(dataflow, spec, num_shards) < blocks:
        needed = num_shards * blocks * horizon * spec.lanes
        raise ValueError(
            f"returns of n-step {unit.n_step} need a replay of at least {needed:,} decisions, {blocks} blocks of "
            f"{horizon} steps x {spec.lanes} lanes{f' for each of {num_shards} parts' if num_shards > 1 else ''}; "
            f"found {dataflow.capacity:,}. Choose a larger --algo.replay-size, a smaller --algo.n-step or fewer lanes"
        )


class ReplayMemory:
    """Memory of the newest decisions. Not for use by several threads at once.

    Its content is in the `arena`, by default memory of this process. If the arena has the content of an earlier memory
    of the same size and layout, whose process was killed at any moment, the memory continues with it (`recovered`).
    """

    def __init__(
        self,
        dataflow: Replay,
        spec: BlockSpec,
        seed: int,
        num_shards: int = 1,
        arena: Arena | None = None,
        rewards: GoalRewards | None = None,
    ) -> None:
        """`rewards` are those of goals, if the dataflow relabels."""
        check_units(dataflow, spec, num_shards)
        self._unit = dataflow.unit
        self._batch = dataflow.batch // num_shards
        self._spec = spec
        arena, kinds, slots = arena or Arena(), dict(spec.arrays()), num_slots(dataflow, spec, num_shards)
        kept = stored_rows(dataflow.unit, spec)
        stores = {path: build_store(path, kinds[path], slots, rows, spec.lanes, arena) for path, rows in kept.items()}
        self._ring = ring = BlockRing(spec, slots, stores, arena)
        unit = dataflow.unit
        self._units: Units = _units_of(unit, ring)
        if dataflow.newest is not None:
            self._units.newest = num_slots(replace(dataflow, capacity=dataflow.newest), spec, num_shards)
        self._hindsight: Hindsight | None = None
        if dataflow.relabel is not None:
            assert isinstance(unit, Transitions), "checked by `check_units`"
            assert rewards is not None, "a dataflow that relabels needs rewards"
            self._hindsight = Hindsight(dataflow.relabel, unit, ring, rewards)
        num_units = slots * self._units.per_slot
        self._priorities = (
            None if dataflow.priorities is None else PrioritizedUnits(dataflow.priorities, num_units, arena)
        )
        self.targets: Targets | None = None
        """Versions of targets, if the dataflow has a reanalysis."""
        if dataflow.reanalysis is not None:
            assert isinstance(unit, Sequences), "a reanalysis needs sequences"
            self.targets = Targets(dataflow.reanalysis, ring, arena)
        self._from_decisions = dataflow.priorities is not None and dataflow.priorities.from_decisions
        self._random = arena.array("random", (1,), "uint64")  # state of a SplitMix64 generator
        self._buffers: list[_Buffers | None] = [None] * NUM_BUFFERS
        self._turn = 0
        self._num_new = 0
        self._new: dict[str, list[Array]] | None = None  # observations of the new decisions
        if dataflow.keeps_new:
            self._new = {path: [] for path in kept if path.split("/")[0] == OBSERVATION}
        self.size = 0
        """Decisions in the memory."""
        self.recovered = arena.seal(f"{numbering(unit)} {spec}")
        """Whether the memory continues with what was in the arena."""
        if self.recovered:
            self._recover()
        else:
            self._random[0] = derive(seed, "replay")

    def _recover(self) -> None:
        self._ring.recover()
        self._count_restored()
        if self._priorities is not None:
            self._priorities.recover(self._units.drawable())

    def _count_restored(self) -> None:
        self._units.restored()
        self.size = int(self._ring.num_acting[: self._ring.num_filled].sum())

    @property
    def collected(self) -> int:
        """Decisions inserted so far."""
        return self._ring.collected

    @property
    def nbytes(self) -> int:
        """Size of the blocks when the memory is full."""
        return self._ring.nbytes

    @property
    def num_drawable(self) -> int:
        """Number of units that can be drawn: decisions, or starts of sequences."""
        return self._units.num_drawable

    def insert(self, arrays: Mapping[str, Array], track: Hashable, first_step: int) -> int:
        """Copy a block, and return the number of its decisions. It continues the last block of the same `track` (plain
        data: a string, a number or a tuple) if `first_step` is the step after that block."""
        ring, units = self._ring, self._units
        replaced = int(ring.num_acting[ring.next_slot])
        slot = ring.write(rows_kept(arrays, self._unit, first_step, self._spec.horizon), track, first_step)
        count = int(ring.num_acting[slot])
        changed = units.insert(slot)
        if self.targets is not None:
            self.targets.insert(slot, arrays["version"])
        if self._priorities is not None:
            errors = self._errors(slot, arrays) if self._from_decisions else None
            self._priorities.insert(slot * units.per_slot, changed.own, changed.earlier, errors)
        ring.commit(slot)
        if self._new is not None:
            acting = arrays["acting"][:-1]
            for path, parts in self._new.items():
                parts.append(arrays[path][:-1][acting])
        self.size += count - replaced
        self._num_new += count
        return count

    def _errors(self, slot: int, arrays: Mapping[str, Array]) -> Array:
        """Return the errors of a new block's transitions, with what is known of their next steps: NaN where the episode
        was truncated, because no decision was made there."""
        units, ring = self._units, self._ring
        assert isinstance(units, TransitionUnits), "checked by `check_units`"
        returns, discount, ends = units.returns_of(slot)
        acts = arrays["acting"].T.ravel()[ends]
        value = np.where(acts, arrays["decision/value"].T.ravel()[ends], np.where(discount == 0.0, 0.0, np.nan))
        errors: Array = returns + discount * value - arrays["decision/action_value"][: ring.spec.horizon].T.ravel()
        return errors

    @property
    def mass(self) -> float:
        """Sum of all priorities, with their exponent; without priorities, the number of units that can be drawn."""
        return float(self.num_drawable) if self._priorities is None else self._priorities.total

    def reseed(self, seed: int) -> None:
        """Let the next draws depend on `seed` only, and on what the memory holds."""
        self._random[0] = derive(seed, "replay")

    def draw(self, num_steps: int, progress: float | None, batch: int | None = None) -> Drawn:
        """Draw `num_steps` minibatches, by default of the dataflow's size. `progress`, from 0 to 1, is that of the run.
        With None, the weights of prioritized units are their probabilities."""
        if num_steps and not self.num_drawable:
            raise ValueError(
                "the replay memory is empty; insert blocks with decisions before drawing, for sequences with a burn-in "
                "as many as it takes"
            )
        batch = self._batch if batch is None else batch
        count = num_steps * batch
        buffers = self._next_buffers(count)
        index, units, ring = buffers.index[:count], self._units, self._ring
        if self._priorities is None:
            units.draw(self._random, index)
        elif count:
            weights, largest = buffers.weight[:count], buffers.largest[:num_steps]
            self._priorities.draw(self._random, batch, progress, index, weights, largest)
        generations_of(index, units.per_slot, ring.generation, buffers.generation[:count])
        units.expand(index, batch, buffers.data)
        if self._hindsight is not None:
            self._hindsight.relabel(self._random, index, buffers.data)
        drawn = self._drawn(buffers, num_steps, batch)
        if self._priorities is None or progress is None:
            return drawn
        return replace(drawn, batch=replace(drawn.batch, largest_weight=buffers.largest[:num_steps]))

    def refresh(self, drawn: Drawn, update: int, searched: Searched) -> int:
        """Let `searched` make the targets in the last draw again that are too old for an update. Return the highest age
        of the targets in it."""
        buffers = self._buffers[self._turn]
        if self.targets is None or buffers is None or not len(drawn.index):
            return 0
        assert isinstance(drawn.batch, SequenceBatch)
        shape = drawn.batch.reward.shape
        self.targets.refresh(buffers.data, shape, update, searched)
        age = self.targets.age(buffers.data, shape, update)
        assert age <= self.targets.max_age, f"targets of age {age} in the batch of update {update}"
        return age

    def _next_buffers(self, count: int) -> _Buffers:
        self._turn = (self._turn + 1) % NUM_BUFFERS
        buffers = self._buffers[self._turn]
        if buffers is None or buffers.num_units < count:
            buffers = self._buffers[self._turn] = _Buffers(self._units, count)
        return buffers

    def _drawn(self, buffers: _Buffers, num_steps: int, size: int) -> Drawn:
        axes = (num_steps, size)
        if axes not in buffers.views:
            batch = self._units.view(buffers.data, *axes, shaped(buffers.weight, *axes))
            buffers.views[axes] = Drawn(batch, shaped(buffers.index, *axes), shaped(buffers.generation, *axes))
        drawn = buffers.views[axes]
        drawn = replace(drawn, batch=replace(drawn.batch, num_decisions=self._num_new, new=self._take_new()))
        self._num_new = 0
        return drawn

    def _take_new(self) -> Any:
        if self._new is None:
            return None
        found = self._new_leaves()
        self._new = {path: [] for path in found}
        return from_leaves(found)[OBSERVATION]

    def _new_leaves(self) -> dict[str, Array]:
        kinds = dict(self._spec.arrays())
        return {path: np.concatenate(parts or [kinds[path].empty(0)]) for path, parts in (self._new or {}).items()}

    def feedback(self, drawn: Drawn, priorities: Array) -> None:
        """Set the priorities [K, B] of drawn units. Units that were replaced since are ignored."""
        if self._priorities is not None:
            now = np.empty_like(drawn.generation)
            generations_of(drawn.index.ravel(), self._units.per_slot, self._ring.generation, now.ravel())
            is_current = (now == drawn.generation).ravel()
            self._priorities.feedback(drawn.index.ravel(), is_current, np.asarray(priorities, np.float64).ravel())

    def age_of(self, drawn: Drawn) -> int:
        """Return the mean age of the last minibatch: decisions inserted since. Call it before the next insert."""
        if not len(drawn.index):
            return 0
        ring, spec = self._ring, self._spec
        slots = drawn.index[-1] // self._units.per_slot
        return int(np.mean((ring.next_slot - 1 - slots) % ring.num_slots) * spec.horizon * spec.lanes)

    def state(self) -> State:
        fields = [self._num_new, int(self._random[0])]
        state = {"fields": pack(fields), **under("ring", self._ring.state()), **under("new", self._new_leaves())}
        if self._priorities is not None:
            num_units = self._ring.num_filled * self._units.per_slot
            state |= under("priorities", self._priorities.state(num_units))
        if self.targets is not None:
            state |= under("targets", self.targets.state())
        return state

    def restore(self, state: State) -> None:
        """Continue from a saved state, in a new memory of the same size and layout."""
        self._ring.restore(part(state, "ring"))
        self._count_restored()
        self._num_new, bits = unpack(state["fields"])
        self._random[0] = bits
        if self._new is not None:
            self._new = {path: [values] for path, values in part(state, "new").items()}
        if self._priorities is not None:
            if not part(state, "priorities"):
                raise NotResumable("the saved memory has no priorities; resume with uniform draws")
            self._priorities.restore(part(state, "priorities"))
        if self.targets is not None:
            if not part(state, "targets"):
                raise NotResumable("the saved memory has no versions of targets; resume without reanalysis")
            self.targets.restore(part(state, "targets"))


def _units_of(unit: Transitions | Sequences, ring: BlockRing) -> Units:
    if isinstance(unit, Episodes):
        return EpisodeUnits(unit, ring)
    return SequenceUnits(unit, ring) if isinstance(unit, Sequences) else TransitionUnits(unit, ring)


class _Buffers:
    """Arrays for one draw of up to `num_units` units."""

    def __init__(self, units: Units, num_units: int) -> None:
        self.num_units = num_units
        self.index, self.generation = np.zeros((2, num_units), np.int64)
        self.weight, self.largest = np.ones(num_units, np.float32), np.ones(num_units)
        self.data = units.new_buffers(num_units)
        self.views: dict[tuple[int, int], Drawn] = {}  # by the number of gradient steps and their size
