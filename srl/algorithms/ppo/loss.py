"""The PPO loss and its variants: gradients in closed form, and metrics.

All functions take tensors [B] with one number per sample, in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from srl.networks.distributions.distribution import Distribution


class Minibatch(NamedTuple):
    action: Tensor  # [B, ...]
    log_prob: Tensor  # [B], under the policy in the ratio's denominator: the one that acted, unless corrected
    advantage: Tensor  # [B]
    target: Tensor  # [B], value target
    value: Tensor | None = None  # [B], value before the update; only needed for value clipping


class Coefficients(NamedTuple):
    """Loss coefficients for one update."""

    clip: float | None  # None: the plain policy gradient
    value: float
    entropy: float
    kl: float = 0.0
    dual_clip: float | None = None
    value_clip: float | None = None


class Samples(NamedTuple):
    """Terms of the loss for each sample."""

    log_ratio: Tensor  # [B]
    entropy: Tensor  # [B]
    error: Tensor  # [B], value - target, or that of the clipped value where it is larger
    advantage: Tensor  # [B]


def ppo_gradient(
    distribution: Distribution,
    parameters: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    coefficients: Coefficients,
    weight: float,
) -> tuple[Tensor, Tensor, Samples]:
    """Return the gradients of the loss below with respect to `parameters` [B, n] and `value` [B], and its terms.

    Schulman et al. 2017, eqs. 8 and 9, with ratio = exp(log_prob(action) - minibatch.log_prob), c = coefficients:

        loss = weight * sum(-objective + c.kl * (ratio - 1 - log ratio)
                            + c.value / 2 * max(error^2, clipped error^2) - c.entropy * entropy of the distribution)

    `policy_objective` and `value_error` define objective and error. The mean of ratio - 1 - log ratio is an unbiased
    estimate of KL(old, new), and so is its gradient. `weight` is 1 / number of samples, over all ranks. The gradient is
    written by hand because autograd turns each torch call into four. Learning does not need the loss itself, which is
    computed once per batch from the samples (`ppo_metrics`).
    """
    evaluation = distribution.evaluate(parameters, minibatch.action)
    log_ratio = evaluation.log_prob - minibatch.log_prob
    log_prob_gradient = _log_prob_gradient(log_ratio, minibatch.advantage, coefficients).mul_(-weight)
    parameters_gradient = distribution.gradient(evaluation, log_prob_gradient, -coefficients.entropy * weight)
    error = value - minibatch.target
    value_gradient = error * (coefficients.value * weight)
    if coefficients.value_clip is not None and minibatch.value is not None:
        clipped = value_error(value, minibatch, coefficients.value_clip)
        # Where the clipped error is larger, the value is outside the clip range, so the error is constant.
        value_gradient.mul_(clipped == error)
        error = clipped
    return parameters_gradient, value_gradient, Samples(log_ratio, evaluation.entropy, error, minibatch.advantage)


def _log_prob_gradient(log_ratio: Tensor, advantage: Tensor, coefficients: Coefficients) -> Tensor:
    """Return d (policy_objective - kl * (ratio - 1 - log ratio)) / d log_prob, [B]."""
    if coefficients.clip is None:
        gradient = advantage.clone()
    else:
        ratio = log_ratio.exp()
        surrogate = ratio * advantage
        clipped = ratio.clamp_(1.0 - coefficients.clip, 1.0 + coefficients.clip).mul_(advantage)
        # Where the clipped term is smaller, it is constant; elsewhere d(ratio * A) / d log_prob = ratio * A.
        moves = surrogate <= clipped
        if coefficients.dual_clip is not None:
            moves &= surrogate >= advantage.clamp(max=0.0).mul_(coefficients.dual_clip)
        gradient = surrogate.mul_(moves)
    if coefficients.kl != 0.0:
        gradient.sub_(log_ratio.expm1(), alpha=coefficients.kl)
    return gradient


def policy_objective(log_ratio: Tensor, advantage: Tensor, coefficients: Coefficients) -> Tensor:
    """Return the objective [B] that the policy maximizes. With a clip (Schulman et al. 2017, eq. 7), it is

        min(ratio * A, clamp(ratio, 1 - clip, 1 + clip) * A), and where A < 0 at least dual_clip * A

    (Ye et al. 2020, eq. 5). Without a clip, it is A * (1 + log ratio), whose gradient is the plain policy gradient; A
    includes the sample's weight.
    """
    if coefficients.clip is None:
        return advantage * log_ratio + advantage
    excess = log_ratio.expm1()
    clipped = excess.clamp(-coefficients.clip, coefficients.clip)
    objective = torch.minimum(excess * advantage, clipped * advantage).add_(advantage)
    if coefficients.dual_clip is not None:
        floor = torch.where(advantage < 0.0, advantage * coefficients.dual_clip, -torch.inf)
        objective = torch.maximum(objective, floor)
    return objective


def value_error(value: Tensor, minibatch: Minibatch, value_clip: float) -> Tensor:
    """Return value - target [B], clipping the value to within `value_clip` of the old one if that error is larger."""
    error = value - minibatch.target
    before = minibatch.value
    assert before is not None
    clipped = torch.clamp(value, before - value_clip, before + value_clip).sub_(minibatch.target)
    return torch.where(clipped.abs() > error.abs(), clipped, error)


METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def ppo_metrics(samples: Samples, coefficients: Coefficients) -> Tensor:
    """Return each of METRICS summed over the samples, float64 [5].

    `approx_kl` is Schulman's unbiased, low-variance estimate: the mean of ratio - 1 - log ratio.
    """
    log_ratio, entropy, error, advantage = (column.double() for column in samples)
    excess = log_ratio.expm1()
    objective = policy_objective(log_ratio, advantage, coefficients)
    bound = torch.inf if coefficients.clip is None else coefficients.clip
    rows = (-objective, 0.5 * error.square(), entropy, excess - log_ratio, (excess.abs() > bound).double())
    return torch.stack(rows).sum(1)
