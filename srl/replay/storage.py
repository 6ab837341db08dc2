"""Storage of one array of the blocks, by place; and the memory that it is in."""

from __future__ import annotations

import mmap
import sys
from abc import ABC, abstractmethod

import numpy as np

from srl.base.shared_memory import KeptMemory
from srl.base.state import NotResumable, State
from srl.base.tree import Array, ArraySpec
from srl.replay.kernels import take_rows

NO_RESERVE = 0x4000 if sys.platform == "linux" else 0  # a constant that the module mmap lacks before Python 3.13
"""Flag of a mapping that may be larger than the memory of the machine, because most of it is never written."""
WORDS = ("uint64", "uint32", "uint16", "uint8")


class Arena:
    """Source of large arrays, which the operating system fills with memory as they are written: memory of this process
    or, with `kept`, memory that outlives it."""

    def __init__(self, kept: KeptMemory | None = None) -> None:
        self._kept = kept

    def array(self, name: str, shape: tuple[int, ...], dtype: str, reserved: int | None = None) -> Array:
        """Return a new array, which is zero unless `seal` finds that it was kept. `reserved` is the number of bytes
        that will be used, by default all.

        Names say how arrays are saved. The first axis of `slot/NAME` counts the slots of a ring, or is a multiple of
        their number: it is saved slot by slot. `pool/NAME` has rows that `slot/NAME` refers to by their numbers: they
        are saved with the slots, and must not change while a complete slot refers to them. Others are saved whole."""
        if self._kept is not None:
            return self._kept.array(name, shape, dtype, reserved)
        count = int(np.prod(shape, dtype=np.int64))
        nbytes = max(1, count * np.dtype(dtype).itemsize)
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)  # draws touch random rows
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def seal(self, label: str) -> bool:
        """Return whether all arrays have the content that an earlier process left. `label` is what else must be equal.
        Call it after the last array."""
        return self._kept is not None and self._kept.seal(label)

    def use_huge_pages(self, share: float) -> None:
        """Use huge pages for the first `share` of the arrays, which has been written. Own memory has them anyway."""
        if self._kept is not None:
            self._kept.use_huge_pages(share)


def as_words(array: Array, leading: int) -> Array:
    """Return a contiguous array [..., *shape] as rows of the largest words: [N, words]. The first `leading` axes count
    the rows."""
    rows = int(np.prod(array.shape[:leading], dtype=np.int64))
    size = int(np.prod(array.shape[leading:], dtype=np.int64))
    kind = next(word for word in WORDS if size * array.dtype.itemsize % np.dtype(word).itemsize == 0)
    return array.reshape(rows, size).view(kind)


class ArrayStore(ABC):
    """One array of all blocks in a ring."""

    nbytes: int

    @abstractmethod
    def write(self, slot: int, values: Array, before: int) -> None:
        """Copy a block's array [T+1, L, ...] into a slot. It continues the block in the slot `before`, unless that is
        -1: row 0 is usually the last row of that block."""

    @abstractmethod
    def take(self, places: Array, target: Array) -> None:
        """Copy the rows at `places` [N] into `target` [N, words], an array of such rows `as_words`."""

    def take_pairs(self, places: Array, target: Array, ends: Array, target_ends: Array) -> None:
        """Copy the rows at `places` [N] and those at `ends` [N], which may have much in common."""
        self.take(places, target)
        self.take(ends, target_ends)

    def put(self, places: Array, values: Array) -> None:
        """Overwrite the rows at `places` [N] with values [N, ...]."""
        raise NotImplementedError(f"rows of a {type(self).__name__} cannot be overwritten")

    @abstractmethod
    def state(self, num_slots: int) -> State:
        """Return the first slots."""

    @abstractmethod
    def restore(self, state: State) -> None:
        """Continue from a saved state."""

    def recover(self, complete: Array) -> None:
        """Continue with what another process wrote into the arena. `complete` [slots] marks the slots that count."""
        return


class RowStore(ArrayStore):
    """Every row as it is."""

    def __init__(self, path: str, spec: ArraySpec, num_slots: int, num_rows: int, lanes: int, arena: Arena) -> None:
        self._array = arena.array(f"slot/{path}", (num_slots, lanes, num_rows, *spec.shape), spec.dtype)
        self._words = as_words(self._array, 3)
        self.nbytes = self._array.nbytes

    def write(self, slot: int, values: Array, before: int) -> None:
        self._array[slot] = values.swapaxes(0, 1)

    def take(self, places: Array, target: Array) -> None:
        take_rows(self._words, places, target)

    def put(self, places: Array, values: Array) -> None:
        self._words[places] = as_words(np.ascontiguousarray(values, self._array.dtype), 1)

    def state(self, num_slots: int) -> State:
        return {"rows": self._array[:num_slots].copy()}

    def restore(self, state: State) -> None:
        rows = state["rows"]
        if rows.shape[1:] != self._array.shape[1:] or len(rows) > len(self._array):
            raise NotResumable(f"the saved rows have the shape {rows.shape}, the memory has {self._array.shape}")
        self._array[: len(rows)] = rows
