"""Memory for the states of nodes: trees of arrays of numpy or torch, stored as [S+1, L, ...].

This module does not import torch. A tensor is recognized by its methods, and then torch is loaded already.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.base.tree import Array

CACHE_LINE = 64


def aligned_zeros(*shape: int) -> Array:
    """Return zeros of float32 that begin at a cache line."""
    size = 4 * math.prod(shape)
    memory = np.zeros(size + CACHE_LINE, np.uint8)
    start = -memory.ctypes.data % CACHE_LINE
    return memory[start : start + size].view(np.float32).reshape(shape)


def is_tensor(value: Any) -> bool:
    return hasattr(value, "new_empty")


def as_array(value: Any) -> Any:
    """Return an array of numpy, whatever holds the numbers."""
    return value.detach().cpu().numpy() if is_tensor(value) else np.asarray(value)


def map_state(function: Callable[..., Any], state: Any, *others: Any) -> Any:
    """Apply a function to the leaves of states with the same structure: dicts, tuples, lists, arrays."""
    if isinstance(state, Mapping):
        return {key: map_state(function, state[key], *(other[key] for other in others)) for key in state}
    if isinstance(state, tuple | list):
        parts = [map_state(function, *parts) for parts in zip(state, *others, strict=True)]
        return type(state)(*parts) if hasattr(state, "_fields") else type(state)(parts)
    return function(state, *others)


def first_leaf(state: Any) -> Any:
    found: list[Any] = []
    map_state(found.append, state)
    if not found:
        raise ValueError("a state needs at least one array")
    return found[0]


def state_bytes(state: Any) -> int:
    """Return the bytes of one lane's state."""
    total = 0

    def add(leaf: Any) -> None:
        nonlocal total
        size = leaf.element_size() if is_tensor(leaf) else leaf.itemsize
        total += size * int(np.prod(leaf.shape[1:], dtype=np.int64))

    map_state(add, state)
    return total


class StateStore:
    """The states of all nodes of all lanes."""

    def __init__(self, num_nodes: int, num_lanes: int, example: Any) -> None:
        self.num_lanes = num_lanes
        self._signature = self._describe(example)
        self.rows = map_state(lambda leaf: _empty(leaf, num_nodes * num_lanes), example)
        self._gathered = map_state(lambda leaf: _empty(leaf, num_lanes), example)
        leaf = first_leaf(example)
        self._device = leaf.device if is_tensor(leaf) else None

    def fits(self, example: Any) -> bool:
        return bool(self._describe(example) == self._signature)

    def write_block(self, node: int, states: Any) -> None:
        """Store states [n, ...] of the first n lanes."""
        start = node * self.num_lanes

        def write(rows: Any, leaf: Any) -> None:
            leaf = leaf.detach() if is_tensor(leaf) else leaf
            rows[start : start + len(leaf)] = leaf

        map_state(write, self.rows, states)

    def write_rows(self, index: Array, states: Any) -> None:
        """Store states [n, ...] in rows [n]."""

        def write(rows: Any, leaf: Any) -> None:
            if is_tensor(rows):
                rows.index_copy_(0, self.tensor(index, rows.device), leaf.detach())
            else:
                rows[index] = leaf

        map_state(write, self.rows, states)

    def read(self, index: Array) -> Any:
        """Return states [n, ...] of rows [n], valid until the next call."""

        def take(rows: Any, buffer: Any) -> Any:
            out = buffer[: len(index)]
            if is_tensor(rows):
                sys.modules["torch"].index_select(rows, 0, self.tensor(index, rows.device), out=out)
            else:
                rows.take(index, 0, out, "clip")
            return out

        return map_state(take, self.rows, self._gathered)

    def as_state(self, numbers: Array) -> Any:
        """Return an array as what the states are: an array, or a tensor on their device."""
        return numbers if self._device is None else self.tensor(numbers, self._device)

    @staticmethod
    def tensor(numbers: Array, device: Any) -> Any:
        tensor = sys.modules["torch"].from_numpy(numbers)
        return tensor if device.type == "cpu" else tensor.to(device)

    @staticmethod
    def _describe(example: Any) -> Any:
        return map_state(lambda leaf: (leaf.shape[1:], str(leaf.dtype), str(getattr(leaf, "device", ""))), example)


def _empty(leaf: Any, num_rows: int) -> Any:
    shape = (num_rows, *leaf.shape[1:])
    if not is_tensor(leaf):
        return np.empty(shape, leaf.dtype)
    with sys.modules["torch"].inference_mode(False):  # tensors made in that mode could be written only in it
        return leaf.new_empty(shape)
