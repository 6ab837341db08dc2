"""Sampled actions of MuZero (Hubert et al. 2021): how searches, replay and environments represent them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from srl.api.spaces import Box, Discrete, MultiDiscrete, Space, choice_sizes
from srl.base.tree import Array
from srl.networks.distributions.action_scaling import ActionScaling, finite_scaling
from srl.networks.distributions.squashed_gaussian import log_slope
from srl.search import ActionSamples
from srl.search.samples import LOG_STD, MOST_MEAN

NODES, WEIGHTS = (array.tolist() for array in np.polynomial.hermite_e.hermegauss(7))
WEIGHTS = [weight / math.sqrt(2.0 * math.pi) for weight in WEIGHTS]


@dataclass(frozen=True)
class SampledActions:
    """Conversion between the actions of an environment and those of a search, u with a = tanh(u) or choices."""

    shape: tuple[int, ...]  # of an environment's action
    choices: tuple[int, ...]  # of each element; (): real numbers
    scaling: ActionScaling | None = None  # of real numbers

    def native(self, sampled: Array) -> Array:
        """Return environment actions [B, ...] for sampled ones [B, size]."""
        if self.scaling is None:
            return sampled.astype(np.int64).reshape(-1, *self.shape)
        center, half = (np.array(numbers) for numbers in (self.scaling.center, self.scaling.half))
        found: Array = (center + half * np.tanh(sampled)).astype(np.float32)
        return found.reshape(-1, *self.shape)

    def inputs(self, action: Array, known: Array, random: np.random.Generator) -> Array:
        """Return the inputs of the dynamics [K, N, size] for environment actions [K, N, ...]: numbers between -1 and 1,
        or choices. Those that are not `known` [K, N] are random."""
        flat = action.reshape(*known.shape, -1)
        if self.scaling is None:
            drawn = random.integers(0, self.choices, flat.shape)
            return np.where(known[..., None], flat, drawn)
        center, half = (np.array(numbers) for numbers in (self.scaling.center, self.scaling.half))
        unit = np.where(known[..., None], (flat - center) / half, random.uniform(-1.0, 1.0, flat.shape))
        return unit.astype(np.float32)

    def drawable(self, allowed: Array) -> Array:
        """Return the choices [B, choices] that may be drawn. An element without any, in a row in which no lane can act,
        has all."""
        found = allowed.copy()
        for end, number in zip(accumulate(self.choices), self.choices, strict=True):
            part = found[:, end - number : end]
            part |= ~part.any(1, keepdims=True)
        return found


def actions_of(action: Space) -> SampledActions:
    if isinstance(action, Box):
        return SampledActions(tuple(action.shape), (), finite_scaling(action))
    assert isinstance(action, Discrete | MultiDiscrete)
    choices = choice_sizes(action)
    return SampledActions(() if isinstance(action, Discrete) else (len(choices),), choices)


def bounded_policy(outputs: Tensor) -> Tensor:
    """Return the means and log standard deviations [B, 2 size] that the outputs of a network stand for."""
    mean, log_std = outputs.chunk(2, -1)
    low, high = LOG_STD
    return torch.cat((MOST_MEAN * (mean / MOST_MEAN).tanh(), low + (high - low) * 0.5 * (log_std.tanh() + 1.0)), -1)


def output_for(std: float) -> float:
    """Return the output that stands for a standard deviation."""
    low, high = LOG_STD
    return math.atanh(2.0 * (math.log(std) - low) / (high - low) - 1.0)


def entropy(samples: ActionSamples, policy: Tensor) -> Tensor:
    """Return the entropies [B] of policies [B, outputs]: of a = tanh(u) for real numbers, by Gauss-Hermite quadrature
    of the mean of log(1 - tanh(u)^2)."""
    if samples.choices:
        parts = [part.log_softmax(-1) for part in torch.split(policy, list(samples.choices), -1)]
        return -torch.stack([(part.exp() * part).sum(-1) for part in parts]).sum(0)
    mean, log_std = policy.chunk(2, -1)
    std = log_std.exp()
    found = log_std + 0.5 * math.log(2.0 * math.pi * math.e)
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        found = found + weight * log_slope(mean + node * std)
    return found.sum(-1)


def log_probability(samples: ActionSamples, policy: Tensor, sampled: Tensor) -> Tensor:
    """Return the log-probabilities [B, count] of sampled actions [B, count, size] under policies [B, outputs]. Those of
    real numbers are densities of u, which differ from those of tanh(u) by a term that has no gradient."""
    if not samples.choices:
        mean, log_std = policy[:, None].chunk(2, -1)
        scaled = (sampled - mean) * (-log_std).exp()
        return -(0.5 * scaled.square() + log_std + 0.5 * math.log(2.0 * math.pi)).sum(-1)
    parts = torch.split(policy, list(samples.choices), -1)
    chosen = sampled.long().unbind(-1)
    return torch.stack([part.log_softmax(-1).gather(-1, index) for part, index in zip(parts, chosen, strict=True)]).sum(
        0
    )
