"""Gathering: the blocks of a batch, copied once into the memory that the trainer reads."""

from __future__ import annotations

from collections.abc import Sequence

from srl.api.block import BlockSpec
from srl.api.streams import PostedBlock
from srl.api.trainer import Trajectory
from srl.base.tree import from_leaves


class BatchMemory:
    """Room for `num_blocks` blocks side by side: time-major ``[T+1, num_blocks * L, ...]``."""

    def __init__(self, spec: BlockSpec, num_blocks: int) -> None:
        self._lanes = spec.lanes
        self._arrays = {path: leaf.empty(spec.rows, num_blocks * spec.lanes) for path, leaf in spec.arrays()}
        nested = from_leaves(self._arrays)
        self.trajectory = Trajectory(**nested)

    def gather(self, blocks: Sequence[PostedBlock]) -> Trajectory:
        for position, posted in enumerate(blocks):
            lanes = slice(position * self._lanes, (position + 1) * self._lanes)
            for path, target in self._arrays.items():
                target[:, lanes] = posted.block.arrays[path]
        return self.trajectory
