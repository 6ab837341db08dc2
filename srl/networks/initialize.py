"""How weights start."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn


def orthogonal(weight: Tensor, gain: float) -> None:
    """Orthogonal rows or columns times `gain`; draws from torch's global generator, like every torch layer."""
    with torch.no_grad():
        nn.init.orthogonal_(weight, gain)


class Layer(Protocol):
    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor | None: ...


def orthogonal_layers(gain: float, *layers: Layer) -> None:
    """Orthogonal weights times `gain`, biases zero."""
    for layer in layers:
        orthogonal(layer.weight, gain)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
