"""Losses of BC, IQL, TD3+BC and CQL as pure functions. Arguments are [B] unless it is said otherwise."""

from __future__ import annotations

import math

from torch import Tensor


def cloning_loss(log_prob: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean of -log p(a|s), the negative log-likelihood of the recorded actions."""
    return -(log_prob * weight).mean()


def expectile_loss(difference: Tensor, expectile: float) -> Tensor:
    """Return |expectile - 1(u < 0)| * u^2 of each difference u (Kostrikov et al. 2021, eq. 4)."""
    side = (difference < 0.0).to(difference.dtype)
    return (expectile - side).abs() * difference.square()


def advantage_weights(advantage: Tensor, beta: float, limit: float, normalized: bool) -> Tensor:
    """Return min(exp(beta * A), limit) (Kostrikov et al. 2021, eq. 7), with A divided by its mean absolute value if
    `normalized`."""
    if normalized:
        advantage = advantage / advantage.abs().mean().clamp_min(1e-8)
    return (beta * advantage).exp().clamp_max(limit)


def constrained_loss(value: Tensor, distance: Tensor, alpha: float) -> Tensor:
    """Return the mean of distance - lambda * Q with lambda = alpha / mean |Q| (Fujimoto and Gu 2021, eq. 5);
    `distance` is the mean squared difference between the policy's action and the recorded one."""
    scale = alpha / value.detach().abs().mean().clamp_min(1e-8)
    return (distance - scale * value).mean()


def choice_gap(values: Tensor, taken: Tensor) -> Tensor:
    """Return log sum_a exp(Q(s, a)) - Q(s, a_data) [E, B] for values of all choices [E, B, n] and of the recorded ones
    [E, B] (Kumar et al. 2020, eq. 4)."""
    return values.logsumexp(2) - taken


def sampled_gap(values: Tensor, log_density: Tensor, taken: Tensor) -> Tensor:
    """Return the same for real-valued actions. The integral over actions is estimated by importance sampling (Kumar et
    al. 2020, appendix F) from values [E, B, M] of M sampled actions, half of them uniform and half of the policy, and
    the logarithms of their densities [B, M]:

        log integral exp(Q(s, a)) da = log mean_m exp(Q(s, a_m)) / density(a_m)
    """
    return (values - log_density).logsumexp(2) - math.log(values.shape[2]) - taken
