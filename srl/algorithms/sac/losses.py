"""Targets and losses of SAC, TD3 and DDPG as pure functions. Values of an ensemble are [E, B], everything else [B]."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from srl.networks.distributions.squashed_gaussian import log_slope

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


def squashed_sample(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return unit actions a = tanh(u) [B, d] with u = mean + std * noise, and their log-densities [B] (Haarnoja et al.
    2018, eq. 26):

        log p(a) = log N(u; mean, std) - sum log(1 - tanh(u)^2)
    """
    raw = torch.addcmul(mean, log_std.exp(), noise)
    gaussian = -(0.5 * noise * noise + log_std + HALF_LOG_TWO_PI)
    return raw.tanh(), (gaussian - log_slope(raw)).sum(1)


def td_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """Return reward + discount * V(s'). The discount is 0 after a termination, but not after a truncation."""
    return torch.addcmul(reward, discount, next_value)


def soft_value(values: Tensor, log_prob: Tensor, temperature: Tensor) -> Tensor:
    """Return V(s) = min_i Q_i(s, a) - temperature * log p(a|s) (Haarnoja et al. 2018, eq. 3)."""
    return values.amin(0) - temperature * log_prob


def soft_choice_value(values: Tensor, log_probs: Tensor, temperature: Tensor) -> Tensor:
    """Return V(s) = p(s)^T (min_i Q_i(s) - temperature * log p(s)) (Christodoulou 2019, eq. 10) for values [E, B, n]
    and log-probabilities [B, n]."""
    return (log_probs.exp() * (values.amin(0) - temperature * log_probs)).sum(1)


def critic_loss(values: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the sum over critics of the weighted mean of (Q_i - target)^2 / 2 (Haarnoja et al. 2018, eq. 5)."""
    return 0.5 * ((values - target).square() * weight).mean(1).sum()


def policy_loss(value: Tensor, log_prob: Tensor, temperature: Tensor) -> Tensor:
    """Return the mean of temperature * log p(a|s) - Q(s, a) (Haarnoja et al. 2018, eq. 9)."""
    return (temperature * log_prob - value).mean()


def choice_policy_loss(value: Tensor, log_probs: Tensor, temperature: Tensor) -> Tensor:
    """Return the mean of p(s)^T (temperature * log p(s) - Q(s)) (Christodoulou 2019, eq. 12) for values and
    log-probabilities [B, n]."""
    return (log_probs.exp() * (temperature * log_probs - value)).sum(1).mean()


def temperature_loss(log_temperature: Tensor, entropy: Tensor, target_entropy: float) -> Tensor:
    """Return log(temperature) * mean(entropy - target): the temperature grows while the policy's entropy is too low
    (Haarnoja et al. 2018, eq. 18, with the logarithm in place of the temperature, as in the authors' code)."""
    return (log_temperature * (entropy.mean() - target_entropy)).sum()


def smoothed_action(action: Tensor, noise: Tensor, std: float, limit: float) -> Tensor:
    """Return clip(a + clip(noise * std, -limit, limit), -1, 1) (Fujimoto et al. 2018, eq. 14)."""
    return (action + (noise * std).clamp(-limit, limit)).clamp(-1.0, 1.0)
