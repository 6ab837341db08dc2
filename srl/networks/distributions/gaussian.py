"""Gaussian actions: real numbers, scaled by the bounds of the action space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from srl.networks.distributions.action_scaling import ActionScaling
from srl.networks.distributions.distribution import Evaluation, empty_like
from srl.networks.options import STATE_LOG_STD

HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


@dataclass(frozen=True)
class DiagonalGaussian:
    """Independent normal distributions. The parameters are all means followed by all log standard deviations, in the
    units of `scaling`.

    Actions are sampled, stored and learned from *unclipped*, in the environment's units, so log-probabilities are those
    of the sampled values. Only the environment adapter clips them to the bounds of the space.
    """

    shape: tuple[int, ...]
    free_std: bool = True
    """Whether the standard deviations are the same for every observation. Otherwise the network outputs them, limited
    to `STATE_LOG_STD`: without limits they drift off where returns are flat and never recover."""
    initial_std: float = 1.0
    scaling: ActionScaling | None = None
    num_choices: int = 0

    @property
    def num_free(self) -> int:
        return math.prod(self.shape) if self.free_std else 0

    @property
    def action_size(self) -> int:
        return math.prod(self.shape)

    @property
    def start(self) -> tuple[float, ...]:
        return (0.0,) * self.action_size + (math.log(self.initial_std),) * self.action_size

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        return parameters

    @property
    def num_parameters(self) -> int:
        return 2 * math.prod(self.shape)

    def split(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Split parameters [B, 2d] into means and log standard deviations, [d, B] each."""
        mean, log_std = parameters.t().chunk(2)
        return mean, log_std if self.free_std else log_std.clamp(*STATE_LOG_STD)

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        mean, log_std = self.split(parameters)
        noise = empty_like(mean).normal_(generator=generator)
        return self._action(torch.addcmul(mean, noise, log_std.exp()).t())

    def mode(self, parameters: Tensor) -> Tensor:
        return self._action(self.split(parameters)[0].t())

    def _action(self, unit: Tensor) -> Tensor:
        native = unit if self.scaling is None else self.scaling.to_native(unit)
        return native.reshape(-1, *self.shape)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        mean, log_std = self.split(parameters)
        return self._log_prob(self._scaled(mean, log_std, action)[0], log_std)

    def _scaled(self, mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        precision = log_std.neg().exp_()
        flat = action.reshape(-1, mean.shape[0])
        unit = flat if self.scaling is None else self.scaling.to_unit(flat)
        return unit.t().sub(mean).mul_(precision), precision

    def _log_prob(self, scaled: Tensor, log_std: Tensor) -> Tensor:
        constant = HALF_LOG_TWO_PI * scaled.shape[0] + self._log_volume
        return torch.addcmul(log_std, scaled, scaled, value=0.5).sum(0).add_(constant).neg_()

    @property
    def _log_volume(self) -> float:
        return 0.0 if self.scaling is None else self.scaling.log_volume

    def evaluate(self, parameters: Tensor, action: Tensor) -> Evaluation:
        mean, log_std = self.split(parameters)
        scaled, precision = self._scaled(mean, log_std, action)
        entropy = log_std.sum(0).add_((0.5 + HALF_LOG_TWO_PI) * scaled.shape[0] + self._log_volume)
        inside = None if self.free_std else (log_std > STATE_LOG_STD[0]) & (log_std < STATE_LOG_STD[1])
        return Evaluation(self._log_prob(scaled, log_std), entropy, (scaled, precision, inside))

    def gradient(self, evaluation: Evaluation, log_prob: Tensor, entropy: float) -> Tensor:
        # With z = (a - mean) / std:  d log p / d mean = z / std;  d log p / d log_std = z^2 - 1;  d H / d log_std = 1
        scaled, precision, inside = evaluation.saved
        weighted = scaled * log_prob
        log_std = (weighted * scaled).sub_(log_prob)
        if entropy != 0.0:
            log_std.add_(entropy)
        if inside is not None:
            log_std.mul_(inside)
        return torch.cat((weighted.mul_(precision), log_std)).t()
