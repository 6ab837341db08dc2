"""Rows of blocks for requests: gathering a policy's input from them, and writing its decisions to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from srl.api.block import POSITION, STATE, BlockMemory, BlockSpec
from srl.api.policy import Policy
from srl.api.streams import Cell, RequestBatch
from srl.base.tree import Array, Tree, from_leaves, leaves

OBSERVATION = "observation"
DECISION = "decision"


def input_paths(spec: BlockSpec) -> list[str]:
    """Return the paths of a policy's input: observations, recurrent memory and positions of lanes."""
    return [path for path, _ in spec.arrays() if path.split("/")[0] in (OBSERVATION, STATE, POSITION)]


def decision_paths(spec: BlockSpec) -> list[str]:
    return [path for path, _ in spec.arrays() if path.split("/")[0] == DECISION]


def without_root(path: str) -> str:
    """Return `camera` for `observation/camera`, ``""`` for `observation`."""
    return path.partition("/")[2]


class Rows(NamedTuple):
    """A policy's input for B lanes."""

    observation: dict[str, Array]  # path without root -> [B, ...]
    state: dict[str, Array]  # likewise; empty for a policy without memory
    first: Array  # [B]
    position: Array | None = None  # [B], if the layout has it

    def arrays(self, paths: Sequence[str]) -> list[Array]:
        """Return the arrays at these `paths`, followed by `first`."""
        roots = {OBSERVATION: self.observation, STATE: self.state}
        if self.position is not None:
            roots[POSITION] = {"": self.position}
        return [*(roots[path.partition("/")[0]][without_root(path)] for path in paths), self.first]


def gather(cells: Sequence[Cell]) -> Rows:
    """Return a policy's input for all cells as one batch; a single cell is not copied."""
    block, row = cells[0]
    if len(cells) == 1:
        observation = {path: array[row] for path, array in block.observation.items()}
        state = {path: array[row] for path, array in block.state.items()} if block.state else {}
        return Rows(observation, state, block.first[row], None if block.position is None else block.position[row])
    return Rows(
        {
            path: np.concatenate([cell.block.observation[path][cell.row] for cell in cells])
            for path in block.observation
        },
        {path: np.concatenate([cell.block.state[path][cell.row] for cell in cells]) for path in block.state},
        np.concatenate([cell.block.first[cell.row] for cell in cells]),
        None if block.position is None else np.concatenate([cell.block.arrays[POSITION][cell.row] for cell in cells]),
    )


def tree_of(state: dict[str, Array]) -> Tree | None:
    """Return a policy's memory as a tree, or None if it has none."""
    tree: Tree | None = from_leaves(state) if state else None
    return tree


def decide(policy: Policy, rows: Rows | RequestBatch) -> dict[str, Array]:
    """Return the policy's decisions [B, ...] for these rows, by block path."""
    observation, state = from_leaves(rows.observation), tree_of(rows.state)
    if rows.position is None:
        return flat_decision(policy.act(observation, state, rows.first))
    return flat_decision(policy.explore(observation, state, rows.first, rows.position))


def flat_decision(decision: Any) -> dict[str, Array]:
    """Return a policy's decision as arrays keyed by block path, such as `decision/action`."""
    flat: dict[str, Array] = {}
    for key, value in decision.items():
        if isinstance(value, np.ndarray):
            flat[f"{DECISION}/{key}"] = value
        else:
            flat.update(leaves(value, f"{DECISION}/{key}"))
    return flat


def write_decision(cells: Sequence[Cell], decision: dict[str, Array], version: int, start: int = 0) -> None:
    """Write decisions [B, ...], starting at index `start`, and their policy version to the rows of these cells."""
    for block, row in cells:
        end = start + block.num_lanes
        for path, values in decision.items():
            block.arrays[path][row] = values[start:end]
        block.version[row] = version
        start = end


def indices_of(cells: Sequence[Cell]) -> list[list[int]]:
    """Return each cell as a pair of numbers: block index and row."""
    return [[cell.block.index, cell.row] for cell in cells]


def cells_from(memory: BlockMemory, indices: Sequence[Sequence[int]]) -> list[Cell]:
    """Convert the pairs that `indices_of` returned back to cells in the memory's blocks."""
    return [Cell(memory.blocks[index], row) for index, row in indices]
