"""Dense layers with learned noise."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class NoisyLinear(nn.Module):
    """Dense layer with factorized Gaussian noise (Fortunato et al. 2018, eq. 10 and 11), with weights [inputs,
    outputs]:

    y = x (W + S * (f(e_in) f(e_out)^T)) + b + s * f(e_out), where f(e) = sign(e) sqrt(|e|)

    Without a call of `resample`, the noise is 0.
    """

    input_noise: Tensor
    output_noise: Tensor

    def __init__(self, num_inputs: int, num_outputs: int, scale: float) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(num_inputs)
        self.weight = nn.Parameter(torch.empty(num_inputs, num_outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(num_outputs).uniform_(-bound, bound))
        self.weight_scale = nn.Parameter(torch.full((num_inputs, num_outputs), scale * bound))
        self.bias_scale = nn.Parameter(torch.full((num_outputs,), scale / math.sqrt(num_outputs)))
        self.register_buffer("input_noise", torch.zeros(num_inputs), persistent=False)
        self.register_buffer("output_noise", torch.zeros(num_outputs), persistent=False)
        self._is_silent = True

    def forward(self, rows: Tensor) -> Tensor:
        mean = torch.addmm(self.bias, rows, self.weight)
        if self._is_silent:
            return mean
        # The product of noisy rows avoids a matrix of noise, which is larger than the rows of a minibatch.
        spread = torch.addmm(self.bias_scale, rows * self.input_noise, self.weight_scale)
        return torch.addcmul(mean, spread, self.output_noise)

    def resample(self, generator: torch.Generator) -> None:
        for noise in (self.input_noise, self.output_noise):
            noise.normal_(generator=generator)
            noise.copy_(noise.sign() * noise.abs().sqrt_())
        self._is_silent = False

    def share_noise(self, other: NoisyLinear) -> None:
        """Use the noise of another layer from now on, also after it has been drawn again."""
        self.input_noise, self.output_noise, self._is_silent = other.input_noise, other.output_noise, False

    def silence(self) -> None:
        self._is_silent = True


def noisy_layers(network: nn.Module) -> list[NoisyLinear]:
    return [module for module in network.modules() if isinstance(module, NoisyLinear)]
