"""The rows that requests are about: gathered from blocks for a policy, and its decisions written beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from srl.api.block import STATE, BlockSpec
from srl.api.streams import Cell
from srl.base.tree import Array, Tree, from_leaves, leaves

OBSERVATION = "observation"
DECISION = "decision"


def input_paths(spec: BlockSpec) -> list[str]:
    """What a policy must see: observations, and what it remembers."""
    return [path for path, _ in spec.arrays() if path.split("/")[0] in (OBSERVATION, STATE)]


def decision_paths(spec: BlockSpec) -> list[str]:
    return [path for path, _ in spec.arrays() if path.split("/")[0] == DECISION]


def without_root(path: str) -> str:
    """`observation/camera` -> `camera`, `observation` -> ``""``."""
    return path.partition("/")[2]


class Rows(NamedTuple):
    """What a policy decides on."""

    observation: dict[str, Array]  # path without root -> [B, ...]
    state: dict[str, Array]  # the same; empty for a policy without memory
    first: Array  # [B]

    def arrays(self, paths: Sequence[str]) -> list[Array]:
        """In the order of `input_paths`."""
        roots = {OBSERVATION: self.observation, STATE: self.state}
        return [*(roots[path.partition("/")[0]][without_root(path)] for path in paths), self.first]


def gather(cells: Sequence[Cell]) -> Rows:
    """All cells as one batch. One cell: no copy."""
    if len(cells) == 1:
        block, row = cells[0].block, cells[0].row
        observation = {path: array[row] for path, array in block.observation.items()}
        state = {path: array[row] for path, array in block.state.items()} if block.state else {}
        return Rows(observation, state, block.arrays["first"][row])
    block = cells[0].block
    return Rows(
        {
            path: np.concatenate([cell.block.observation[path][cell.row] for cell in cells])
            for path in block.observation
        },
        {path: np.concatenate([cell.block.state[path][cell.row] for cell in cells]) for path in block.state},
        np.concatenate([cell.block.arrays["first"][cell.row] for cell in cells]),
    )


def tree_of(state: dict[str, Array]) -> Tree | None:
    """A policy's memory as it wants it: None if it has none."""
    tree: Tree | None = from_leaves(state) if state else None
    return tree


def flat_decision(decision: Any) -> dict[str, Array]:
    """A policy's decision by block path: `decision/action`, ..."""
    flat: dict[str, Array] = {}
    for key, value in decision.items():
        if isinstance(value, np.ndarray):
            flat[f"{DECISION}/{key}"] = value
        else:
            flat.update(leaves(value, f"{DECISION}/{key}"))
    return flat


def write_row(cell: Cell, decision: dict[str, Array], version: int) -> None:
    """Put the decisions of one cell's lanes beside their observations."""
    arrays, row = cell.block.arrays, cell.row
    for path, values in decision.items():
        arrays[path][row] = values
    arrays["version"][row] = version


def write_decision(cells: Sequence[Cell], decision: dict[str, Array], version: int, start: int = 0) -> int:
    """Put decisions [B, ...] beside the observations they were made for; returns where the next client's begin."""
    for cell in cells:
        end = start + cell.block.num_lanes
        write_row(cell, {path: values[start:end] for path, values in decision.items()}, version)
        start = end
    return start
