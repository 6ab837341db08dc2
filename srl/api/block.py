"""Blocks: arrays for T steps of L lanes. Actors fill them, policies read them, and trainers copy them into batches. The
episodes that ended in a block travel with it, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import msgspec
import numpy as np

from srl.base.shared_memory import Memory
from srl.base.tree import Array, ArraySpec, TreeSpec, leaves

ALIGNMENT = 64  # arrays start at cache-line boundaries, so that two workers never write to the same line

STEP_ARRAYS = {
    "reward": ArraySpec((), "float32"),
    "terminated": ArraySpec((), "bool"),
    "truncated": ArraySpec((), "bool"),
    "acting": ArraySpec((), "bool"),
    "first": ArraySpec((), "bool"),
    "version": ArraySpec((), "int32"),
}

STATE = "state"
"""Path of a recurrent policy's memory before a decision. The memory after it, `decision/state`, is the next `state`."""

POSITION = "position"
"""Path of each lane's position among all lanes, in [0, 1), for policies that explore differently in each lane. It is
constant."""


@dataclass(frozen=True)
class BlockSpec:
    """Layout of a block. Every array is time-major ``[horizon + 1, lanes, ...]``; the last row is for bootstrapping."""

    horizon: int
    lanes: int
    observation: TreeSpec
    decision: Mapping[str, TreeSpec]
    positions: bool = False  # whether there is an array of the lanes' positions

    def arrays(self) -> Sequence[tuple[str, ArraySpec]]:
        """Return path and spec of each array, for one row of one lane, in memory order."""
        return self._arrays

    @cached_property
    def _arrays(self) -> tuple[tuple[str, ArraySpec], ...]:
        tree = {"observation": self.observation, "decision": self.decision, **STEP_ARRAYS}
        if STATE in self.decision:
            tree[STATE] = self.decision[STATE]
        if self.positions:
            tree[POSITION] = ArraySpec((), "float32")
        return tuple(leaves(tree))

    @cached_property
    def nbytes(self) -> int:
        return sum(aligned(self.rows * self.lanes * spec.nbytes) for _, spec in self.arrays())

    @property
    def rows(self) -> int:
        return self.horizon + 1


def aligned(nbytes: int) -> int:
    """Round `nbytes` up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Block:
    """The arrays of one block. `observation`, `state` (memory of a recurrent policy) and `decision` hold the arrays
    under these paths, keyed by the rest of the path; a single array has the key ``""``."""

    index: int  # position in the producer's memory; within a host only this is sent
    arrays: Mapping[str, Array]  # path -> [T+1, L, ...]
    observation: Mapping[str, Array] = field(init=False)
    state: Mapping[str, Array] = field(init=False)
    decision: Mapping[str, Array] = field(init=False)
    version: Array = field(init=False)  # [T+1, L]
    first: Array = field(init=False)  # [T+1, L]
    position: Array | None = field(init=False)  # [T+1, L], if the layout has it
    num_lanes: int = field(init=False)

    def __post_init__(self) -> None:
        for root in ("observation", STATE, "decision"):
            below = {p.partition("/")[2]: a for p, a in self.arrays.items() if p.partition("/")[0] == root}
            object.__setattr__(self, root, below)
        for name in ("version", "first"):
            object.__setattr__(self, name, self.arrays[name])
        object.__setattr__(self, POSITION, self.arrays.get(POSITION))
        object.__setattr__(self, "num_lanes", self.first.shape[1])


class BlockMemory:
    """Blocks of one layout in shared memory. The producer owns it; other workers on the host map it."""

    def __init__(self, spec: BlockSpec, memory: Memory) -> None:
        self.spec = spec
        self.memory = memory
        self.blocks = [self._block(index) for index in range(memory.nbytes // spec.nbytes)]

    @classmethod
    def create(cls, name: str, spec: BlockSpec, num_blocks: int) -> BlockMemory:
        return cls(spec, Memory.create(name, spec.nbytes * num_blocks))

    def _block(self, index: int) -> Block:
        offset = index * self.spec.nbytes
        arrays: dict[str, Array] = {}
        for path, spec in self.spec.arrays():
            shape = (self.spec.rows, self.spec.lanes, *spec.shape)
            arrays[path] = self.memory.array(offset, shape, spec.dtype)
            offset += aligned(arrays[path].nbytes)
        return Block(index, arrays)

    def close(self) -> None:
        self.memory.close()


RETURN, LENGTH, LANE, SEED, SEED_EPISODE = "return", "length", "lane", "seed", "seed_episode"
IDENTITY = (LANE, SEED, SEED_EPISODE)
"""Columns that identify an episode; means over them say nothing. Of an environment that is not seeded for every
episode, `seed_episode` counts the episodes since it was."""
RESERVED = (LANE, "row", "step", "update", "policy", "actor", "host", "time")  # no statistic has one of these names
VALUES, SEEDS = np.dtype("<f4"), np.dtype("<f8")
MAX_EPISODE_BYTES = 384 << 10
"""Maximum size of the episodes in one message: more than 30,000 without statistics of the environment."""


class Episodes(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Episodes in columns of equal length; NaN where an episode lacks a value."""

    count: int = 0
    columns: dict[str, bytes] = {}  # name -> float32 values, float64 for seeds
    omitted: int = 0  # further episodes that did not fit

    def __post_init__(self) -> None:
        for name, values in self.columns.items():
            if len(values) != self.count * kind_of(name).itemsize:
                raise ValueError(f"column {name!r} of {self.count} episodes has {len(values)} bytes")

    @classmethod
    def of(cls, columns: Mapping[str, Array], max_bytes: int = MAX_EPISODE_BYTES) -> Episodes:
        """Return the episodes in arrays of equal length; if they are too large, an evenly spaced sample of them."""
        count = len(next(iter(columns.values()))) if columns else 0
        limit = max(1, max_bytes // max(1, sum(kind_of(name).itemsize for name in columns)))
        if count > limit:
            chosen = np.linspace(0, count - 1, limit).astype(int)
            columns = {name: values[chosen] for name, values in columns.items()}
        kept = min(count, limit)
        return cls(kept, {name: v.astype(kind_of(name)).tobytes() for name, v in columns.items()}, count - kept)

    @property
    def num_bytes(self) -> int:
        return sum(map(len, self.columns.values()))

    @property
    def total(self) -> int:
        """Number of episodes, including those that did not fit."""
        return self.count + self.omitted

    def arrays(self) -> dict[str, Array]:
        """Return the columns as arrays [count]."""
        return {name: np.frombuffer(values, kind_of(name)) for name, values in self.columns.items()}


def kind_of(name: str) -> np.dtype[np.floating]:
    return SEEDS if name == SEED else VALUES


def concatenated(parts: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
    """Return columns of several parts one after the other, with NaN where a part lacks a column."""
    parts = [part for part in parts if part]
    if len(parts) == 1:
        return dict(parts[0])
    counts = [len(next(iter(part.values()))) for part in parts]
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate(
            [part[name] if name in part else np.full(n, np.nan) for part, n in zip(parts, counts, strict=True)]
        )
        for name in names
    }


def joined(parts: Iterable[tuple[str, Episodes]], max_bytes: int = MAX_EPISODE_BYTES) -> dict[str, Episodes]:
    """Return the episodes of each actor, from (actor, episodes) pairs, within `max_bytes` for all of them."""
    by_actor: dict[str, list[Episodes]] = {}
    for actor, episodes in parts:
        by_actor.setdefault(actor, []).append(episodes)
    num_bytes = sum(episodes.num_bytes for found in by_actor.values() for episodes in found)
    result: dict[str, Episodes] = {}
    for actor, found in by_actor.items():
        names = found[0].columns.keys()
        if num_bytes <= max_bytes and all(one.columns.keys() == names for one in found):
            values = {name: b"".join([one.columns[name] for one in found]) for name in names}
            result[actor] = Episodes(sum(one.count for one in found), values, sum(one.omitted for one in found))
            continue
        columns = concatenated(episodes.arrays() for episodes in found)
        share = max_bytes * sum(episodes.num_bytes for episodes in found) // max(1, num_bytes)
        made = Episodes.of(columns, max_bytes if num_bytes <= max_bytes else share)
        result[actor] = msgspec.structs.replace(made, omitted=made.omitted + sum(one.omitted for one in found))
    return result
