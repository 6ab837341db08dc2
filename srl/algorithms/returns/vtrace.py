"""V-trace (Espeholt et al. 2018): value targets and advantages from an older policy's data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from srl.algorithms.returns.gae import Ends, accumulate, temporal_differences
from srl.base.tree import Array


class VTrace(NamedTuple):
    target: Array  # [T, B], v_s: the value target
    advantage: Array  # [T, B], not yet weighted
    weight: Array  # [T, B], rho_s: each sample's weight in the policy gradient


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
    """Compute targets, advantages and weights as in eq. 1 and section 4.2 of the paper.

    The values are those of the current policy, and log_ratio = log(probability of the action under the current policy
    / its probability under the policy that acted).

        rho_t = min(rho_clip, ratio_t),   c_t = lambda * min(c_clip, ratio_t)
        v_t   = V_t + rho_t * delta_t + gamma * c_t * (v_{t+1} - V_{t+1})
        A_t   = delta_t + gamma * lambda * (v_{t+1} - V_{t+1})

    delta_t is as in GAE; v_{t+1} - V_{t+1} counts only within an episode. The paper's policy gradient is the gradient
    of rho_t * A_t * log_prob with lambda = 1. If both policies are the same, A_t is GAE's and v_t = V_t + A_t.
    """
    ends = Ends(terminated, truncated, acting)
    ratio = np.exp(np.where(acting[:-1], log_ratio[:-1], 0.0).astype(np.float64))
    rho = np.minimum(rho_clip, ratio)
    delta = temporal_differences(reward, value, ends, gamma)
    carry = gamma * gae_lambda * ends.carries()
    excess = accumulate(rho * delta, carry * np.minimum(c_clip, ratio[:-1]))  # v_t - V_t
    delta[:-1] += carry * excess[1:]
    return VTrace((value[:-1] + excess).astype(np.float32), delta.astype(np.float32), rho.astype(np.float32))
