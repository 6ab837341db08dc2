"""Samples of one PPO update, divided into minibatches, and their gradients and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.estimates import Estimates
from srl.algorithms.ppo.loss import METRICS, Coefficients, Minibatch, Samples, ppo_metrics
from srl.algorithms.ppo.sequences import Chunks, action_rows, merge
from srl.algorithms.training.devices import fetch, move
from srl.algorithms.training.learner import Learner
from srl.algorithms.training.ranks import NotFiniteError, Ranks
from srl.api.trainer import Trajectory
from srl.base.tree import Array, map_tree

LossGradient: TypeAlias = Callable[[Tensor, Tensor, Minibatch, Coefficients, float], tuple[Tensor, Tensor, Samples]]


class PPOBatch:
    """The samples of a batch: the rows in which a lane acted. Each rank divides its samples into `num_minibatches`
    nearly equal parts, so all ranks make the same number of steps, however many samples they have.

    All arrays are copied to the device once, and minibatches are gathered there."""

    def __init__(
        self, batch: Trajectory, estimates: Estimates, config: PPOConfig, ranks: Ranks, device: torch.device
    ) -> None:
        self.all_targets = estimates.target  # [T, B]
        rows = np.flatnonzero(batch.acting[:-1])
        parts = config.num_minibatches
        self._bounds = [len(rows) * i // parts for i in range(parts + 1)]
        log_prob, value, advantage, self.target = (part.reshape(-1)[rows] for part in estimates[:4])  # [N] each
        weight = None if estimates.weight is None else estimates.weight.reshape(-1)[rows]
        moments = self._exchange(ranks, advantage, self.target, self.target - value)
        self._unscaled: Array | None = None  # advantages to normalize in each minibatch
        if config.normalize_advantage == "batch":
            advantage = _normalized(advantage, *moments)
        elif config.normalize_advantage == "minibatch":
            self._unscaled, self._weight, self._ranks = advantage.astype(np.float64), weight, ranks
        if weight is not None:
            advantage = advantage * weight
        columns = [log_prob, advantage, self.target]
        if config.value_clip is not None:
            columns.append(value)
        action = merge(action_rows(batch.decision["action"])[:-1])
        self._is_scalar = action.ndim == 1
        action = action.reshape(len(action), math.prod(action.shape[1:]))[rows]  # [N, d]
        self._device = device
        self._rows = move(rows, device)
        self._chunks = None if batch.state is None else Chunks(batch, config.chunk, config.burn_in, device)
        if self._chunks is None:
            # [T*B, ...], gathered for each minibatch
            self._observation = map_tree(lambda array: move(merge(array[:-1]), device), batch.observation)
        self._action = move(np.ascontiguousarray(action.T), device)  # [d, N]
        self._columns = move(np.stack(columns), device)  # [3 or 4, N]

    def _exchange(self, ranks: Ranks, advantage: Array, target: Array, residual: Array) -> tuple[float, float]:
        """Sum the minibatch sizes and the moments of the whole batch over all ranks in one exchange. Returns the mean
        and standard deviation of the advantages."""
        columns = (column.astype(np.float64) for column in (advantage, target, residual))
        moments = [moment for column in columns for moment in (column.sum(), column @ column)]
        sums = torch.tensor([*np.diff(self._bounds), *moments], dtype=torch.float64)
        ranks.add(sums)
        numbers: list[float] = sums.tolist()
        self._total_sizes, (first, second, *others) = numbers[: -len(moments)], numbers[-len(moments) :]
        self.num_samples = int(sum(self._total_sizes))
        count = max(self.num_samples, 1)
        target_variance = _variance(others[0], others[1], count)
        residual_variance = _variance(others[2], others[3], count)
        self.explained_variance = 1.0 - residual_variance / (target_variance + 1e-8)
        return first / count, _variance(first, second, count) ** 0.5

    def minibatches(self, shuffle: np.random.Generator) -> Iterator[tuple[Any, Minibatch, float]]:
        """Yield the minibatches of one epoch in random order: observations (a tree of tensors, or a `Sequence` for a
        network with memory), everything else, and the weight of a sample in the mean over all ranks."""
        if self._chunks is not None:
            yield from self._sequences(self._chunks, shuffle)
            return
        permutation = shuffle.permutation(len(self._rows))
        order = move(permutation, self._device)
        rows = self._rows.index_select(0, order)
        action = self._action.index_select(1, order).t()  # [N, d], contiguous along the samples for the distributions
        columns = self._columns.index_select(1, order)
        for i, total_size in enumerate(self._total_sizes):
            if total_size == 0:
                continue
            part = slice(self._bounds[i], self._bounds[i + 1])
            chosen = rows[part]
            observation = map_tree(lambda tensor, chosen=chosen: tensor.index_select(0, chosen), self._observation)
            yield observation, self._minibatch(action, columns, part, permutation[part]), 1.0 / total_size

    def _sequences(self, chunks: Chunks, shuffle: np.random.Generator) -> Iterator[tuple[Any, Minibatch, float]]:
        """Yield minibatches of whole chunks. Their sizes depend on the shuffle, so a sample's weight is one over the
        mean size."""
        order = shuffle.permutation(len(chunks))
        parts = [part for part in np.array_split(order, len(self._total_sizes)) if len(part)]
        for chosen in parts:
            sequence, samples = chunks.take(chosen)
            index = move(samples, self._device)
            action, columns = self._action.index_select(1, index).t(), self._columns.index_select(1, index)
            weight = len(parts) / max(self.num_samples, 1)
            yield sequence, self._minibatch(action, columns, slice(None), samples), weight

    def _minibatch(self, action: Tensor, columns: Tensor, part: slice, chosen: Array) -> Minibatch:
        """Build the minibatch at `part` of the shuffled samples, whose original indices are `chosen`."""
        minibatch = Minibatch(action[part, 0] if self._is_scalar else action[part], *columns[:, part])
        if self._unscaled is None:
            return minibatch
        return minibatch._replace(advantage=move(self._scaled(self._unscaled[chosen], chosen), self._device))

    def _scaled(self, advantage: Array, chosen: Array) -> Array:
        """Normalize a minibatch's advantages to mean 0 and standard deviation 1 over all ranks."""
        sums = torch.tensor([len(advantage), advantage.sum(), advantage @ advantage], dtype=torch.float64)
        self._ranks.add(sums)
        count, first, second = sums.tolist()
        count = max(count, 1.0)
        scaled = _normalized(advantage, first / count, _variance(first, second, count) ** 0.5)
        return scaled if self._weight is None else scaled * self._weight[chosen]


def _variance(first: float, second: float, count: float) -> float:
    """Return the variance, given the sum of `count` numbers and the sum of their squares."""
    return max(second / count - (first / count) ** 2, 0.0)


def _normalized(numbers: Array, mean: float, deviation: float) -> Array:
    """Return normalized numbers as float32, computed in float64."""
    scaled: Array = (numbers.astype(np.float64) - mean) / (deviation + 1e-8)
    return scaled.astype(np.float32)


def learn_minibatch(
    learner: Learner,
    loss_gradient: LossGradient,
    coefficients: Coefficients,
    observation: Any,
    minibatch: Minibatch,
    weight: float,
) -> Samples:
    """Write the gradient of one minibatch into the learner's flat gradient."""
    if len(minibatch.advantage) == 0:
        # Fewer rows than minibatches: other ranks have rows, and wait for this rank's gradient.
        learner.flat.gradients.zero_()
        return Samples(*[minibatch.advantage] * 4)
    parameters, value = learner.network_pass.forward(observation)
    parameters_gradient, value_gradient, samples = loss_gradient(parameters, value, minibatch, coefficients, weight)
    learner.network_pass.backward(parameters_gradient, value_gradient)
    return samples


def mean_metrics(seen: list[Samples], coefficients: Coefficients, ranks: Ranks, count: float) -> dict[str, float]:
    """Return METRICS summed over the samples of all ranks and divided by `count`."""
    sums = torch.zeros(len(METRICS), dtype=torch.float64)
    if seen:  # on the CPU, because not every device has float64
        sums = ppo_metrics(Samples(*(fetch(torch.cat(column)) for column in zip(*seen, strict=True))), coefficients)
    ranks.add(sums)
    means = dict(zip(METRICS, (sums / count).tolist(), strict=True))
    if not all(map(math.isfinite, means.values())):
        raise NotFiniteError
    return means
