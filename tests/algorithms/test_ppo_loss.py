"""The written-out gradient of PPO's loss against autograd, finite differences and hand-worked numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from srl.algorithms.ppo_loss import METRICS, Minibatch, Samples, ppo_gradient, ppo_metrics
from srl.api.spaces import Box, Discrete, MultiDiscrete, Space
from srl.networks.distributions import Categorical, Distribution, distribution_for

COEFFICIENTS = {"clip": 0.2, "value_coefficient": 0.7, "entropy_coefficient": 0.03}


def plain_loss(distribution: Distribution, parameters: Tensor, value: Tensor, minibatch: Minibatch) -> Tensor:
    """The loss as papers write it, for autograd."""
    if isinstance(distribution, Categorical):
        torch_distribution: Any = torch.distributions.Categorical(logits=parameters)
        log_prob, entropy = torch_distribution.log_prob(minibatch.action), torch_distribution.entropy()
    else:
        mean, log_std = parameters.chunk(2, dim=1)
        torch_distribution = torch.distributions.Normal(mean, log_std.exp())
        log_prob, entropy = torch_distribution.log_prob(minibatch.action).sum(1), torch_distribution.entropy().sum(1)
    ratio = (log_prob - minibatch.log_prob).exp()
    clipped = ratio.clamp(1 - COEFFICIENTS["clip"], 1 + COEFFICIENTS["clip"])
    policy = -torch.min(ratio * minibatch.advantage, clipped * minibatch.advantage)
    critic = 0.5 * COEFFICIENTS["value_coefficient"] * (value - minibatch.target) ** 2
    return (policy + critic - COEFFICIENTS["entropy_coefficient"] * entropy).mean()


def random_case(space: Space, rows: int) -> tuple[Distribution, Tensor, Tensor, Minibatch]:
    torch.manual_seed(0)
    distribution = distribution_for(space)
    parameters = torch.randn(rows, distribution.num_parameters, dtype=torch.float64)
    action = distribution.sample(parameters, torch.Generator().manual_seed(0))
    # Ratios on both sides of both bounds, for advantages of both signs.
    log_prob = distribution.log_prob(parameters, action) + 0.4 * torch.randn(rows, dtype=torch.float64)
    value, advantage, target = torch.randn(3, rows, dtype=torch.float64)
    return distribution, parameters, value, Minibatch(action, log_prob, advantage, target)


@pytest.mark.parametrize("space", [Discrete(4), Box((3,))], ids=str)
def test_gradient_is_that_of_autograd(space: Space) -> None:
    distribution, parameters, value, minibatch = random_case(space, 64)
    leaves = parameters.requires_grad_(), value.requires_grad_()
    wanted = torch.autograd.grad(plain_loss(distribution, *leaves, minibatch), leaves)
    found = ppo_gradient(
        distribution, parameters.detach(), value.detach(), minibatch, **COEFFICIENTS, weight=1.0 / len(value)
    )
    torch.testing.assert_close(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1])


class LossFunction(torch.autograd.Function):
    """The loss from `ppo_metrics` with the gradient from `ppo_gradient`: do the two belong together?"""

    @staticmethod
    def forward(ctx: Any, parameters: Tensor, value: Tensor, distribution: Any, minibatch: Any) -> Tensor:
        weight = 1.0 / len(value)
        gradients = ppo_gradient(distribution, parameters, value, minibatch, **COEFFICIENTS, weight=weight)
        ctx.save_for_backward(gradients[0], gradients[1])
        sums = dict(zip(METRICS, ppo_metrics(gradients[2], COEFFICIENTS["clip"]) * weight, strict=True))
        critic = COEFFICIENTS["value_coefficient"] * sums["value_loss"]
        return sums["policy_loss"] + critic - COEFFICIENTS["entropy_coefficient"] * sums["entropy"]

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor | None, ...]:
        parameters, value = ctx.saved_tensors
        return parameters * outer, value * outer, None, None


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete((2, 3)), Box((2,))], ids=str)
def test_gradcheck_of_the_loss_that_is_reported(space: Space) -> None:
    distribution, parameters, value, minibatch = random_case(space, 16)
    inputs = (parameters.requires_grad_(), value.requires_grad_())
    assert torch.autograd.gradcheck(lambda *tensors: LossFunction.apply(*tensors, distribution, minibatch), inputs)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.0, 1.0, True), (1.5, 1.0, False), (1.5, -1.0, True), (0.5, -1.0, False), (0.5, 1.0, True)],
)
def test_the_clip_stops_only_moves_that_would_profit(ratio: float, advantage: float, moves: bool) -> None:
    # Two equal logits: p = 1/2, so d log p(0) / d logits = (1/2, -1/2).
    minibatch = Minibatch(
        torch.tensor([0]), torch.tensor([math.log(0.5 / ratio)]), torch.tensor([advantage]), torch.tensor([0.0])
    )
    gradient, value_gradient, samples = ppo_gradient(
        Categorical(2),
        torch.zeros(1, 2),
        torch.tensor([3.0]),
        minibatch,
        clip=0.2,
        value_coefficient=0.5,
        entropy_coefficient=0.0,
        weight=1.0,
    )
    expected = -ratio * advantage * 0.5 if moves else 0.0
    torch.testing.assert_close(gradient, torch.tensor([[expected, -expected]]))
    assert value_gradient.item() == pytest.approx(1.5)
    assert samples.log_ratio.item() == pytest.approx(math.log(ratio), abs=1e-6)


def test_metrics_by_hand() -> None:
    samples = Samples(
        log_ratio=torch.tensor([0.0, math.log(1.5)]),
        entropy=torch.tensor([0.25, 0.5]),
        error=torch.tensor([2.0, -1.0]),
        advantage=torch.tensor([1.0, 2.0]),
    )
    sums = dict(zip(METRICS, ppo_metrics(samples, clip=0.2).tolist(), strict=True))
    assert sums == pytest.approx(
        {
            "policy_loss": -1.0 - 2.4,
            "value_loss": 2.0 + 0.5,
            "entropy": 0.75,
            "approx_kl": 0.5 - math.log(1.5),
            "clip_fraction": 1.0,
        },
        rel=1e-6,
    )
