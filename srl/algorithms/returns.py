"""Advantages and targets of trajectories: pure functions on time-major arrays.

All of them read rows [T+1, B] of a `Trajectory`, compute in float64, and return float32 [T, B]. The row after an
episode's end holds its last observation, so the value of row t+1 is the right bootstrap of a truncation. Nobody acts
in that row, nor in one whose step never happened: there sums stop, as they do at row T, and whatever such a row holds
stays out of the result; its own advantage is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srl.base.tree import Array


class Ends(NamedTuple):
    """What of a `Trajectory` says where episodes end, each [T+1, B] bool."""

    terminated: Array
    truncated: Array
    acting: Array

    def carries(self) -> Array:
        """[T-1, B]: the row after acts and belongs to the same episode, so that its advantage counts."""
        terminated, truncated, acting = self
        carries: Array = acting[:-2] & ~(terminated | truncated)[:-2] & acting[1:-1]
        return carries


def _deltas(reward: Array, value: Array, ends: Ends, gamma: float) -> Array:
    """r_t + gamma * V_{t+1} * (1 - terminated_t) - V_t where a lane acted, else 0: float64 [T, B]."""
    value = value.astype(np.float64)
    next_value = np.where(ends.terminated[:-1], 0.0, value[1:])  # not a product: 0 * NaN is NaN
    delta: Array = np.where(ends.acting[:-1], reward[:-1] + gamma * next_value - value[:-1], 0.0)
    return delta


def _accumulate(sums: Array, carry: Array) -> Array:
    """sums_t += carry_t * sums_{t+1}, from the last row [T, B] to the first, in place; carry is [T-1, B]."""
    scratch = np.empty_like(sums[0])
    for t in range(len(sums) - 2, -1, -1):
        np.multiply(carry[t], sums[t + 1], out=scratch)
        np.add(sums[t], scratch, out=sums[t])
    return sums


def generalized_advantages(
    reward: Array, value: Array, terminated: Array, truncated: Array, acting: Array, gamma: float, gae_lambda: float
) -> Array:
    """GAE (Schulman et al. 2016, eq. 16).

    delta_t = r_t + gamma * V_{t+1} * (1 - terminated_t) - V_t
    A_t     = delta_t + gamma * lambda * (1 - terminated_t) * (1 - truncated_t) * A_{t+1}
    """
    ends = Ends(terminated, truncated, acting)
    advantage = _accumulate(_deltas(reward, value, ends, gamma), gamma * gae_lambda * ends.carries())
    return advantage.astype(np.float32)


class VTrace(NamedTuple):
    target: Array  # [T, B], v_s: what the value should be
    advantage: Array  # [T, B], not weighted yet
    weight: Array  # [T, B], rho_s: how much the policy's gradient counts the sample


def vtrace(
    reward: Array,
    value: Array,
    log_ratio: Array,
    terminated: Array,
    truncated: Array,
    acting: Array,
    *,
    gamma: float,
    gae_lambda: float = 1.0,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> VTrace:
    """V-trace (Espeholt et al. 2018, eq. 1 and section 4.2), for values of the policy that learns and log_ratio =
    log(its probability of the action / that of the policy that decided).

        rho_t = min(rho_clip, ratio_t),   c_t = lambda * min(c_clip, ratio_t)
        v_t   = V_t + rho_t * delta_t + gamma * c_t * (v_{t+1} - V_{t+1})
        A_t   = delta_t + gamma * lambda * (v_{t+1} - V_{t+1})

    delta_t as in GAE; v_{t+1} - V_{t+1} counts within an episode only. The paper's policy gradient is that of
    rho_t * A_t * log_prob, with lambda = 1. If both policies are the same, A_t is GAE and v_t its return.
    """
    ends = Ends(terminated, truncated, acting)
    ratio = np.exp(np.where(acting[:-1], log_ratio[:-1], 0.0).astype(np.float64))
    rho = np.minimum(rho_clip, ratio)
    delta = _deltas(reward, value, ends, gamma)
    carry = gamma * gae_lambda * ends.carries()
    excess = _accumulate(rho * delta, carry * np.minimum(c_clip, ratio[:-1]))  # v_t - V_t
    delta[:-1] += carry * excess[1:]
    return VTrace((value[:-1] + excess).astype(np.float32), delta.astype(np.float32), rho.astype(np.float32))
