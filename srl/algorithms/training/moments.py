"""Running mean and variance, independent of how samples are split across trainers and batches."""

from __future__ import annotations

import math

import numpy as np
import torch

from srl.algorithms.training.ranks import NotFiniteError, Ranks
from srl.base.tree import Array

CHUNK = 8192  # rows converted to float64 at a time, so that they stay in the cache
EPSILON = 1e-8  # added to the variance: a number that never changes has standard deviation 1e-4


class Moments:
    """Count, mean and sum of squared deviations of samples [N, size] (Chan et al. 1979), in float64. Sums are taken
    relative to the mean so far, which avoids cancellation for samples far from zero. With a `window`, only about that
    many samples count: older ones fade exponentially.
    """

    def __init__(self, size: int, window: float = math.inf) -> None:
        self.state = np.zeros((3, size))  # count, mean, sum of squared deviations
        self._window = window

    @property
    def mean(self) -> Array:
        mean: Array = self.state[1]
        return mean

    @property
    def deviation(self) -> Array:
        """Standard deviation; 1 before the first sample."""
        count, _, squares = self.state
        deviation: Array = np.where(count > 0.0, np.sqrt(squares / np.maximum(count, 1.0) + EPSILON), 1.0)
        return deviation

    def fold(self, samples: Array, ranks: Ranks) -> None:
        """Add the samples [N, size] of all ranks. Raises NotFiniteError on all ranks if any sample is not finite."""
        count, mean, squares = self.state
        shift = mean if count.any() else self._first_shift(samples, ranks)
        sums = torch.zeros(2 * len(mean) + 1, dtype=torch.float64)
        first, second = sums[:-1].numpy().reshape(2, -1)
        sums[-1] = len(samples)
        for start in range(0, len(samples), CHUNK):
            distance = samples[start : start + CHUNK] - shift
            first += distance.sum(0)
            second += np.einsum("ij,ij->j", distance, distance)
        ranks.add(sums)
        if not bool(torch.isfinite(sums).all()):
            raise NotFiniteError
        number = float(sums[-1])
        if number == 0.0:
            return
        total = count + number
        offset = shift + first / number - mean
        squares += np.maximum(second - first**2 / number, 0.0) + offset**2 * (count * number / total)
        mean += offset * (number / total)
        kept = np.minimum(total, self._window)
        squares *= kept / total
        count[...] = kept

    def _first_shift(self, samples: Array, ranks: Ranks) -> Array:
        """Return numbers near the samples, the same on all ranks, to use as the mean before the first sample."""
        shift = torch.zeros(self.state.shape[1], dtype=torch.float64)
        if len(samples):
            shift.copy_(torch.from_numpy(samples[:CHUNK].mean(0, dtype=np.float64)))
        ranks.copy_first([shift])
        near: Array = shift.numpy()
        return near
