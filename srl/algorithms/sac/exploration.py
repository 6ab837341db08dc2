"""Actions of a deterministic policy with exploration noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from srl.networks.distributions.action_scaling import ActionScaling
from srl.networks.distributions.distribution import empty_like


@dataclass(frozen=True)
class NoisyActions:
    """tanh(u) plus Gaussian noise, clipped to [-1, 1], in the units of `scaling`. The parameters are u, followed by the
    standard deviations of the noise. It has no density, so it serves only policies without a log-probability."""

    shape: tuple[int, ...]
    scaling: ActionScaling
    num_free: int = 0
    num_choices: int = 0

    @property
    def action_size(self) -> int:
        return math.prod(self.shape)

    @property
    def num_parameters(self) -> int:
        return 2 * self.action_size

    def mask(self, parameters: Tensor, allowed: Tensor) -> Tensor:
        return parameters

    def sample(self, parameters: Tensor, generator: torch.Generator) -> Tensor:
        raw, std = parameters.chunk(2, dim=1)
        noise = empty_like(raw).normal_(generator=generator)
        return self._native(torch.addcmul(raw.tanh(), noise, std).clamp_(-1.0, 1.0))

    def mode(self, parameters: Tensor) -> Tensor:
        return self._native(parameters.chunk(2, dim=1)[0].tanh())

    def _native(self, unit: Tensor) -> Tensor:
        return self.scaling.to_native(unit).reshape(-1, *self.shape)
