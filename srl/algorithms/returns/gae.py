"""Generalized advantage estimation (Schulman et al. 2016)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srl.base.tree import Array


class Ends(NamedTuple):
    """The fields of a `Trajectory` that determine where episodes end, each [T+1, B] bool."""

    terminated: Array
    truncated: Array
    acting: Array

    def carries(self) -> Array:
        """Return [T-1, B]: whether the lane also acts in the next row of the same episode, so its advantage counts."""
        terminated, truncated, acting = self
        carries: Array = acting[:-2] & ~(terminated | truncated)[:-2] & acting[1:-1]
        return carries


def temporal_differences(reward: Array, value: Array, ends: Ends, gamma: float) -> Array:
    """Return r_t + gamma * V_{t+1} * (1 - terminated_t) - V_t where a lane acted, else 0, as float64 [T, B]."""
    value = value.astype(np.float64)
    next_value = np.where(ends.terminated[:-1], 0.0, value[1:])  # not a product: 0 * NaN is NaN
    delta: Array = np.where(ends.acting[:-1], reward[:-1] + gamma * next_value - value[:-1], 0.0)
    return delta


def accumulate(sums: Array, carry: Array) -> Array:
    """Compute sums_t += carry_t * sums_{t+1} in place, from the last row of `sums` [T, B] to the first."""
    scratch = np.empty_like(sums[0])
    for t in range(len(sums) - 2, -1, -1):
        np.multiply(carry[t], sums[t + 1], out=scratch)
        np.add(sums[t], scratch, out=sums[t])
    return sums


def generalized_advantages(
    reward: Array, value: Array, terminated: Array, truncated: Array, acting: Array, gamma: float, gae_lambda: float
) -> Array:
    """Compute the advantages of eq. 16 in the paper.

    delta_t = r_t + gamma * V_{t+1} * (1 - terminated_t) - V_t
    A_t     = delta_t + gamma * lambda * (1 - terminated_t) * (1 - truncated_t) * A_{t+1}
    """
    ends = Ends(terminated, truncated, acting)
    advantage = accumulate(temporal_differences(reward, value, ends, gamma), gamma * gae_lambda * ends.carries())
    return advantage.astype(np.float32)
