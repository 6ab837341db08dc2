"""Units of replay: which units the blocks of a ring contain, and the batch that drawn units expand to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from srl.api.block import STATE, BlockSpec
from srl.api.dataflow import Sequences, Transitions
from srl.base.tree import Array, from_leaves
from srl.replay.ring import BlockRing
from srl.replay.storage import as_words

OBSERVATION, DECISION = "observation", "decision"


class Changed(NamedTuple):
    """Units that an insert changed."""

    own: Array  # [units per slot] bool: which units of the new block can be drawn
    earlier: Array  # [N] int64: units of earlier blocks that can be drawn from now on


class Units(ABC):
    """The units in a ring. They are numbered; each slot has `per_slot` of them, some of which cannot be drawn."""

    ring: BlockRing
    per_slot: int
    num_drawable: int
    newest: int | None = None
    """Number of the newest slots from which uniform draws are made; None: all."""

    def window(self, counts: Array) -> tuple[int, int]:
        """Return the first one and the number of the slots from which to draw: all of them, if the newest ones have no
        units. `counts` [slots] are numbers of units that can be drawn."""
        first, number = self.ring.newest(self.newest)
        has_units = self.newest is None or counts[slots_of(first, number, self.ring.num_filled)].any()
        return (first, number) if has_units else self.ring.newest(None)

    @abstractmethod
    def insert(self, slot: int) -> Changed:
        """Note that a new block was written into a slot."""

    @abstractmethod
    def draw(self, random: Array, units: Array) -> None:
        """Fill `units` [N] with units, drawn with equal probability."""

    @abstractmethod
    def new_buffers(self, num_units: int) -> Any:
        """Return arrays for the data of up to `num_units` units."""

    @abstractmethod
    def expand(self, units: Array, batch: int, buffers: Any) -> None:
        """Copy the data of `units` [N], in minibatches of `batch`, into the buffers."""

    @abstractmethod
    def view(self, buffers: Any, num_steps: int, batch: int, weight: Array) -> Any:
        """Return the batch of `num_steps` minibatches whose arrays are these buffers."""

    @abstractmethod
    def drawable(self) -> Array:
        """Return which of the units [N] of the filled slots can be drawn, as bool."""

    @abstractmethod
    def restored(self) -> None:
        """Find the units that can be drawn, after the ring was restored."""


class Rows:
    """Buffers for rows of some of the block's arrays, [N, ...] by path."""

    def __init__(self, ring: BlockRing, num_rows: int, *roots: str) -> None:
        kinds = dict(ring.spec.arrays())
        self._stores = {path: store for path, store in ring.stores.items() if path.split("/")[0] in roots}
        self.arrays = {path: kinds[path].empty(num_rows) for path in self._stores}
        self._words = {path: as_words(array, 1) for path, array in self.arrays.items()}

    def take(self, places: Array) -> None:
        """Copy the rows at `places` [N] into the first N rows."""
        for path, store in self._stores.items():
            store.take(places, self._words[path][: len(places)])

    def take_again(self, places: Array, paths: Collection[str]) -> None:
        """Copy the rows at `places` [N] once more, for some of the paths."""
        for path in paths:
            self._stores[path].take(places, self._words[path][: len(places)])

    def take_with(self, places: Array, other: Rows, ends: Array) -> None:
        """Copy the rows at `places` [N], and those at `ends` [N] into other buffers."""
        count = len(places)
        for path, store in self._stores.items():
            if path in other.arrays:
                store.take_pairs(places, self._words[path][:count], ends, other._words[path][:count])
            else:
                store.take(places, self._words[path][:count])

    def tree(self, *shape: int) -> Any:
        """Return the first rows, with the axes `shape` instead of one axis, as a tree."""
        return from_leaves({path: shaped(array, *shape) for path, array in self.arrays.items()})


def slots_of(first: int, number: int, num_filled: int) -> Array:
    """Return slots from `first` on, in their order; after the last one with data comes slot 0."""
    slots: Array = (first + np.arange(number)) % num_filled
    return slots


def shaped(array: Array, *shape: int) -> Array:
    """Return the first rows of an array [N, ...] with the axes `shape` instead of N."""
    return array[: int(np.prod(shape))].reshape(*shape, *array.shape[1:])


def starts_per_block(unit: Sequences, horizon: int) -> int:
    """Return the largest number of rows of a block at which sequences may start."""
    return -(-horizon // unit.period)


def stored_rows(unit: Transitions | Sequences, spec: BlockSpec) -> dict[str, int]:
    """Return the paths of the arrays that are kept, and the rows of each that a block keeps. The memory of a recurrent
    policy, which may be larger than all the rest, is kept only where sequences may start."""
    rows: dict[str, int] = {}
    for path, _ in spec.arrays():
        root, _, rest = path.partition("/")
        if root == OBSERVATION or (root == DECISION and rest.split("/")[0] != STATE):
            rows[path] = spec.rows
        elif root == STATE and isinstance(unit, Sequences):
            rows[path] = starts_per_block(unit, spec.horizon)
    return rows


def numbering(unit: Transitions | Sequences) -> str:
    """Return a text that is equal for units that are numbered and stored alike."""
    name = type(unit).__name__
    return f"{name} every {unit.period} of {unit.num_agents}" if isinstance(unit, Sequences) else name


def rows_kept(
    arrays: Mapping[str, Array], unit: Transitions | Sequences, first_step: int, horizon: int
) -> Mapping[str, Array]:
    """Return a block's arrays, with only those recurrent states before which a sequence may start."""
    recurrent = [path for path in arrays if path.split("/")[0] == STATE]
    if not recurrent or not isinstance(unit, Sequences):
        return arrays
    at = -first_step % unit.period + unit.period * np.arange(starts_per_block(unit, horizon))
    return {**arrays, **{path: arrays[path][np.minimum(at, horizon)] for path in recurrent}}
