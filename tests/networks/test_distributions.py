"""Distributions against torch.distributions, finite differences and counted draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.networks.distributions import Categorical, DiagonalGaussian, distribution_for

SPACES: list[Space] = [Discrete(2), Discrete(5), MultiDiscrete((2, 3, 4)), Box((3,)), Box((2, 2))]


def reference(space: Space, parameters: Tensor) -> list[torch.distributions.Distribution]:
    """One torch distribution for each component."""
    if isinstance(space, Discrete):
        return [torch.distributions.Categorical(logits=parameters)]
    if isinstance(space, MultiDiscrete):
        parts = torch.split(parameters, list(space.nvec), dim=1)
        return [torch.distributions.Categorical(logits=part) for part in parts]
    mean, log_std = parameters.chunk(2, dim=1)
    return [torch.distributions.Normal(mean[:, i], log_std[:, i].exp()) for i in range(mean.shape[1])]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_log_prob_and_entropy_are_those_of_torch(space: Space) -> None:
    distribution = distribution_for(space)
    parameters = torch.randn(7, distribution.num_parameters, dtype=torch.float64)
    action = distribution.sample(parameters, torch.Generator().manual_seed(3))
    evaluation = distribution.evaluate(parameters, action)
    components = reference(space, parameters)
    columns = action.reshape(7, -1).unbind(1)
    log_prob = sum(part.log_prob(column) for part, column in zip(components, columns, strict=True))
    torch.testing.assert_close(evaluation.log_prob, log_prob)
    torch.testing.assert_close(distribution.log_prob(parameters, action), log_prob)
    torch.testing.assert_close(evaluation.entropy, sum(part.entropy() for part in components))


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize("entropy_gradient", [0.0, -0.37])
def test_gradient_is_that_of_autograd(space: Space, entropy_gradient: float) -> None:
    distribution = distribution_for(space)
    parameters = torch.randn(6, distribution.num_parameters, dtype=torch.float64, requires_grad=True)
    action = distribution.sample(parameters.detach(), torch.Generator().manual_seed(5))
    log_prob_gradient = torch.randn(6, dtype=torch.float64)
    columns = action.reshape(6, -1).unbind(1)
    components = reference(space, parameters)
    log_prob = sum(part.log_prob(column) for part, column in zip(components, columns, strict=True))
    entropy = sum(part.entropy() for part in components)
    (wanted,) = torch.autograd.grad((log_prob * log_prob_gradient + entropy * entropy_gradient).sum(), parameters)
    evaluation = distribution.evaluate(parameters.detach(), action)
    found = distribution.gradient(evaluation, log_prob_gradient, entropy_gradient)
    torch.testing.assert_close(found, wanted)


def test_categorical_numbers_by_hand() -> None:
    # softmax(log 1, log 3) = (1/4, 3/4)
    parameters = torch.tensor([[0.0, math.log(3.0)]])
    evaluation = Categorical(2).evaluate(parameters, torch.tensor([1]))
    assert evaluation.log_prob.item() == pytest.approx(math.log(0.75))
    assert evaluation.entropy.item() == pytest.approx(-0.25 * math.log(0.25) - 0.75 * math.log(0.75))
    gradient = Categorical(2).gradient(evaluation, torch.tensor([1.0]), 0.0)
    np.testing.assert_allclose(gradient, [[-0.25, 0.25]], rtol=1e-6)


def test_gaussian_numbers_by_hand() -> None:
    # mean 1, std 2, action 5: z = 2
    parameters = torch.tensor([[1.0, math.log(2.0)]])
    evaluation = DiagonalGaussian((1,)).evaluate(parameters, torch.tensor([[5.0]]))
    assert evaluation.log_prob.item() == pytest.approx(-2.0 - math.log(2.0) - 0.5 * math.log(2 * math.pi))
    gradient = DiagonalGaussian((1,)).gradient(evaluation, torch.tensor([1.0]), 0.5)
    np.testing.assert_allclose(gradient, [[1.0, 3.5]], rtol=1e-6)


def test_gumbel_draws_follow_the_softmax() -> None:
    parameters = torch.tensor([0.1, 0.2, 0.7]).log().expand(40_000, 3)
    draws = Categorical(3).sample(parameters, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(np.bincount(draws.numpy(), minlength=3) / 40_000, [0.1, 0.2, 0.7], atol=0.01)


def test_gaussian_draws_have_the_mean_and_deviation() -> None:
    parameters = torch.tensor([1.0, -2.0, math.log(0.5), math.log(3.0)]).expand(40_000, 4)
    draws = DiagonalGaussian((2,)).sample(parameters, torch.Generator().manual_seed(0)).numpy()
    np.testing.assert_allclose(draws.mean(0), [1.0, -2.0], atol=0.05)
    np.testing.assert_allclose(draws.std(0), [0.5, 3.0], rtol=0.02)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_mode_is_the_likeliest_action(space: Space) -> None:
    distribution = distribution_for(space)
    parameters = torch.randn(50, distribution.num_parameters)
    best = distribution.log_prob(parameters, distribution.mode(parameters))
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        assert (distribution.log_prob(parameters, distribution.sample(parameters, generator)) <= best + 1e-6).all()


def test_huge_and_masked_logits_stay_finite() -> None:
    parameters = torch.tensor([[1e4, -1e4, 0.0], [0.0, -math.inf, 1.0]])
    action = Categorical(3).sample(parameters, torch.Generator().manual_seed(0))
    assert action[0] == 0
    assert action[1] != 1
    evaluation = Categorical(3).evaluate(parameters, action)
    gradient = Categorical(3).gradient(evaluation, torch.ones(2), -0.01)
    for tensor in (evaluation.log_prob, evaluation.entropy, gradient):
        assert tensor.isfinite().all()
    assert gradient[1, 1] == 0.0


@pytest.mark.parametrize(
    "space", [Dict({"a": Discrete(2)}), Box((2,), "int64"), Box((0,)), MultiDiscrete(()), Discrete(0)], ids=str
)
def test_an_unsupported_action_space_is_named(space: Space) -> None:
    with pytest.raises(ValueError, match="supported are Discrete, MultiDiscrete and Box") as caught:
        distribution_for(space)
    assert str(space) in str(caught.value)
