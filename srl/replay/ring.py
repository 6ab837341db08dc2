"""The ring of blocks behind a replay memory: slots, generations, and the chains of blocks that continue each other."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from functools import lru_cache

import numpy as np

from srl.api.block import BlockSpec
from srl.base.state import NotResumable, State, pack, part, under, unpack
from srl.base.tree import Array
from srl.replay.kernels import write_steps
from srl.replay.storage import Arena, ArrayStore

NONE = -1
HUGE_PAGE_REQUESTS = 1024  # while the ring is filled: each takes the time to copy the rows since the last one
FACTS = ("generation", "track", "first_step", "num_acting", "collected")


class BlockRing:
    """The newest blocks, each in a slot; a new block replaces the oldest one.

    Rows of a lane are next to each other: arrays are [slots, L, T+1, ...]. `following` and `preceding` chain the slots
    of a track; where a block is missing, the chain is cut. Everything else is in the arena. `generation` is the number
    of the insertion that filled a slot, and is 0 while the slot is written: it is set last, so that a ring whose
    process was killed at any moment consists of complete blocks.
    """

    def __init__(self, spec: BlockSpec, num_slots: int, stores: Mapping[str, ArrayStore], arena: Arena) -> None:
        self.spec = spec
        self._arena = arena
        self.num_slots = num_slots
        self.num_filled = 0
        self.next_slot = 0
        self.num_inserted = 0
        self.collected = 0
        """Decisions inserted so far."""
        self.generation = arena.array("slot/generation", (num_slots,), "int64")
        self.track = arena.array("slot/track", (num_slots,), "uint64")  # hash of the block's track
        self.first_step = arena.array("slot/first_step", (num_slots,), "int64")
        self.num_acting = arena.array("slot/num_acting", (num_slots,), "int64")  # decisions in each slot
        self._collected = arena.array("slot/collected", (num_slots,), "int64")  # `collected` after each block
        self.flags = arena.array("slot/flags", (num_slots * spec.lanes, spec.rows), "uint8")
        self.rewards = arena.array("slot/rewards", (num_slots * spec.lanes, spec.rows), "float32")
        self.stores = dict(stores)  # by the path of the array
        self.following = np.full(num_slots, NONE, np.int64)
        self.preceding = np.full(num_slots, NONE, np.int64)
        self._newest: dict[int, int] = {}  # track -> slot of its newest block

    @property
    def num_strips(self) -> int:
        """Number of strips with data; they are the first ones."""
        return self.num_filled * self.spec.lanes

    @property
    def nbytes(self) -> int:
        return self.flags.nbytes + self.rewards.nbytes + sum(store.nbytes for store in self.stores.values())

    def newest(self, num_slots: int | None) -> tuple[int, int]:
        """Return the first one and the number of the newest slots with data, `num_slots` at most; None: all of them.
        After the last slot with data comes slot 0."""
        if num_slots is None or num_slots >= self.num_filled:
            return 0, self.num_filled
        return (self.next_slot - num_slots) % self.num_filled, num_slots

    def strips(self, slot: int) -> tuple[Array, Array]:
        """Return flags and rewards [L, T+1] of a slot."""
        own = slice(slot * self.spec.lanes, (slot + 1) * self.spec.lanes)
        return self.flags[own], self.rewards[own]

    def write(self, arrays: Mapping[str, Array], track: Hashable, first_step: int) -> int:
        """Copy a block into the next slot, and return the slot. The block counts after `commit`."""
        slot = self.next_slot
        self._recycle(slot)
        flags, rewards = self.strips(slot)
        count = write_steps(
            arrays["acting"],
            arrays["terminated"],
            arrays["truncated"],
            arrays["first"],
            arrays["reward"],
            flags,
            rewards,
        )
        self.num_acting[slot] = count
        self.track[slot], self.first_step[slot] = key_of(track), first_step
        self._collected[slot] = self.collected + count
        self._link(slot)
        for path, store in self.stores.items():
            store.write(slot, arrays[path], int(self.preceding[slot]))
        return slot

    def commit(self, slot: int) -> None:
        """Make a block that was written count."""
        self.num_inserted += 1
        self.generation[slot] = self.num_inserted
        self.collected = int(self._collected[slot])
        self.next_slot = (slot + 1) % self.num_slots
        if slot == self.num_filled:
            self.num_filled += 1
            if self.num_filled % -(-self.num_slots // HUGE_PAGE_REQUESTS) == 0:
                self._arena.use_huge_pages(self.num_filled / self.num_slots)

    def _link(self, slot: int) -> None:
        """Chain a block to the one before, if that is the newest block of its track and nothing is missing."""
        track = int(self.track[slot])
        before = self._newest.get(track, NONE)
        if before != NONE and self.first_step[before] + self.spec.horizon == self.first_step[slot]:
            self.following[before], self.preceding[slot] = slot, before
        self._newest[track] = slot

    def _recycle(self, slot: int) -> None:
        """Cut a slot out of its chain. The feedback on its old units is ignored from now on."""
        track = int(self.track[slot])
        if self._newest.get(track) == slot:
            del self._newest[track]
        self.generation[slot] = 0
        for links, back in ((self.following, self.preceding), (self.preceding, self.following)):
            if links[slot] != NONE:
                back[links[slot]] = NONE
                links[slot] = NONE

    def recover(self) -> None:
        """Continue with the blocks in the arena, which another process wrote. Slots without a complete block are
        emptied."""
        complete = np.flatnonzero(self.generation)
        order = complete[np.argsort(self.generation[complete])]
        self.following[...] = self.preceding[...] = NONE
        self._newest.clear()
        self.num_filled = self.next_slot = self.num_inserted = self.collected = 0
        if len(order):
            newest = int(order[-1])
            self.num_filled, self.next_slot = int(order.max()) + 1, (newest + 1) % self.num_slots
            self.num_inserted, self.collected = int(self.generation[newest]), int(self._collected[newest])
        empty = np.flatnonzero(self.generation[: self.num_filled] == 0)
        self.flags.reshape(self.num_slots, -1)[empty] = 0
        self.num_acting[empty] = 0
        for slot in order.tolist():
            self._link(slot)
        self._arena.use_huge_pages(self.num_filled / self.num_slots)
        for store in self.stores.values():
            store.recover(self.generation != 0)

    def state(self) -> State:
        filled = self.num_filled
        facts = {name: array[:filled].copy() for name, array in self._facts()}
        return {
            "fields": pack([self.num_slots, filled]),
            **facts,
            "flags": self.flags[: self.num_strips].copy(),
            "rewards": self.rewards[: self.num_strips].copy(),
            **{
                key: value
                for path, store in self.stores.items()
                for key, value in under(f"array/{path}", store.state(filled)).items()
            },
        }

    def restore(self, state: State) -> None:
        num_slots, filled = unpack(state["fields"])
        shape = (filled * self.spec.lanes, self.spec.rows)
        missing = [path for path in self.stores if not part(state, f"array/{path}")]
        if num_slots != self.num_slots or state["flags"].shape != shape or missing:
            raise NotResumable(
                f"the saved memory has {num_slots} blocks and flags {state['flags'].shape}, expected "
                f"{self.num_slots} and {shape}; missing arrays: {missing}; resume with the same lanes, horizon and size"
            )
        self.generation[...] = 0
        self.flags[: len(state["flags"])] = state["flags"]
        self.rewards[: len(state["rewards"])] = state["rewards"]
        for path, store in self.stores.items():
            store.restore(part(state, f"array/{path}"))
        for name, array in reversed(self._facts()):
            array[:filled] = state[name]
        self.recover()

    def _facts(self) -> list[tuple[str, Array]]:
        return list(
            zip(FACTS, (self.generation, self.track, self.first_step, self.num_acting, self._collected), strict=True)
        )


@lru_cache(1 << 12)
def key_of(track: Hashable) -> int:
    """Return a hash of a track (plain data) that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(pack(track).tobytes(), digest_size=8).digest(), "little")
