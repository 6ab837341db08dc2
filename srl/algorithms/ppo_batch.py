"""The samples of one PPO update: which rows to learn from, their advantages and targets, cut into minibatches."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.group import Ranks
from srl.algorithms.ppo import PPOConfig
from srl.algorithms.ppo_loss import Minibatch
from srl.algorithms.returns import generalised_advantages
from srl.api.trainer import Trajectory
from srl.base.tree import Array, Tree, map_tree


class PPOBatch:
    """Only rows in which a lane acted are samples. Every rank cuts its own into `num_minibatches` nearly equal parts,
    so that all make the same number of steps, whatever the number of their samples."""

    def __init__(self, batch: Trajectory, config: PPOConfig, ranks: Ranks) -> None:
        value = np.asarray(batch.decision["value"])
        advantage = generalised_advantages(
            batch.reward, value, batch.terminated, batch.truncated, batch.acting, config.gamma, config.gae_lambda
        )
        target = advantage + value[:-1]
        rows = np.flatnonzero(batch.acting[:-1])
        self._rows = rows
        self._observation = map_tree(_merge_time, batch.observation)  # [T*B, ...], gathered minibatch by minibatch
        action = _merge_time(np.asarray(batch.decision["action"]))
        self._action = action.reshape(len(action), math.prod(action.shape[1:]))[rows]  # [N, d]
        self._is_scalar = action.ndim == 1
        self._log_prob = _merge_time(np.asarray(batch.decision["log_prob"]))[rows]  # [N]
        self._advantage = advantage.reshape(-1)[rows]
        self._target = target.reshape(-1)[rows]
        parts = config.num_minibatches
        self._bounds = [len(rows) * i // parts for i in range(parts + 1)]
        self._exchange(ranks, config.normalize_advantage)

    def _exchange(self, ranks: Ranks, normalize_advantage: bool) -> None:
        """Sum over all ranks, at once, the sizes of the minibatches and the moments of the whole batch."""
        advantage, target = self._advantage.astype(np.float64), self._target.astype(np.float64)
        moments = (advantage.sum(), advantage @ advantage, target.sum(), target @ target)
        sums = torch.tensor([*np.diff(self._bounds), *moments], dtype=torch.float64)
        ranks.add(sums)
        *self._total_sizes, first, second, target_first, target_second = sums.tolist()
        self.num_samples = int(sum(self._total_sizes))
        count = max(self.num_samples, 1)
        variance = max(second / count - (first / count) ** 2, 0.0)
        target_variance = max(target_second / count - (target_first / count) ** 2, 0.0)
        self.explained_variance = 1.0 - variance / (target_variance + 1e-8)
        if normalize_advantage:
            self._advantage = ((advantage - first / count) / (variance**0.5 + 1e-8)).astype(np.float32)

    def minibatches(self, shuffle: np.random.Generator) -> Iterator[tuple[Tree, Minibatch, float]]:
        """One epoch, in random order: observations, the rest, and the weight of a sample in the mean over all ranks."""
        order = shuffle.permutation(len(self._rows))
        rows = np.take(self._rows, order)
        # Contiguous along the samples, as distributions want it.
        action = torch.from_numpy(np.ascontiguousarray(np.take(self._action, order, axis=0).T)).t()  # [N, d]
        columns = [torch.from_numpy(np.take(array, order)) for array in (self._log_prob, self._advantage, self._target)]
        for i, total_size in enumerate(self._total_sizes):
            if total_size == 0:
                continue
            part = slice(self._bounds[i], self._bounds[i + 1])
            observation = map_tree(lambda array, part=part: np.take(array, rows[part], axis=0), self._observation)
            yield observation, self._minibatch(action, columns, part), 1.0 / total_size

    def _minibatch(self, action: Tensor, columns: list[Tensor], part: slice) -> Minibatch:
        log_prob, advantage, target = columns
        chosen = action[part, 0] if self._is_scalar else action[part]
        return Minibatch(chosen, log_prob[part], advantage[part], target[part])


def _merge_time(array: Array) -> Array:
    """[T+1, B, ...] -> [T*B, ...], without the last row; a view if the array is contiguous."""
    return array[:-1].reshape(-1, *array.shape[2:])
