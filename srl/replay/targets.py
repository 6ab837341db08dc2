"""Targets in a replay memory that are made again: the version that made those of each row, and which are too old."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import njit

from srl.api.dataflow import Reanalysis
from srl.base.state import State
from srl.base.tree import Array
from srl.replay.kernels import ACTING
from srl.replay.ring import BlockRing
from srl.replay.sequences import SequenceBuffers
from srl.replay.storage import Arena
from srl.replay.units import DECISION, OBSERVATION, Rows

compiled = njit(cache=True, nogil=True, error_model="numpy")

BEING_WRITTEN = -(2**31)
"""Version of a row whose targets are being overwritten: older than any bound, also after a kill."""
Searched: TypeAlias = Callable[[Any], tuple[Mapping[str, Array], int]]
"""Returns new targets by name for observations [N, ...], and the version that made them."""


class StaleRows(NamedTuple):
    """Rows whose targets are to be made again."""

    places: Array  # [N] int64
    generation: Array  # [N] int64, of their slots
    observation: Any  # tree of [N, ...]


class Targets:
    """The versions of the targets of all rows. The memory that has them is the only one that writes to the rows: new
    targets come to it from wherever they are made, so that no reader sees a part of them."""

    def __init__(self, options: Reanalysis, ring: BlockRing, arena: Arena) -> None:
        self._options, self._ring = options, ring
        self.max_age = options.max_age
        self._paths = {name: f"{DECISION}/{name}" for name in options.arrays}
        if missing := [path for path in self._paths.values() if path not in ring.stores]:
            raise ValueError(f"a reanalysis needs the decision arrays {', '.join(missing)}, which no decision has")
        shape = ring.num_slots * ring.spec.lanes, ring.spec.rows
        self._versions = arena.array("slot/target_version", shape, "int32")
        self._flat = self._versions.reshape(-1)
        self._flags = ring.flags.reshape(-1)
        self._sweep = 0  # place at which the search for the next rows begins

    def insert(self, slot: int, version: Array) -> None:
        """Note the versions [T+1, L] of the decisions of a new block."""
        own = slice(slot * self._ring.spec.lanes, (slot + 1) * self._ring.spec.lanes)
        self._versions[own] = version.T

    def refresh(self, buffers: SequenceBuffers, shape: tuple[int, ...], update: int, searched: Searched) -> None:
        """Make the targets in drawn sequences [K, R+1, N] again that are too old for an update. `searched` must use a
        version that is not. Another call of `age` then is at most the largest age."""
        found = self._in_batch(buffers, shape)
        stale = np.unique(found[self._flat[found] < update - self.max_age])
        if not len(stale):
            return
        self._overwrite(stale, *searched(self.observations(stale)))
        count = int(np.prod(shape))
        buffers.rows.take_again(buffers.places[:count], list(self._paths.values()))

    def observations(self, places: Array) -> Any:
        rows = Rows(self._ring, len(places), OBSERVATION)
        rows.take(places)
        return rows.tree(len(places))[OBSERVATION]

    def _in_batch(self, buffers: SequenceBuffers, shape: tuple[int, ...]) -> Array:
        """Return the places of the rows in a batch that have targets to learn from."""
        count = int(np.prod(shape))
        places = buffers.places[:count].reshape(shape)[:, : self._options.rows]
        acting = buffers.flags[2, :count].reshape(shape)[:, : self._options.rows]
        return places[acting]

    def age(self, buffers: SequenceBuffers, shape: tuple[int, ...], update: int) -> int:
        """Return the highest age of the targets in a batch."""
        found = self._in_batch(buffers, shape)
        return update - int(self._flat[found].min()) if len(found) else 0

    def next_rows(self, count: int, older_than: int) -> StaleRows:
        """Return up to `count` rows with targets of earlier versions, in turns, so that all rows get new ones."""
        ring = self._ring
        places = np.empty(count, np.int64)
        size = ring.num_strips * ring.spec.rows
        found, self._sweep = _sweep(self._flags, self._flat, size, self._sweep, older_than, places)
        places = places[:found]
        return StaleRows(places, ring.generation[self._slots(places)], self.observations(places))

    def rewrite(self, rows: StaleRows, made: Mapping[str, Array], version: int) -> int:
        """Write new targets of rows; return how many. Those of rows that were replaced since, or that have newer
        targets, are ignored."""
        current = self._ring.generation[self._slots(rows.places)] == rows.generation
        current &= self._flat[rows.places] < version
        self._overwrite(rows.places[current], {name: made[name][current] for name in self._paths}, version)
        return int(current.sum())

    def _overwrite(self, places: Array, made: Mapping[str, Array], version: int) -> None:
        self._flat[places] = BEING_WRITTEN
        for name, path in self._paths.items():
            self._ring.stores[path].put(places, made[name])
        self._flat[places] = version

    def _slots(self, places: Array) -> Array:
        spec = self._ring.spec
        slots: Array = places // (spec.rows * spec.lanes)
        return slots

    def state(self) -> State:
        return {"versions": self._versions[: self._ring.num_strips].copy()}

    def restore(self, state: State) -> None:
        self._versions[: len(state["versions"])] = state["versions"]


@compiled
def _sweep(flags: Array, versions: Array, size: int, start: int, older_than: int, places: Array) -> tuple[int, int]:
    """Fill `places` with the next acting rows from `start` on whose version is lower. Return their number and where to
    go on."""
    found, place = 0, start if start < size else 0
    for _ in range(size):
        if found == len(places):
            break
        if flags[place] & ACTING and versions[place] < older_than:
            places[found] = place
            found += 1
        place = place + 1 if place + 1 < size else 0
    return found, place
