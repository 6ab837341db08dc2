"""The ring of blocks behind a replay memory: slots, generations, and the chains of blocks that continue each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from srl.api.block import BlockSpec
from srl.base.state import NotResumable, State, pack, part, under, unpack
from srl.base.tree import Array, ArraySpec
from srl.replay.kernels import write_steps
from srl.replay.storage import Arena, ArrayStore, RowStore

NONE = -1


class BlockRing:
    """The newest blocks, each in a slot; a new block replaces the oldest one.

    Rows of a lane are next to each other: arrays are [slots, L, T+1, ...]. `following` and `preceding` chain the slots
    of a track; where a block is missing, the chain is cut. `generation` counts how often a slot was written, so that
    feedback on replaced blocks can be recognized.
    """

    def __init__(self, spec: BlockSpec, num_slots: int, paths: Iterable[str], arena: Arena) -> None:
        self.spec = spec
        self.num_slots = num_slots
        self.num_filled = 0
        self.next_slot = 0
        self.units_per_slot = spec.horizon * spec.lanes
        self.generation = np.zeros(num_slots, np.int64)
        self.following = np.full(num_slots, NONE, np.int64)
        self.preceding = np.full(num_slots, NONE, np.int64)
        self.num_acting = np.zeros(num_slots, np.int64)  # decisions in each slot
        self.flags = arena.array((num_slots * spec.lanes, spec.rows), "uint8")
        self.rewards = arena.array((num_slots * spec.lanes, spec.rows), "float32")
        kinds = dict(spec.arrays())
        self.stores: dict[str, ArrayStore] = {
            path: RowStore(kinds[path], num_slots, spec.rows, spec.lanes, arena) for path in paths
        }
        self._newest: dict[Any, tuple[int, int]] = {}  # track -> slot of its newest block, and the step after it
        self._track_of: list[Any] = [None] * num_slots

    @property
    def num_strips(self) -> int:
        """Number of strips with data; they are the first ones."""
        return self.num_filled * self.spec.lanes

    @property
    def nbytes(self) -> int:
        return self.flags.nbytes + self.rewards.nbytes + sum(store.nbytes for store in self.stores.values())

    def strips(self, slot: int) -> tuple[Array, Array]:
        """Return flags and rewards [L, T+1] of a slot."""
        own = slice(slot * self.spec.lanes, (slot + 1) * self.spec.lanes)
        return self.flags[own], self.rewards[own]

    def insert(self, arrays: Mapping[str, Array], track: Any, first_step: int) -> int:
        """Copy a block, and return its slot."""
        slot = self.next_slot
        self._recycle(slot)
        self.next_slot = (slot + 1) % self.num_slots
        self.num_filled = max(self.num_filled, slot + 1)
        flags, rewards = self.strips(slot)
        self.num_acting[slot] = write_steps(
            arrays["acting"],
            arrays["terminated"],
            arrays["truncated"],
            arrays["first"],
            arrays["reward"],
            flags,
            rewards,
        )
        for path, store in self.stores.items():
            store.write(slot, arrays[path])
        before, step = self._newest.get(track, (NONE, NONE))
        if before != NONE and step == first_step:
            self.following[before], self.preceding[slot] = slot, before
        self._newest[track] = slot, first_step + self.spec.horizon
        self._track_of[slot] = track
        return slot

    def _recycle(self, slot: int) -> None:
        """Cut a slot out of its chain. The feedback on its old units is ignored from now on."""
        self.generation[slot] += 1
        for links, back in ((self.following, self.preceding), (self.preceding, self.following)):
            if links[slot] != NONE:
                back[links[slot]] = NONE
                links[slot] = NONE
        track = self._track_of[slot]
        if track is not None and self._newest[track][0] == slot:
            del self._newest[track]

    def state(self) -> State:
        filled = self.num_filled
        tracks = [[track, slot, step] for track, (slot, step) in self._newest.items()]
        owners = self._track_of[:filled]
        return {
            "fields": pack([self.num_slots, filled, self.next_slot, tracks, owners]),
            "generation": self.generation[:filled].copy(),
            "following": self.following[:filled].copy(),
            "preceding": self.preceding[:filled].copy(),
            "num_acting": self.num_acting[:filled].copy(),
            "flags": self.flags[: self.num_strips].copy(),
            "rewards": self.rewards[: self.num_strips].copy(),
            **{
                key: value
                for path, store in self.stores.items()
                for key, value in under(f"array/{path}", store.state(filled)).items()
            },
        }

    def restore(self, state: State) -> None:
        num_slots, filled, next_slot, tracks, owners = unpack(state["fields"])
        shape = (filled * self.spec.lanes, self.spec.rows)
        missing = [path for path in self.stores if not part(state, f"array/{path}")]
        if num_slots != self.num_slots or state["flags"].shape != shape or missing:
            raise NotResumable(
                f"the saved memory has {num_slots} blocks and flags {state['flags'].shape}, expected "
                f"{self.num_slots} and {shape}; missing arrays: {missing}; resume with the same lanes, horizon and size"
            )
        self.num_filled, self.next_slot = filled, next_slot
        for name in ("generation", "following", "preceding", "num_acting"):
            getattr(self, name)[:filled] = state[name]
        self.flags[: self.num_strips] = state["flags"]
        self.rewards[: self.num_strips] = state["rewards"]
        for path, store in self.stores.items():
            store.restore(part(state, f"array/{path}"))
        self._newest = {_hashable(track): (slot, step) for track, slot, step in tracks}
        self._track_of[:filled] = map(_hashable, owners)


def row_nbytes(spec: BlockSpec, paths: Iterable[str]) -> int:
    """Return the bytes of one row of one lane, including its reward and flags."""
    kinds: dict[str, ArraySpec] = dict(spec.arrays())
    return 5 + sum(kinds[path].nbytes for path in paths)


def _hashable(value: Any) -> Any:
    """Undo what JSON does to tuples."""
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
