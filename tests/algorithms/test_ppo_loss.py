"""The written-out gradients of PPO's loss against autograd and hand-worked numbers; `test_gradients` has the rest."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from srl.algorithms.ppo.loss import (
    METRICS,
    Coefficients,
    Minibatch,
    Samples,
    policy_objective,
    ppo_gradient,
    ppo_metrics,
)
from srl.api.spaces import Box, Discrete, Space
from srl.networks.build import distribution_for
from srl.networks.distributions.categorical import Categorical
from srl.networks.distributions.distribution import Distribution

BASE = Coefficients(clip=0.2, value=0.7, entropy=0.03)
VARIANTS = {
    "ppo": BASE,
    "dual clip": BASE._replace(dual_clip=1.3),
    "value clip": BASE._replace(value_clip=0.3),
    "kl": BASE._replace(kl=0.4),
    "plain": BASE._replace(clip=None),
    "all": Coefficients(clip=0.1, value=0.7, entropy=0.03, kl=0.2, dual_clip=1.2, value_clip=0.5),
}
variants = pytest.mark.parametrize("coefficients", VARIANTS.values(), ids=VARIANTS)


def plain_loss(
    distribution: Distribution, parameters: Tensor, value: Tensor, minibatch: Minibatch, c: Coefficients
) -> Tensor:
    """The loss as papers write it, for autograd."""
    if isinstance(distribution, Categorical):
        torch_distribution: Any = torch.distributions.Categorical(logits=parameters)
        log_prob, entropy = torch_distribution.log_prob(minibatch.action), torch_distribution.entropy()
    else:
        mean, log_std = parameters.chunk(2, dim=1)
        torch_distribution = torch.distributions.Normal(mean, log_std.exp())
        log_prob, entropy = torch_distribution.log_prob(minibatch.action).sum(1), torch_distribution.entropy().sum(1)
    ratio = (log_prob - minibatch.log_prob).exp()
    if c.clip is None:
        objective = minibatch.advantage * log_prob
    else:
        clipped = ratio.clamp(1 - c.clip, 1 + c.clip)
        objective = torch.min(ratio * minibatch.advantage, clipped * minibatch.advantage)
        if c.dual_clip is not None:
            least = torch.max(objective, c.dual_clip * minibatch.advantage)
            objective = torch.where(minibatch.advantage < 0.0, least, objective)
    critic = (value - minibatch.target) ** 2
    if c.value_clip is not None:
        assert minibatch.value is not None
        near = minibatch.value + (value - minibatch.value).clamp(-c.value_clip, c.value_clip)
        critic = torch.max(critic, (near - minibatch.target) ** 2)
    divergence = ratio - 1.0 - ratio.log()
    return (-objective + 0.5 * c.value * critic - c.entropy * entropy + c.kl * divergence).mean()


def random_case(space: Space, rows: int) -> tuple[Distribution, Tensor, Tensor, Minibatch]:
    torch.manual_seed(0)
    distribution = distribution_for(space)
    parameters = torch.randn(rows, distribution.num_parameters, dtype=torch.float64)
    action = distribution.sample(parameters, torch.Generator().manual_seed(0))
    # Ratios on both sides of all bounds, for advantages of both signs.
    log_prob = distribution.log_prob(parameters, action) + 0.4 * torch.randn(rows, dtype=torch.float64)
    value, advantage, target, before = torch.randn(4, rows, dtype=torch.float64)
    return distribution, parameters, value, Minibatch(action, log_prob, advantage, target, value + 0.5 * before)


@variants
@pytest.mark.parametrize("space", [Discrete(4), Box((3,))], ids=str)
def test_gradient_is_that_of_autograd(space: Space, coefficients: Coefficients) -> None:
    distribution, parameters, value, minibatch = random_case(space, 64)
    leaves = parameters.requires_grad_(), value.requires_grad_()
    wanted = torch.autograd.grad(plain_loss(distribution, *leaves, minibatch, coefficients), leaves)
    found = ppo_gradient(
        distribution, parameters.detach(), value.detach(), minibatch, coefficients, weight=1.0 / len(value)
    )
    torch.testing.assert_close(found[0], wanted[0])
    torch.testing.assert_close(found[1], wanted[1])


def one_sample(ratio: float, advantage: float, **changes: float | None) -> tuple[float, float, Samples]:
    """The value is 3, was 2, and should be 0. The gradient of the loss with respect to the first of two equal logits:
    p = 1/2, so d log p(0) / d logits = (1/2, -1/2)."""
    numbers = (math.log(0.5 / ratio), advantage, 0.0, 2.0)
    minibatch = Minibatch(torch.tensor([0]), *(torch.tensor([number]) for number in numbers))
    coefficients = Coefficients(clip=0.2, value=0.5, entropy=0.0)._replace(**changes)  # type: ignore[arg-type]
    gradient, value_gradient, samples = ppo_gradient(
        Categorical(2), torch.zeros(1, 2), torch.tensor([3.0]), minibatch, coefficients, weight=1.0
    )
    assert gradient[0, 0] == -gradient[0, 1]
    return gradient[0, 0].item(), value_gradient.item(), samples


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.0, 1.0, True), (1.5, 1.0, False), (1.5, -1.0, True), (0.5, -1.0, False), (0.5, 1.0, True)],
)
def test_the_clip_stops_only_moves_that_would_profit(ratio: float, advantage: float, moves: bool) -> None:
    gradient, value_gradient, samples = one_sample(ratio, advantage)
    assert gradient == pytest.approx(-ratio * advantage * 0.5 if moves else 0.0, rel=1e-6)
    assert value_gradient == pytest.approx(1.5)
    assert samples.log_ratio.item() == pytest.approx(math.log(ratio), abs=1e-6)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"), [(2.9, -1.0, True), (3.1, -1.0, False), (0.1, 1.0, True), (3.1, 1.0, False)]
)
def test_the_dual_clip_bounds_the_ratio_of_bad_actions(ratio: float, advantage: float, moves: bool) -> None:
    gradient, _, samples = one_sample(ratio, advantage, dual_clip=3.0)
    assert gradient == pytest.approx(-ratio * advantage * 0.5 if moves else 0.0, rel=1e-6)
    objective = policy_objective(samples.log_ratio, samples.advantage, BASE._replace(dual_clip=3.0))
    bounded = ratio * advantage if moves else advantage * (3.0 if advantage < 0.0 else 1.2)
    assert objective.item() == pytest.approx(bounded, rel=1e-6)


def test_the_plain_policy_gradient_ignores_the_ratio() -> None:
    for ratio in (0.1, 1.0, 5.0):
        assert one_sample(ratio, 2.0, clip=None)[0] == pytest.approx(-1.0)


def test_the_divergence_pulls_the_ratio_back_to_one() -> None:
    # d (r - 1 - log r) / d log_prob = r - 1, here weighted by 0.4; the advantage is 0.
    assert one_sample(1.5, 0.0, kl=0.4)[0] == pytest.approx(0.5 * 0.4 * 0.5, rel=1e-6)
    assert one_sample(0.5, 0.0, kl=0.4)[0] == pytest.approx(-0.5 * 0.4 * 0.5, rel=1e-6)


def test_the_value_clip_stops_only_moves_that_would_profit() -> None:
    # The value went from 2 to 3, away from its target 0. Kept within 1/2 it would be 2.5: the smaller error.
    _, gradient, samples = one_sample(1.0, 1.0, value_clip=0.5)
    assert (gradient, samples.error.item()) == (pytest.approx(0.5 * 3.0), 3.0)
    # From 2 to 3 with the target 10: 2.5 - 10 is the larger error, and constant.
    before, target, value = torch.tensor([2.0]), torch.tensor([10.0]), torch.tensor([3.0])
    minibatch = Minibatch(torch.tensor([0]), torch.zeros(1), torch.zeros(1), target, before)
    coefficients = Coefficients(clip=0.2, value=0.5, entropy=0.0, value_clip=0.5)
    _, stopped, clipped = ppo_gradient(Categorical(2), torch.zeros(1, 2), value, minibatch, coefficients, weight=1.0)
    assert (stopped.item(), clipped.error.item()) == (0.0, -7.5)


def test_metrics_by_hand() -> None:
    samples = Samples(
        log_ratio=torch.tensor([0.0, math.log(1.5)]),
        entropy=torch.tensor([0.25, 0.5]),
        error=torch.tensor([2.0, -1.0]),
        advantage=torch.tensor([1.0, 2.0]),
    )
    sums = dict(zip(METRICS, ppo_metrics(samples, BASE).tolist(), strict=True))
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
