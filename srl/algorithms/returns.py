"""Advantages and returns of trajectories: pure functions on time-major arrays."""

from __future__ import annotations

import numpy as np

from srl.base.tree import Array


def generalised_advantages(
    reward: Array, value: Array, terminated: Array, truncated: Array, acting: Array, gamma: float, gae_lambda: float
) -> Array:
    """GAE (Schulman et al. 2016, eq. 16) over rows [T+1, B] of a `Trajectory`; returns float32 [T, B].

        delta_t = r_t + gamma * V_{t+1} * (1 - terminated_t) - V_t
        A_t     = delta_t + gamma * lambda * (1 - terminated_t) * (1 - truncated_t) * A_{t+1}

    The row after an episode's end holds its last observation, so V_{t+1} is the right bootstrap of a truncation.
    Nobody acts in that row, nor in one whose step never happened: there the sum of deltas stops, as it does at row T,
    and whatever such a row holds stays out of the result; its own advantage is 0.
    """
    ended = terminated | truncated
    next_value = np.where(terminated[:-1], np.float32(0.0), value[1:])  # not a product: 0 * NaN is NaN
    delta = reward[:-1] + np.float32(gamma) * next_value - value[:-1]
    advantage: Array = np.where(acting[:-1], delta, np.float32(0.0))
    # The row after acts and belongs to the same episode: its advantage counts.
    carry = np.float32(gamma * gae_lambda) * (acting[:-2] & ~ended[:-2] & acting[1:-1])
    scratch = np.empty_like(advantage[0])
    for t in range(len(advantage) - 2, -1, -1):
        np.multiply(carry[t], advantage[t + 1], out=scratch)
        np.add(advantage[t], scratch, out=advantage[t])
    return advantage
