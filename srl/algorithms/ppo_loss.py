"""The PPO loss: its gradient in closed form, and the figures people watch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from srl.networks.distributions import Distribution


class Minibatch(NamedTuple):
    action: Tensor  # [B, ...]
    log_prob: Tensor  # [B], of the policy that decided
    advantage: Tensor  # [B]
    target: Tensor  # [B], what the value should be


class Samples(NamedTuple):
    """What the loss saw, sample by sample."""

    log_ratio: Tensor  # [B]
    entropy: Tensor  # [B]
    error: Tensor  # [B], value - target
    advantage: Tensor  # [B]


def ppo_gradient(
    distribution: Distribution,
    parameters: Tensor,
    value: Tensor,
    minibatch: Minibatch,
    *,
    clip: float,
    value_coefficient: float,
    entropy_coefficient: float,
    weight: float,
) -> tuple[Tensor, Tensor, Samples]:
    """Gradient of the loss below with respect to `parameters` [B, n] and `value` [B].

    Schulman et al. 2017, eq. 7 and 9, with ratio = exp(log_prob(action) - log_prob of the policy that decided):

        loss = weight * sum(-min(ratio * A, clamp(ratio, 1 - clip, 1 + clip) * A)
                            + value_coefficient / 2 * (value - target)^2 - entropy_coefficient * entropy)

    `weight` is 1 / number of samples, over all ranks. Written out because autograd makes four torch calls of one; the
    loss itself is not needed to learn and is computed once per batch, from the samples (`ppo_metrics`).
    """
    evaluation = distribution.evaluate(parameters, minibatch.action)
    log_ratio = evaluation.log_prob - minibatch.log_prob
    ratio = log_ratio.exp()
    surrogate = ratio * minibatch.advantage
    clipped = ratio.clamp_(1.0 - clip, 1.0 + clip).mul_(minibatch.advantage)
    # Where the clipped term is the smaller one it is constant; elsewhere d(ratio * A) / d log_prob = ratio * A.
    log_prob_gradient = surrogate.mul_(surrogate <= clipped).mul_(-weight)
    parameters_gradient = distribution.gradient(evaluation, log_prob_gradient, -entropy_coefficient * weight)
    error = value - minibatch.target
    samples = Samples(log_ratio, evaluation.entropy, error, minibatch.advantage)
    return parameters_gradient, error * (value_coefficient * weight), samples


METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def ppo_metrics(samples: Samples, clip: float) -> Tensor:
    """Sums over samples [B] of each of METRICS, float64 [5].

    `approx_kl` is Schulman's unbiased, low-variance estimate: the mean of ratio - 1 - log ratio.
    """
    log_ratio, entropy, error, advantage = (column.double() for column in samples)
    excess = log_ratio.expm1()
    objective = torch.minimum(excess * advantage, excess.clamp(-clip, clip) * advantage).add_(advantage)
    rows = (-objective, 0.5 * error.square(), entropy, excess - log_ratio, (excess.abs() > clip).double())
    return torch.stack(rows).sum(1)
