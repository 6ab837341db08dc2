"""Encoders for vectors of numbers or choices."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from srl.api.spaces import Box
from srl.networks.spaces.boxes import divisors_of


class FlattenEncoder(nn.Module):
    """Flattened features. Integers are divided by their bounds; real numbers, including integers that a normalizer has
    converted, are unchanged."""

    divisor: Tensor | float

    def __init__(self, space: Box) -> None:
        super().__init__()
        self.num_features = math.prod(space.shape)
        divisors = divisors_of(space)
        if (divisors == divisors[0]).all():
            self.divisor = float(divisors[0])
        else:
            self.register_buffer("divisor", torch.from_numpy(divisors).float(), persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        flat = observation.reshape(observation.shape[0], self.num_features)
        if flat.dtype == torch.float32:
            return flat
        flat = flat.float()
        return flat if isinstance(self.divisor, float) and self.divisor == 1.0 else flat / self.divisor


class OneHotEncoder(nn.Module):
    """Concatenated one-hot vectors of one or more choices."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        super().__init__()
        self.nvec = nvec
        self.num_features = sum(nvec)

    def forward(self, observation: Tensor) -> Tensor:
        rows = observation.shape[0]
        columns = torch.split(observation.reshape(rows, len(self.nvec)).long(), 1, dim=1)
        # Not `one_hot`, which reads back the minimum and maximum and so stalls an accelerator.
        zeros = [torch.zeros(rows, n, device=observation.device) for n in self.nvec]
        return torch.cat([zero.scatter_(1, column, 1.0) for zero, column in zip(zeros, columns, strict=True)], dim=1)
