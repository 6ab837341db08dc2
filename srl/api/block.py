"""Blocks: arrays for T steps of L lanes. Actors fill them, policies read them, and trainers copy them into batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class BlockSpec:
    """Layout of a block. Every array is time-major ``[horizon + 1, lanes, ...]``; the last row is for bootstrapping."""

    horizon: int
    lanes: int
    observation: TreeSpec
    decision: Mapping[str, TreeSpec]

    def arrays(self) -> Iterator[tuple[str, ArraySpec]]:
        """Yield path and spec of each array, for one row of one lane, in memory order."""
        tree = {"observation": self.observation, "decision": self.decision, **STEP_ARRAYS}
        if STATE in self.decision:
            tree[STATE] = self.decision[STATE]
        yield from leaves(tree)

    @property
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
    num_lanes: int = field(init=False)

    def __post_init__(self) -> None:
        for root in ("observation", STATE, "decision"):
            below = {p.partition("/")[2]: a for p, a in self.arrays.items() if p.partition("/")[0] == root}
            object.__setattr__(self, root, below)
        for name in ("version", "first"):
            object.__setattr__(self, name, self.arrays[name])
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
