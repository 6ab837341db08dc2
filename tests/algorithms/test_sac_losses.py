"""Targets and losses of SAC, TD3 and DDPG, with numbers that can be checked by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from srl.algorithms.sac import losses
from srl.algorithms.sac.networks import StackedLayers, bounded_log_std, raw_log_std

HALF = torch.tensor([0.5])


def test_the_density_of_a_squashed_action_integrates_to_one_and_matches_a_histogram() -> None:
    mean, log_std = torch.full((200_000, 1), 0.3), torch.full((200_000, 1), -0.5)
    noise = torch.empty(200_000, 1).normal_(generator=torch.Generator().manual_seed(0))
    action, log_prob = losses.squashed_sample(mean, log_std, noise)
    edges = torch.linspace(-1.0, 1.0, 41)
    counts = torch.histogram(action[:, 0], edges).hist / 200_000
    for i in range(5, 35):
        inside = (action[:, 0] >= edges[i]) & (action[:, 0] < edges[i + 1])
        mass = float(log_prob[inside].exp().mean() * 0.05)
        assert mass == pytest.approx(float(counts[i]), rel=0.1)
    # E[1 / p(a)] over the support is its length, 2.
    assert float((-log_prob).exp().clamp(max=1e4).mean()) == pytest.approx(2.0, rel=0.05)


def test_the_log_density_has_the_jacobian_of_tanh() -> None:
    """At u = 0.3 + e^-0.5 * 1, by the numerical derivative of the inverse."""
    mean, log_std, noise = (torch.tensor([[number]], dtype=torch.float64) for number in (0.3, -0.5, 1.0))
    action, log_prob = losses.squashed_sample(mean, log_std, noise)
    step, normal = 1e-6, torch.distributions.Normal(mean, log_std.exp())
    inside = normal.cdf((action + step).atanh()) - normal.cdf((action - step).atanh())
    assert float(log_prob.exp()) == pytest.approx(float(inside / (2 * step)), rel=1e-6)


def test_the_log_density_stays_finite_where_tanh_saturates() -> None:
    action, log_prob = losses.squashed_sample(torch.full((1, 1), 30.0), torch.zeros(1, 1), torch.zeros(1, 1))
    assert float(action) == 1.0
    # log(1 - tanh(30)^2) = log 4 - 60
    assert float(log_prob) == pytest.approx(60.0 - math.log(4.0) - losses.HALF_LOG_TWO_PI, rel=1e-6)


def test_a_target_bootstraps_from_the_lowest_critic_except_after_a_termination() -> None:
    values = torch.tensor([[1.0, 5.0, 3.0], [2.0, 4.0, 3.0]])
    value = losses.soft_value(values, torch.tensor([2.0, -2.0, 0.0]), HALF)
    assert value.tolist() == [0.0, 5.0, 3.0]
    truncated_and_terminated = torch.tensor([0.9, 0.9, 0.0])
    target = losses.td_target(torch.ones(3), truncated_and_terminated, value)
    assert target.tolist() == pytest.approx([1.0, 5.5, 1.0])


def test_the_critic_loss_sums_critics_and_averages_weighted_rows() -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    loss = losses.critic_loss(values, torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.5]))
    assert float(loss) == 0.5 * ((0.0 + 0.5 * 4.0) / 2 + (4.0 + 0.0) / 2)


def test_the_losses_of_choices_are_expectations() -> None:
    log_probs = torch.tensor([[0.25, 0.75]]).log()
    values = torch.tensor([[[1.0, 2.0]], [[3.0, 1.0]]])
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert float(losses.soft_choice_value(values, log_probs, HALF)) == pytest.approx(0.25 + 0.75 + 0.5 * entropy)
    loss = losses.choice_policy_loss(torch.tensor([[1.0, 2.0]]), log_probs, HALF)
    assert float(loss) == pytest.approx(-0.25 - 1.5 - 0.5 * entropy)


def test_a_forbidden_choice_adds_nothing() -> None:
    log_probs = torch.log_softmax(torch.tensor([[0.0, 0.0, -1e9]]), 1)
    value = losses.soft_choice_value(torch.ones(2, 1, 3), log_probs, HALF)
    assert float(value) == pytest.approx(1.0 + 0.5 * math.log(2.0))


@pytest.mark.parametrize(("entropy", "grows"), [(-8.0, True), (-4.0, False)])
def test_the_temperature_moves_the_entropy_towards_its_target(entropy: float, grows: bool) -> None:
    log_temperature = torch.zeros(1, requires_grad=True)
    losses.temperature_loss(log_temperature, torch.tensor([entropy]), target_entropy=-6.0).backward()
    assert log_temperature.grad is not None
    assert (float(log_temperature.grad) < 0.0) == grows


def test_target_noise_and_smoothed_actions_are_clipped() -> None:
    action, noise = torch.tensor([0.0, 0.0, 0.9]), torch.tensor([1.0, -10.0, 10.0])
    assert losses.smoothed_action(action, noise, 0.2, 0.5).tolist() == pytest.approx([0.2, -0.5, 1.0])


def test_the_bounded_log_std_is_smooth_and_inverted_by_raw() -> None:
    raw = torch.tensor([-100.0, raw_log_std(-1.0), raw_log_std(0.0), 100.0])
    assert bounded_log_std(raw).tolist() == pytest.approx([-5.0, -1.0, 0.0, 2.0], abs=1e-6)


def test_stacked_layers_equal_separate_networks() -> None:
    layers = StackedLayers(3, (4, 5, 2), "relu")
    inputs = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))

    def alone(i: int) -> Tensor:
        hidden = (inputs @ layers.weights[0][i] + layers.biases[0][i]).relu()
        return hidden @ layers.weights[1][i] + layers.biases[1][i]

    torch.testing.assert_close(layers(inputs), torch.stack([alone(i) for i in range(3)]))
    torch.testing.assert_close(layers(inputs, torch.tensor([2, 0])), torch.stack([alone(2), alone(0)]))


@torch.no_grad()
def test_dropout_keeps_the_mean_and_layer_norm_the_scale() -> None:
    generator = torch.Generator().manual_seed(2)
    plain, dropped = StackedLayers(1, (3, 400, 1), "relu"), StackedLayers(1, (3, 400, 1), "relu", dropout=0.2)
    dropped.load_state_dict(plain.state_dict())
    inputs = torch.ones(1, 3)
    mean = torch.stack([dropped(inputs, None, generator) for _ in range(400)]).mean()
    # Dropping before the activation keeps the mean of pre-activations, and ReLU the scale of kept units.
    assert float(mean) == pytest.approx(float(plain(inputs)), abs=0.05)
    normed = StackedLayers(2, (3, 50, 1), "relu", layer_norm=True)
    torch.testing.assert_close(normed(inputs * 1000.0), normed(inputs * 1e6), rtol=1e-3, atol=1e-3)
