"""Stacks of frames, stored as single frames: a frame that several stacks contain is stored once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from srl.base.state import NotResumable, State
from srl.base.tree import Array, ArraySpec
from srl.replay.storage import Arena, ArrayStore, RowStore, as_words

STACK_SIZES = (2, 4, 5, 6, 7, 8)  # 3 is the number of colors
SMALLEST_FRAME = 1024  # in bytes
EXTRA_SHARE = 32
"""One frame for every 32 rows is expected in addition to one for each row: at starts of episodes and after gaps."""
ZERO_FRAME = 0  # number of the frame of zeros, which pads stacks at the start of an episode

compiled = njit(cache=True, nogil=True, error_model="numpy")


def is_stack(path: str, spec: ArraySpec) -> bool:
    """Return whether an array of a block looks like a stack of images."""
    return (
        path.split("/")[0] == "observation"
        and spec.dtype == "uint8"
        and len(spec.shape) >= 3
        and spec.shape[0] in STACK_SIZES
        and math.prod(spec.shape[1:]) >= SMALLEST_FRAME
    )


def build_store(path: str, spec: ArraySpec, num_slots: int, num_rows: int, lanes: int, arena: Arena) -> ArrayStore:
    """Return the store for one array of the blocks."""
    kind = FrameStore if is_stack(path, spec) else RowStore
    return kind(path, spec, num_slots, num_rows, lanes, arena)


def store_nbytes(path: str, spec: ArraySpec, num_slots: int, num_rows: int, lanes: int) -> int:
    """Return the bytes that the store is expected to use when it is full."""
    if not is_stack(path, spec):
        return num_slots * lanes * num_rows * spec.nbytes
    table = num_slots * lanes * num_rows * spec.shape[0] * 4
    return table + expected_frames(spec.shape[0], num_slots, num_rows, lanes) * (spec.nbytes // spec.shape[0] + 4)


def expected_frames(stack: int, num_slots: int, num_rows: int, lanes: int) -> int:
    """Return the number of frames for stacks that move by one frame in every step: the last row of a block is the first
    row of the next one."""
    steps = num_slots * lanes * (num_rows - 1)
    return steps + steps // EXTRA_SHARE + stack * lanes + 1


class FrameStore(ArrayStore):
    """Rows that are stacks [S, ...] of frames. A table says which frames a row consists of.

    A frame is shared with a row if its bytes are equal: with the frame at the next position of the row before it (the
    stack has moved by one frame), with the frame at the previous position of the same row (padding with the first
    frame), with a frame of zeros (padding), or in the first row of a block with the same position of the last row of
    the block before it. All other frames are stored, so that every row comes back exactly, also if it is no stack; it
    then takes as much memory as in a RowStore. Frames count the rows that use them, and are free without any.
    """

    def __init__(self, path: str, spec: ArraySpec, num_slots: int, num_rows: int, lanes: int, arena: Arena) -> None:
        self._spec = spec
        stack, frame = spec.shape[0], spec.nbytes // spec.shape[0]
        self._expected = store_nbytes(path, spec, num_slots, num_rows, lanes)
        self._table = arena.array(f"slot/{path}", (num_slots, lanes, num_rows, stack), "int32")
        self._numbers = self._table.reshape(-1, stack)
        most = num_slots * lanes * num_rows * stack + 1  # memory is used only for frames that are written
        reserved = expected_frames(stack, num_slots, num_rows, lanes) * frame
        self._frames = as_words(arena.array(f"pool/{path}", (most, *spec.shape[1:]), spec.dtype, reserved), 1)
        self._uses = np.zeros(most, np.int32)
        self._free = np.zeros(most, np.int32)  # a stack of the numbers of free frames
        self._counts = np.array([0, 1], np.int64)  # free frames in `_free`; the lowest number that was never used

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes that are expected when the store is full, or used already if they are more."""
        frame = self._spec.nbytes // self._spec.shape[0] + 4
        return max(self._expected, self._table.nbytes + int(self._counts[1]) * frame)

    @property
    def num_frames(self) -> int:
        """Number of frames in use, including the one of zeros."""
        return int(self._counts[1] - self._counts[0])

    def write(self, slot: int, values: Array, before: int) -> None:
        rows, lanes, stack = values.shape[:3]
        words = as_words(np.ascontiguousarray(values), 3).reshape(rows, lanes, stack, -1)
        _write(slot, words, before, self._table, self._frames, self._uses, self._free, self._counts)

    def take(self, places: Array, target: Array) -> None:
        _take(self._numbers, self._frames, places, self._stacks(target))

    def take_pairs(self, places: Array, target: Array, ends: Array, target_ends: Array) -> None:
        _take_pairs(self._numbers, self._frames, places, self._stacks(target), ends, self._stacks(target_ends))

    def _stacks(self, words: Array) -> Array:
        return words.view(self._frames.dtype).reshape(len(words), self._spec.shape[0], self._frames.shape[1])

    def state(self, num_slots: int) -> State:
        table = self._table[:num_slots]
        used = np.union1d(table, ZERO_FRAME)
        numbers = np.searchsorted(used, table).astype(np.int32)
        return {"table": numbers, "frames": self._frames[used].copy()}

    def restore(self, state: State) -> None:
        table, frames = state["table"], state["frames"]
        if table.shape[1:] != self._table.shape[1:] or frames.shape[1:] != self._frames.shape[1:]:
            raise NotResumable(
                f"the saved frames have the shapes {table.shape} and {frames.shape}, the memory has "
                f"{self._table.shape} and {self._frames.shape}"
            )
        self._table[: len(table)] = table
        self._frames[: len(frames)] = frames
        self.recover(np.arange(len(self._table)) < len(table))

    def recover(self, complete: Array) -> None:
        self._table[~complete] = ZERO_FRAME
        self._uses[:] = np.bincount(self._table.ravel(), minlength=len(self._uses))
        self._uses[ZERO_FRAME] = 0  # its uses are not counted
        used = np.flatnonzero(self._uses)
        unused = int(used[-1]) + 1 if len(used) else ZERO_FRAME + 1
        free = np.flatnonzero(self._uses[1:unused] == 0) + 1
        self._free[: len(free)] = free
        self._counts[:] = len(free), unused


@compiled
def _equal(one: Array, other: Array) -> bool:
    """Return whether two rows of words are equal. Compares in pieces, which the compiler vectorizes."""
    size = len(one)
    for begin in range(0, size, 64):
        different = one[begin] ^ other[begin]
        for k in range(begin, min(begin + 64, size)):
            different |= one[k] ^ other[k]
        if different:
            return False
    return True


@compiled
def _copy(source: Array, target: Array) -> None:
    for k in range(len(source)):
        target[k] = source[k]


@compiled
def _new_frame(frame: Array, frames: Array, free: Array, counts: Array) -> Any:
    """Store a frame, and return its number."""
    if counts[0]:
        counts[0] -= 1
        number = np.int64(free[counts[0]])
    else:
        number = counts[1]
        counts[1] += 1
    _copy(frame, frames[number])
    return number


@compiled
def _write(
    slot: int,
    values: Array,
    before: int,
    table: Array,
    frames: Array,
    uses: Array,
    free: Array,
    counts: Array,
) -> None:
    """Store rows [T+1, L, S, words] of a block, instead of those that are in its slot."""
    num_rows, lanes, stack = values.shape[:3]
    for lane in range(lanes):
        for row in range(num_rows):
            for j in range(stack):
                number = table[slot, lane, row, j]
                if number != ZERO_FRAME:
                    uses[number] -= 1
                    if uses[number] == 0:
                        free[counts[0]] = number
                        counts[0] += 1
    for lane in range(lanes):
        for row in range(num_rows):
            for j in range(stack):
                frame, number = values[row, lane, j], np.int64(-1)
                if row == 0:
                    if before >= 0 and _equal(frame, frames[table[before, lane, num_rows - 1, j]]):
                        number = np.int64(table[before, lane, num_rows - 1, j])
                elif j + 1 < stack and _equal(frame, values[row - 1, lane, j + 1]):
                    number = np.int64(table[slot, lane, row - 1, j + 1])
                if number < 0 and j > 0 and _equal(frame, values[row, lane, j - 1]):
                    number = np.int64(table[slot, lane, row, j - 1])
                if number < 0:
                    number = np.int64(ZERO_FRAME)
                    if not _equal(frame, frames[ZERO_FRAME]):
                        number = _new_frame(frame, frames, free, counts)
                table[slot, lane, row, j] = number
                if number != ZERO_FRAME:
                    uses[number] += 1


@compiled
def _take(table: Array, frames: Array, places: Array, target: Array) -> None:
    """Copy the stacks at `places` [N] into `target` [N, S, words]."""
    for i in range(len(places)):
        for j in range(table.shape[1]):
            _copy(frames[table[places[i], j]], target[i, j])


@compiled
def _take_pairs(table: Array, frames: Array, places: Array, target: Array, ends: Array, target_ends: Array) -> None:
    """Copy the stacks at `places` [N] and `ends` [N], one after the other: the second one finds the frames that both
    have in the cache."""
    for i in range(len(places)):
        for j in range(table.shape[1]):
            _copy(frames[table[places[i], j]], target[i, j])
        for j in range(table.shape[1]):
            _copy(frames[table[ends[i], j]], target_ends[i, j])
