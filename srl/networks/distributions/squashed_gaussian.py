"""A Gaussian squashed by tanh into the bounds of a Box, with the exact density of the squashed action."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from srl.networks.distributions.action_scaling import ActionScaling
from srl.networks.distributions.distribution import Evaluation
from srl.networks.distributions.gaussian import DiagonalGaussian

LIMIT = 1.0 - 1e-6
"""Largest magnitude of a unit action: closer to the bounds, float32 cannot resolve the distance to them."""
NODES, WEIGHTS = (array.tolist() for array in np.polynomial.hermite_e.hermegauss(20))
WEIGHTS = [weight / math.sqrt(2.0 * math.pi) for weight in WEIGHTS]


@dataclass(frozen=True)
class SquashedGaussian(DiagonalGaussian):
    """tanh(u) with u Gaussian, in the units of `scaling`; the parameters are those of u, and `initial_std` is its
    standard deviation before training. Actions are stored as the environment receives them.

        log p(a) = log p(u) - sum log(1 - tanh(u)^2) - sum log half

    The entropy has no closed form: Gauss-Hermite quadrature computes the mean of log(1 - tanh(u)^2), and its gradient.
    """

    scaling: ActionScaling = field(kw_only=True)

    @property
    def _base(self) -> DiagonalGaussian:
        return DiagonalGaussian((self.action_size,), self.free_std, self.initial_std)

    def _squash(self, raw: Tensor) -> Tensor:
        return self.scaling.to_native(raw.tanh()).reshape(-1, *self.shape)

    def _raw(self, action: Tensor) -> Tensor:
        """Return the Gaussian sample u [B, d] behind each action."""
        return torch.atanh(self.scaling.to_unit(action.reshape(-1, self.action_size)).clamp_(-LIMIT, LIMIT))

    def _correction(self, raw: Tensor) -> Tensor:
        return log_slope(raw).sum(1).add_(self.scaling.log_volume)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        return self._squash(self._base.sample(parameters, generator))

    def mode(self, parameters: Tensor) -> Tensor:
        """Return the action at the mean of the Gaussian."""
        return self._squash(self._base.mode(parameters))

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        raw = self._raw(action)
        return self._base.log_prob(parameters, raw) - self._correction(raw)

    def evaluate(self, parameters: Tensor, action: Tensor) -> Evaluation:
        raw = self._raw(action)
        base = self._base.evaluate(parameters, raw)
        mean, log_std = self._base.split(parameters)
        std = log_std.exp()
        entropy = base.entropy.add_(self.scaling.log_volume)
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            entropy.add_(log_slope(torch.add(mean, std, alpha=node)).sum(0), alpha=weight)
        log_prob = base.log_prob - self._correction(raw)
        return Evaluation(log_prob, entropy, (*base.saved, mean, std))

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        # d log(1 - tanh(u)^2) / d u = -2 tanh(u), with u = mean + std * z
        *saved, mean, std = evaluation.saved
        gradient = self._base.gradient(evaluation._replace(saved=tuple(saved)), log_prob, entropy)
        inside = saved[-1]
        if entropy != 0.0:
            mean_part, std_part = gradient.t().chunk(2)
            for node, weight in zip(NODES, WEIGHTS, strict=True):
                slope = torch.add(mean, std, alpha=node).tanh_().mul_(-2.0 * entropy * weight)
                mean_part.add_(slope)
                std_part.add_(slope.mul_(std if inside is None else std * inside), alpha=node)
        return gradient


def log_slope(raw: Tensor) -> Tensor:
    """Return log(1 - tanh(u)^2), accurate even where 1 - tanh(u)^2 underflows."""
    return (math.log(2.0) - raw - functional.softplus(-2.0 * raw)).mul_(2.0)
