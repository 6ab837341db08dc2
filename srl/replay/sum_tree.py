"""A sum tree: draws leaves in proportion to their values. Flat arrays and compiled operations on whole batches."""

from __future__ import annotations

import numpy as np
from numba import njit

from srl.base.tree import Array
from srl.replay.storage import Arena

FAN = 8  # children of a node: one cache line of float64

compiled = njit(cache=True, nogil=True, error_model="numpy")


class SumTree:
    """Sums of non-negative values over groups of 8, over groups of 8 of these, and so on.

    Every sum is computed from its children in their order, never by adding differences. There is no drift, and the
    leaves determine all sums bit by bit.
    """

    def __init__(self, num_leaves: int, arena: Arena | None = None) -> None:
        sizes = [_padded(num_leaves)]
        while sizes[0] > FAN:
            sizes.insert(0, _padded(sizes[0] // FAN))
        self._starts = np.cumsum([0, *sizes[:-1]])  # of each level in `_sums`, the root's children first
        # The memory begins at a page, so that siblings share a cache line.
        self._sums = (arena or Arena()).array("tree", (sum(sizes),), "float64")
        self.leaves = self._sums[self._starts[-1] :][:num_leaves]
        """Values of the leaves. Read only."""

    @property
    def total(self) -> float:
        return float(_total(self._sums))

    def set(self, leaves: Array, values: Array) -> None:
        """Set values of leaves, both [N]. Of repeated leaves, the last value counts."""
        _set(self._sums, self._starts, leaves, values)

    def set_range(self, begin: int, values: Array) -> None:
        """Set the values [N] of neighboring leaves."""
        _set_range(self._sums, self._starts, begin, values)

    def draw(self, uniform: Array, stratum_count: int, leaves: Array, values: Array) -> None:
        """Draw a leaf for each random number [N] in [0, 1). Draws are stratified in groups of `stratum_count`: one draw
        from each of as many equal parts of the total. Fills `leaves` (int64) and their `values` (float64), both [N].
        The total must be positive; leaves of value 0 are never drawn."""
        _draw(self._sums, self._starts, uniform, stratum_count, leaves, values)


def _padded(count: int) -> int:
    return max(1, -(-count // FAN)) * FAN


@compiled
def _total(sums: Array) -> float:
    return _sum_of(sums, 0)


@compiled
def _sum_of(sums: Array, begin: int) -> float:
    total = 0.0
    for k in range(FAN):
        total += sums[begin + k]
    return total


@compiled
def _set(sums: Array, starts: Array, leaves: Array, values: Array) -> None:
    last = len(starts) - 1
    for i in range(len(leaves)):
        sums[starts[last] + leaves[i]] = values[i]
    shift = 0
    for level in range(last, 0, -1):  # level by level, so that cache misses of different leaves overlap
        start, above = starts[level], starts[level - 1]
        shift += 3
        for i in range(len(leaves)):
            group = leaves[i] >> shift
            sums[above + group] = _sum_of(sums, start + group * FAN)


@compiled
def _set_range(sums: Array, starts: Array, begin: int, values: Array) -> None:
    last = len(starts) - 1
    for i in range(len(values)):
        sums[starts[last] + begin + i] = values[i]
    low, high = begin, begin + len(values) - 1
    for level in range(last, 0, -1):
        low, high = low // FAN, high // FAN
        for group in range(low, high + 1):
            sums[starts[level - 1] + group] = _sum_of(sums, starts[level] + group * FAN)


@compiled
def _draw(sums: Array, starts: Array, uniform: Array, stratum_count: int, leaves: Array, values: Array) -> None:
    width = _sum_of(sums, 0) / stratum_count
    stratum = 0
    for i in range(len(uniform)):
        values[i] = (stratum + uniform[i]) * width  # what remains to be passed, on the way down
        leaves[i] = 0
        stratum = stratum + 1 if stratum + 1 < stratum_count else 0
    for level in range(len(starts)):
        start = starts[level]
        for i in range(len(uniform)):
            begin, rest = start + leaves[i] * FAN, values[i]
            child, passed, running = 0, 0.0, 0.0
            for k in range(FAN):
                running += sums[begin + k]
                if rest >= running:
                    child, passed = k + 1, running
            if child == FAN:  # rounding: the last child that is not empty
                child = FAN - 1
                while child > 0 and sums[begin + child] == 0.0:
                    child -= 1
                passed = running - sums[begin + child]
            leaves[i] = leaves[i] * FAN + child
            values[i] = rest - passed
    start = starts[len(starts) - 1]
    for i in range(len(uniform)):
        values[i] = sums[start + leaves[i]]
