"""The replay memory: blocks go in, minibatches of units come out, priorities come back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from srl.api.block import STATE, BlockSpec
from srl.api.dataflow import Replay, TransitionBatch, Transitions
from srl.base.seeding import derive
from srl.base.state import NotResumable, State, pack, part, under, unpack
from srl.base.tree import Array, from_leaves
from srl.replay.kernels import ACTING, draw_uniform, generations_of, n_step_returns
from srl.replay.priorities import PrioritizedUnits
from srl.replay.ring import BlockRing, row_nbytes
from srl.replay.storage import Arena, as_words

OBSERVATION, DECISION = "observation", "decision"
NUM_BUFFERS = 2


@dataclass(frozen=True)
class Drawn:
    """K x B units. The arrays are valid until the next draw but one."""

    batch: TransitionBatch
    index: Array  # [K, B] int64: where the units are in the memory
    generation: Array  # [K, B] int64: of the slots that they are in


def stored_paths(spec: BlockSpec) -> list[str]:
    """Return the paths of the arrays that transitions need: observations and decisions, without recurrent states."""
    paths = [path for path, _ in spec.arrays()]
    memory = f"{DECISION}/{STATE}"
    roots = (OBSERVATION, DECISION)
    return [p for p in paths if p.split("/")[0] in roots and p != memory and not p.startswith(f"{memory}/")]


def num_slots(dataflow: Replay, spec: BlockSpec, num_shards: int = 1) -> int:
    """Return the number of blocks that one of `num_shards` memories keeps."""
    return max(1, -(-dataflow.capacity // (num_shards * spec.horizon * spec.lanes)))


def bytes_needed(dataflow: Replay, spec: BlockSpec, num_shards: int = 1) -> int:
    """Return the size of a full memory in bytes."""
    slots = num_slots(dataflow, spec, num_shards)
    return slots * spec.lanes * spec.rows * row_nbytes(spec, stored_paths(spec))


class Buffers:
    """Arrays for one draw of up to `num_units` units."""

    def __init__(self, spec: BlockSpec, paths: list[str], num_units: int) -> None:
        kinds = dict(spec.arrays())
        self.num_units = num_units
        self.index, self.generation, self.places, self.ends = np.zeros((4, num_units), np.int64)
        self.reward, self.discount, self.weight = np.ones((3, num_units), np.float32)
        self.here = {path: kinds[path].empty(num_units) for path in paths}
        self.there = {path: kinds[path].empty(num_units) for path in paths if path.split("/")[0] == OBSERVATION}
        self.views: dict[int, Drawn] = {}  # by the number of gradient steps
        self.here_words = {path: as_words(array, 1) for path, array in self.here.items()}
        self.there_words = {path: as_words(array, 1) for path, array in self.there.items()}


class ReplayMemory:
    """Memory of the newest decisions. Not for use by several threads at once.

    Its content is in the `arena`, by default memory of this process. If the arena has the content of an earlier memory
    of the same size and layout, whose process was killed at any moment, the memory continues with it (`recovered`).
    """

    def __init__(
        self, dataflow: Replay, spec: BlockSpec, seed: int, num_shards: int = 1, arena: Arena | None = None
    ) -> None:
        if dataflow.batch % num_shards:
            raise ValueError(f"batch must be a multiple of the {num_shards} trainers; found {dataflow.batch}")
        assert isinstance(dataflow.unit, Transitions)
        self._unit = dataflow.unit
        self._batch = dataflow.batch // num_shards
        self._spec = spec
        self._paths = stored_paths(spec)
        arena = arena or Arena()
        self._ring = BlockRing(spec, num_slots(dataflow, spec, num_shards), self._paths, arena)
        units = self._ring.num_slots * self._ring.units_per_slot
        self._priorities = None if dataflow.priorities is None else PrioritizedUnits(dataflow.priorities, units, arena)
        self._random = arena.array("random", (1,), "uint64")  # state of a SplitMix64 generator
        self._buffers: list[Buffers | None] = [None] * NUM_BUFFERS
        self._turn = 0
        self._num_new = 0
        self.size = 0
        """Decisions that can be drawn."""
        self.recovered = arena.seal(f"{type(dataflow.unit).__name__} {spec}")
        """Whether the memory continues with what was in the arena."""
        if self.recovered:
            self._recover()
        else:
            self._random[0] = derive(seed, "replay")

    def _recover(self) -> None:
        ring = self._ring
        ring.recover()
        self.size = int(ring.num_acting[: ring.num_filled].sum())
        if self._priorities is not None:
            self._priorities.recover(ring.flags[: ring.num_strips, :-1].ravel() & ACTING != 0)

    @property
    def collected(self) -> int:
        """Decisions inserted so far."""
        return self._ring.collected

    @property
    def nbytes(self) -> int:
        """Size of the blocks when the memory is full."""
        return self._ring.nbytes

    def insert(self, arrays: Mapping[str, Array], track: Hashable, first_step: int) -> int:
        """Copy a block, and return the number of its decisions. It continues the last block of the same `track` (plain
        data: a string, a number or a tuple) if `first_step` is the step after that block."""
        ring = self._ring
        replaced = int(ring.num_acting[ring.next_slot])
        slot = ring.write(arrays, track, first_step)
        count = int(ring.num_acting[slot])
        if self._priorities is not None:
            self._priorities.insert(slot * ring.units_per_slot, ring.strips(slot)[0])
        ring.commit(slot)
        self.size += count - replaced
        self._num_new += count
        return count

    def draw(self, num_steps: int, progress: float) -> Drawn:
        """Draw `num_steps` minibatches. `progress`, from 0 to 1, is that of the run."""
        if num_steps and not self.size:
            raise ValueError("the replay memory is empty; insert a block with decisions before drawing")
        count = num_steps * self._batch
        buffers = self._next_buffers(count)
        index, places, ends = buffers.index[:count], buffers.places[:count], buffers.ends[:count]
        reward, discount, generation = buffers.reward[:count], buffers.discount[:count], buffers.generation[:count]
        ring = self._ring
        if self._priorities is None:
            draw_uniform(self._random, ring.flags, ring.num_strips, index)
        elif count:
            self._priorities.draw(self._random, self._batch, progress, index, buffers.weight[:count])
        generations_of(index, ring.units_per_slot, ring.generation, generation)
        unit, lanes = self._unit, self._spec.lanes
        n_step_returns(
            index,
            unit.n_step,
            unit.gamma,
            lanes,
            ring.flags,
            ring.rewards,
            ring.following,
            places,
            ends,
            reward,
            discount,
        )
        for path, store in ring.stores.items():
            store.take(places, buffers.here[path][:count], buffers.here_words[path][:count])
            if path in buffers.there:
                store.take(ends, buffers.there[path][:count], buffers.there_words[path][:count])
        return self._drawn(buffers, num_steps)

    def _next_buffers(self, count: int) -> Buffers:
        self._turn = (self._turn + 1) % NUM_BUFFERS
        buffers = self._buffers[self._turn]
        if buffers is None or buffers.num_units < count:
            buffers = self._buffers[self._turn] = Buffers(self._spec, self._paths, count)
        return buffers

    def _drawn(self, buffers: Buffers, num_steps: int) -> Drawn:
        if num_steps not in buffers.views:
            buffers.views[num_steps] = self._view(buffers, num_steps)
        drawn = buffers.views[num_steps]
        drawn = replace(drawn, batch=replace(drawn.batch, num_decisions=self._num_new))
        self._num_new = 0
        return drawn

    def _view(self, buffers: Buffers, num_steps: int) -> Drawn:
        size = self._batch

        def shaped(array: Array) -> Array:
            return array[: num_steps * size].reshape(num_steps, size, *array.shape[1:])

        here = from_leaves({path: shaped(array) for path, array in buffers.here.items()})
        there = from_leaves({path: shaped(array) for path, array in buffers.there.items()})
        batch = TransitionBatch(
            here[OBSERVATION],
            here[DECISION],
            shaped(buffers.reward),
            shaped(buffers.discount),
            there[OBSERVATION],
            shaped(buffers.weight),
            0,
        )
        return Drawn(batch, shaped(buffers.index), shaped(buffers.generation))

    def feedback(self, drawn: Drawn, priorities: Array) -> None:
        """Set the priorities [K, B] of drawn units. Units that were replaced since are ignored."""
        if self._priorities is not None:
            now = np.empty_like(drawn.generation)
            generations_of(drawn.index.ravel(), self._ring.units_per_slot, self._ring.generation, now.ravel())
            is_current = (now == drawn.generation).ravel()
            self._priorities.feedback(drawn.index.ravel(), is_current, np.asarray(priorities, np.float64).ravel())

    def age_of(self, drawn: Drawn) -> int:
        """Return the mean age of the last minibatch: decisions inserted since. Call it before the next insert."""
        if not len(drawn.index):
            return 0
        ring = self._ring
        slots = drawn.index[-1] // ring.units_per_slot
        return int(np.mean((ring.next_slot - 1 - slots) % ring.num_slots) * ring.units_per_slot)

    def state(self) -> State:
        fields = [self._num_new, int(self._random[0])]
        state = {"fields": pack(fields), **under("ring", self._ring.state())}
        if self._priorities is not None:
            num_units = self._ring.num_filled * self._ring.units_per_slot
            state |= under("priorities", self._priorities.state(num_units))
        return state

    def restore(self, state: State) -> None:
        """Continue from a saved state, in a new memory of the same size and layout."""
        self._ring.restore(part(state, "ring"))
        self._num_new, bits = unpack(state["fields"])
        self._random[0] = bits
        self.size = int(self._ring.num_acting[: self._ring.num_filled].sum())
        if self._priorities is not None:
            if not part(state, "priorities"):
                raise NotResumable("the saved memory has no priorities; resume with uniform draws")
            self._priorities.restore(part(state, "priorities"))
