"""Sequences for networks with memory: chunks of a batch's rows, each starting from the memory stored there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from srl.algorithms.training.devices import move
from srl.api.trainer import Trajectory
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.networks.memory.recurrent import Sequence


class Chunks:
    """The lanes of a batch, divided into chunks of `length` rows. A chunk is unrolled from `burn_in` rows before it, if
    its block has them, and only its own rows are learned from. All unrolled windows have the same number of rows: those
    at the edges of the block include rows of neighboring chunks, which are not learned from either.
    """

    def __init__(self, batch: Trajectory, length: int, burn_in: int, device: torch.device) -> None:
        num_rows, num_lanes = batch.acting.shape
        num_rows -= 1  # the last row only bootstraps
        length = min(length, num_rows)
        self._window = min(length + burn_in, num_rows)
        starts = np.arange(0, num_rows, length)
        begins = np.clip(starts - burn_in, 0, num_rows - self._window)
        self._num_lanes = num_lanes
        self._device = device
        # One entry for each chunk of each lane, [K * B]
        self._lane = np.tile(np.arange(num_lanes), len(starts))
        self._start = np.repeat(starts, num_lanes)
        self._end = self._start + length
        self._begin = np.repeat(begins, num_lanes)
        self._first = batch.first
        self._sample = np.full(batch.acting[:-1].shape, -1)  # [T, B]: index of the row's sample, or -1
        self._sample[batch.acting[:-1]] = np.arange(np.count_nonzero(batch.acting[:-1]))
        self._observation = map_tree(lambda array: move(merge(array[:-1]), device), batch.observation)
        self._state = move(state_of(batch)[begins].reshape(-1, state_of(batch).shape[2]), device)  # [K * B, S]

    def __len__(self) -> int:
        return len(self._lane)

    def take(self, chosen: Array) -> tuple[Sequence, Array]:
        """Return the chosen chunks as one sequence, and the sample indices of its selected rows, in order."""
        rows = self._begin[chosen] + np.arange(self._window)[:, None]  # [W, M]
        lanes = self._lane[chosen]
        samples = self._sample[rows, lanes]
        wanted = (samples >= 0) & (rows >= self._start[chosen]) & (rows < self._end[chosen])
        index = move((rows * self._num_lanes + lanes).reshape(-1), self._device)
        sequence = Sequence(
            map_tree(lambda tensor: tensor.index_select(0, index), self._observation),
            move(self._first[rows, lanes], self._device),
            self._state.index_select(0, move(chosen, self._device)),
            move(np.flatnonzero(wanted), self._device),
        )
        return sequence, samples[wanted]


def whole_lanes(batch: Trajectory, lanes: slice, device: torch.device) -> Sequence:
    """Return all rows of some lanes, including the bootstrap row, as one sequence with every row selected."""
    first = np.ascontiguousarray(batch.first[:, lanes])
    return Sequence(
        map_tree(lambda array: move(merge(np.ascontiguousarray(array[:, lanes])), device), batch.observation),
        move(first, device),
        move(np.ascontiguousarray(state_of(batch)[0, lanes]), device),
        torch.arange(first.size, device=device),
    )


def state_of(batch: Trajectory) -> Array:
    """Return the policy's memory before each row, [T+1, B, S]."""
    state: Any = batch.state
    if state is None or isinstance(state, Mapping):
        raise ValueError("a network with a memory needs batches whose state is one array")
    array: Array = state
    return array


def merge(array: Array) -> Array:
    """Reshape [T, B, ...] to [T*B, ...]; the result is a view if the array is contiguous."""
    return array.reshape(-1, *array.shape[2:])


def action_rows(action: Tree) -> Array:
    """Return actions as one array [T, B, ...]. Composite actions are concatenated as real numbers [T, B, actions], the
    form that `srl.networks.distributions.composite.Composite` takes."""
    if not isinstance(action, Mapping):
        return np.asarray(action)
    parts = [np.asarray(leaf, np.float32) for _, leaf in leaves(action)]
    return np.concatenate([part.reshape(*part.shape[:2], -1) for part in parts], axis=2)
