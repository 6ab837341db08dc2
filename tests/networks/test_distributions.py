"""Distributions against torch.distributions, finite differences and counted draws."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, choice_sizes
from srl.base.tree import leaves
from srl.networks.build import distribution_for
from srl.networks.distributions.categorical import Categorical
from srl.networks.distributions.gaussian import DiagonalGaussian
from srl.networks.options import NetworkOptions

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
def test_log_prob_and_entropy_equal_those_of_torch(space: Space) -> None:
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
def test_the_mode_is_the_most_likely_action(space: Space) -> None:
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


@pytest.mark.parametrize("space", [Dict({}), Box((2,), "int64"), Box((0,)), MultiDiscrete(()), Discrete(0)], ids=str)
def test_an_unsupported_action_space_is_named(space: Space) -> None:
    with pytest.raises(ValueError, match=r"MultiDiscrete \(also MultiBinary\), Box") as caught:
        distribution_for(space)
    assert str(space) in str(caught.value)


HYBRID = Dict({"aim": Box((2,)), "key": Dict({"one": Discrete(3), "two": MultiDiscrete((2, 2))}), "push": Box((1,))})


def test_a_composite_is_the_sum_of_its_parts() -> None:
    options = NetworkOptions()
    distribution = distribution_for(HYBRID, options)
    assert (distribution.num_parameters, distribution.num_free, distribution.num_choices) == (13, 3, 7)
    parameters = torch.randn(6, 13, dtype=torch.float64)
    action = distribution.sample(parameters, torch.Generator().manual_seed(0))
    assert action["key"]["two"].shape == (6, 2)
    # aim's means, the logits of one and two, push's mean; then the deviations of aim and push
    pieces: dict[tuple[str, ...], tuple[Space, Tensor]] = {
        ("aim",): (Box((2,)), torch.cat((parameters[:, :2], parameters[:, 10:12]), 1)),
        ("key", "one"): (Discrete(3), parameters[:, 2:5]),
        ("key", "two"): (MultiDiscrete((2, 2)), parameters[:, 5:9]),
        ("push",): (Box((1,)), torch.cat((parameters[:, 9:10], parameters[:, 12:]), 1)),
    }
    log_prob, entropy = torch.zeros(2, 6, dtype=torch.float64)
    rows = []
    for path, (space, piece) in pieces.items():
        part = action
        for key in path:
            part = part[key]
        evaluation = distribution_for(space).evaluate(piece, part)
        log_prob, entropy = log_prob + evaluation.log_prob, entropy + evaluation.entropy
        rows.append(part.reshape(6, -1).double())
    packed = torch.cat(rows, 1)
    for given in (action, packed):
        evaluation = distribution.evaluate(parameters, given)
        torch.testing.assert_close(evaluation.log_prob, log_prob)
        torch.testing.assert_close(evaluation.entropy, entropy)
        torch.testing.assert_close(distribution.log_prob(parameters, given), log_prob)


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (HYBRID, NetworkOptions()),
        (HYBRID, NetworkOptions(std="state")),
        (Box((3,), low=-2.0, high=(1.0, 2.0, math.inf)), NetworkOptions()),
        (Box((3,), low=-2.0, high=(1.0, 2.0, 5.0)), NetworkOptions(box="squashed")),
        (Dict({"a": Box((2,), low=0.0, high=1.0), "b": Discrete(2)}), NetworkOptions(box="squashed", std="state")),
    ],
    ids=["hybrid", "state", "scaled", "squashed", "both"],
)
def test_gradients_equal_finite_differences(space: Space, options: NetworkOptions) -> None:
    distribution = distribution_for(space, options)
    parameters = 2.0 * torch.rand(4, distribution.num_parameters, dtype=torch.float64) - 1.0
    action = distribution.sample(parameters, torch.Generator().manual_seed(2))
    factor = torch.randn(4, dtype=torch.float64)

    def loss(at: Tensor) -> Tensor:
        evaluation = distribution.evaluate(at, action)
        return evaluation.log_prob * factor + evaluation.entropy * 0.7

    found = distribution.gradient(distribution.evaluate(parameters, action), factor, 0.7)
    step = 1e-6
    for column in range(distribution.num_parameters):
        shift = torch.zeros_like(parameters)
        shift[:, column] = step
        wanted = (loss(parameters + shift) - loss(parameters - shift)) / (2 * step)
        torch.testing.assert_close(found[:, column], wanted, rtol=1e-5, atol=1e-6)


BOUNDED = Box((2, 2), low=(0.0, -0.01, -math.inf, -1.0), high=(100.0, 0.05, 5.0, 1.0))
CENTER, HALF = torch.tensor([50.0, 0.02, 0.0, 0.0]).double(), torch.tensor([50.0, 0.03, 1.0, 1.0]).double()


@pytest.mark.parametrize("std", ["free", "state"])
@pytest.mark.parametrize("nested", [False, True], ids=["box", "dict"])
def test_a_gaussian_is_scaled_by_the_bounds(std: Literal["free", "state"], nested: bool) -> None:
    """An element that lacks a bound, and one between -1 and 1, are as they were."""
    space = Dict({"one": BOUNDED}) if nested else BOUNDED
    distribution = distribution_for(space, NetworkOptions(std=std))
    parameters = 2.0 * torch.rand(500, 8, dtype=torch.float64) - 1.0
    mean, log_std = parameters.chunk(2, 1)
    wanted = torch.distributions.Normal(CENTER + HALF * mean, HALF * log_std.exp())
    action = distribution.sample(parameters, torch.Generator().manual_seed(0))
    (drawn,) = (leaf for _, leaf in leaves(action))
    assert drawn.shape == (500, 2, 2)
    evaluation = distribution.evaluate(parameters, action)
    log_prob = wanted.log_prob(drawn.reshape(500, 4)).sum(1)
    torch.testing.assert_close(evaluation.log_prob, log_prob)
    torch.testing.assert_close(distribution.log_prob(parameters, action), log_prob)
    torch.testing.assert_close(evaluation.entropy, wanted.entropy().sum(1))
    (mode,) = (leaf for _, leaf in leaves(distribution.mode(parameters)))
    torch.testing.assert_close(mode.reshape(500, 4), wanted.mean)
    standard = (drawn.reshape(500, 4) - wanted.mean) / wanted.stddev
    assert standard.std(0).tolist() == pytest.approx([1.0] * 4, rel=0.15)


@pytest.mark.parametrize("low", [-1.0, -math.inf, -3.4e38], ids=["unit", "unbounded", "as good as unbounded"])
def test_bounds_of_one_and_missing_bounds_need_no_scaling(low: float) -> None:
    assert distribution_for(Box((3,), low=low, high=-low)) == DiagonalGaussian((3,))


def test_state_dependent_deviations_get_no_gradient_beyond_their_limits() -> None:
    for box in ("clipped", "squashed"):
        options = NetworkOptions(std="state", box=box)
        distribution = distribution_for(Box((3,), low=-1.0, high=1.0), options)
        parameters = torch.tensor([[0.0, 0.0, 0.0, -60.0, 0.0, 60.0]], dtype=torch.float64)
        at_limits = torch.tensor([[0.0, 0.0, 0.0, -5.0, 0.0, 2.0]], dtype=torch.float64)
        action = torch.tensor([[0.001, 0.5, 0.5]], dtype=torch.float64)
        evaluation, wanted = (distribution.evaluate(at, action) for at in (parameters, at_limits))
        assert (evaluation.log_prob.item(), evaluation.entropy.item()) == (
            wanted.log_prob.item(),
            wanted.entropy.item(),
        )
        gradient = distribution.gradient(evaluation, torch.ones(1, dtype=torch.float64), 0.1)[0]
        assert (gradient != 0.0).tolist() == [True, True, True, False, True, False]
        assert gradient.isfinite().all()


def test_a_squashed_gaussian_equals_torchs_transformed_distribution() -> None:
    space = Box((2,), low=(-2.0, 0.0), high=(2.0, 1.0))
    distribution = distribution_for(space, NetworkOptions(box="squashed"))
    parameters = torch.randn(200, 4, dtype=torch.float64)
    action = distribution.sample(parameters, torch.Generator().manual_seed(0))
    low, high = torch.tensor(space.low), torch.tensor(space.high)
    assert ((action >= low) & (action <= high)).all()
    transforms = [
        torch.distributions.transforms.TanhTransform(cache_size=1),
        torch.distributions.transforms.AffineTransform((low + high) / 2, (high - low) / 2),
    ]
    mean, log_std = parameters.chunk(2, 1)
    wanted = torch.distributions.TransformedDistribution(torch.distributions.Normal(mean, log_std.exp()), transforms)
    inside = ((action - low) / (high - low) - 0.5).abs().amax(1) < 0.499
    torch.testing.assert_close(
        distribution.log_prob(parameters, action)[inside], wanted.log_prob(action).sum(1)[inside], rtol=1e-5, atol=1e-5
    )
    # The entropy is the mean of -log p over many draws.
    one = torch.tensor([[0.3, -0.5, math.log(0.6), math.log(1.2)]], dtype=torch.float64).expand(100_000, 4)
    drawn = distribution.log_prob(one, distribution.sample(one, torch.Generator().manual_seed(1)))
    entropy = distribution.evaluate(one[:1], torch.zeros(1, 2, dtype=torch.float64)).entropy
    assert entropy.item() == pytest.approx(-drawn.mean().item(), abs=0.02)


def test_squashed_actions_need_bounds() -> None:
    with pytest.raises(ValueError, match=r"finite bounds.*Box\(\(2,\)"):
        distribution_for(Dict({"a": Box((2,))}), NetworkOptions(box="squashed"))


@pytest.mark.parametrize("space", [Discrete(4), MultiDiscrete((3, 2)), HYBRID], ids=["one", "many", "hybrid"])
def test_forbidden_choices_are_never_drawn_and_have_no_gradient(space: Space) -> None:
    distribution = distribution_for(space)
    generator = torch.Generator().manual_seed(0)
    parameters = torch.randn(2000, distribution.num_parameters)
    sizes = choice_sizes(space)
    allowed = torch.rand(2000, sum(sizes), generator=generator) < 0.5
    starts = np.cumsum([0, *sizes])
    for start, end in pairwise(starts):  # at least one alternative of each choice is allowed
        allowed[~allowed[:, start:end].any(1), start] = True
    masked = distribution.mask(parameters, allowed)
    action = distribution.sample(masked, generator)
    leaf = dict(leaves(action))
    columns = [leaf[path].reshape(2000, -1) for path in leaf if not leaf[path].is_floating_point()]
    for choice, (start, end) in zip(torch.cat(columns, 1).unbind(1), pairwise(starts), strict=True):
        assert allowed[:, start:end].gather(1, choice[:, None]).all()
    modes = dict(leaves(distribution.mode(masked)))
    for path in leaf:
        if not leaf[path].is_floating_point():
            assert modes[path].shape == leaf[path].shape
    evaluation = distribution.evaluate(masked, action)
    gradient = distribution.gradient(evaluation, torch.randn(2000), -0.01)
    assert gradient.isfinite().all()
    assert evaluation.log_prob.isfinite().all()
    # The forbidden logits have no effect, so their gradient is exactly zero.
    other = distribution.mask(parameters.clone(), allowed)
    choices = torch.zeros(2000, distribution.num_parameters, dtype=torch.bool)
    moved = other == -1e9
    choices |= moved
    assert (gradient[choices] == 0).all()
    assert int(choices.sum()) == int((~allowed).sum())


def test_the_entropy_of_a_masked_choice_covers_the_allowed_choices() -> None:
    masked = Categorical(3).mask(torch.zeros(1, 3), torch.tensor([[True, False, True]]))
    evaluation = Categorical(3).evaluate(masked, torch.tensor([2]))
    assert evaluation.entropy.item() == pytest.approx(math.log(2.0))
    assert evaluation.log_prob.item() == pytest.approx(-math.log(2.0))


def test_tensors_cached_while_acting_can_be_trained_with() -> None:
    distribution = distribution_for(Box((1,), low=0.0, high=7.0))
    with torch.inference_mode():
        distribution.mode(torch.zeros(1, 2))
    parameters = torch.zeros(1, 2, requires_grad=True)
    distribution.mode(parameters).sum().backward()
    assert parameters.grad is not None
    assert parameters.grad.tolist() == [[3.5, 0.0]]
