"""Blocks in memory: a producer's arena, mapped by the workers of its host."""

from __future__ import annotations

from srl.api.block import Block, BlockSpec, aligned
from srl.base.shared_memory import Memory
from srl.base.tree import Array


class Arena:
    """`num_blocks` blocks of one layout in one memory. Its producer owns it; others map it and forget it."""

    def __init__(self, spec: BlockSpec, memory: Memory) -> None:
        self.spec = spec
        self.memory = memory
        self.num_blocks = memory.nbytes // spec.nbytes
        self.blocks = [self._block(index) for index in range(self.num_blocks)]

    @classmethod
    def create(cls, name: str, spec: BlockSpec, num_blocks: int) -> Arena:
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
