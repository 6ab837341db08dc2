"""The samples of one PPO update: which rows to learn from, their advantages and targets, cut into minibatches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.devices import move
from srl.algorithms.group import Ranks
from srl.algorithms.ppo import PPOConfig
from srl.algorithms.ppo_loss import Minibatch
from srl.algorithms.returns import generalised_advantages
from srl.algorithms.sequences import Chunks
from srl.api.trainer import Trajectory
from srl.base.tree import Array, map_tree


class PPOBatch:
    """Only rows in which a lane acted are samples. Every rank cuts its own into `num_minibatches` nearly equal parts,
    so that all make the same number of steps, whatever the number of their samples.

    Advantages are computed on the CPU, in numpy; then everything moves to the device, once, and is gathered there."""

    def __init__(self, batch: Trajectory, config: PPOConfig, ranks: Ranks, device: torch.device) -> None:
        value = np.asarray(batch.decision["value"])
        advantage = generalised_advantages(
            batch.reward, value, batch.terminated, batch.truncated, batch.acting, config.gamma, config.gae_lambda
        )
        target = advantage + value[:-1]
        rows = np.flatnonzero(batch.acting[:-1])
        parts = config.num_minibatches
        self._bounds = [len(rows) * i // parts for i in range(parts + 1)]
        log_prob = _merge_time(np.asarray(batch.decision["log_prob"]))[rows]  # [N]
        advantage, target = advantage.reshape(-1)[rows], target.reshape(-1)[rows]
        normalized = self._exchange(ranks, advantage.astype(np.float64), target.astype(np.float64))
        if config.normalize_advantage:
            advantage = normalized.astype(np.float32)
        action = _merge_time(np.asarray(batch.decision["action"]))
        self._is_scalar = action.ndim == 1
        action = action.reshape(len(action), math.prod(action.shape[1:]))[rows]  # [N, d]
        self._device = device
        self._rows = move(rows, device)
        self._chunks = None if batch.state is None else Chunks(batch, config.chunk, config.burn_in, device)
        if self._chunks is None:
            # [T*B, ...], gathered minibatch by minibatch
            self._observation = map_tree(lambda array: move(_merge_time(array), device), batch.observation)
        self._action = move(np.ascontiguousarray(action.T), device)  # [d, N]
        self._columns = move(np.stack((log_prob, advantage, target)), device)  # [3, N]

    def _exchange(self, ranks: Ranks, advantage: Array, target: Array) -> Array:
        """Sum over all ranks, at once, the sizes of the minibatches and the moments of the whole batch; returns the
        advantages with mean 0 and deviation 1."""
        moments = (advantage.sum(), advantage @ advantage, target.sum(), target @ target)
        sums = torch.tensor([*np.diff(self._bounds), *moments], dtype=torch.float64)
        ranks.add(sums)
        *self._total_sizes, first, second, target_first, target_second = sums.tolist()
        self.num_samples = int(sum(self._total_sizes))
        count = max(self.num_samples, 1)
        variance = max(second / count - (first / count) ** 2, 0.0)
        target_variance = max(target_second / count - (target_first / count) ** 2, 0.0)
        self.explained_variance = 1.0 - variance / (target_variance + 1e-8)
        normalized: Array = (advantage - first / count) / (variance**0.5 + 1e-8)
        return normalized

    def minibatches(self, shuffle: np.random.Generator) -> Iterator[tuple[Any, Minibatch, float]]:
        """One epoch, in random order: observations (a tree of tensors), the rest, and the weight of a sample in the
        mean over all ranks. For a network with memory the observations are a `Sequence`."""
        if self._chunks is not None:
            yield from self._sequences(self._chunks, shuffle)
            return
        order = move(shuffle.permutation(len(self._rows)), self._device)
        rows = self._rows.index_select(0, order)
        action = self._action.index_select(1, order).t()  # [N, d], contiguous along the samples for the distributions
        columns = self._columns.index_select(1, order)
        for i, total_size in enumerate(self._total_sizes):
            if total_size == 0:
                continue
            part = slice(self._bounds[i], self._bounds[i + 1])
            chosen = rows[part]
            observation = map_tree(lambda tensor, chosen=chosen: tensor.index_select(0, chosen), self._observation)
            yield observation, self._minibatch(action, columns, part), 1.0 / total_size

    def _sequences(self, chunks: Chunks, shuffle: np.random.Generator) -> Iterator[tuple[Any, Minibatch, float]]:
        """The same from whole chunks, so that a minibatch's number of samples depends on the shuffle: the weight of a
        sample is one in the mean number."""
        order = shuffle.permutation(len(chunks))
        parts = [part for part in np.array_split(order, len(self._total_sizes)) if len(part)]
        for chosen in parts:
            sequence, samples = chunks.take(chosen)
            index = move(samples, self._device)
            action, columns = self._action.index_select(1, index).t(), self._columns.index_select(1, index)
            weight = len(parts) / max(self.num_samples, 1)
            yield sequence, self._minibatch(action, columns, slice(None)), weight

    def _minibatch(self, action: Tensor, columns: Tensor, part: slice) -> Minibatch:
        log_prob, advantage, target = columns[:, part]
        return Minibatch(action[part, 0] if self._is_scalar else action[part], log_prob, advantage, target)


def _merge_time(array: Array) -> Array:
    """[T+1, B, ...] -> [T*B, ...], without the last row; a view if the array is contiguous."""
    return array[:-1].reshape(-1, *array.shape[2:])
