"""Encoders: from a tree of observations [B, ...] to features [B, F]."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.networks.encoders.images import ImageEncoder, build_image_encoder
from srl.networks.initialize import orthogonal_layers
from srl.networks.spaces.images import is_image
from srl.networks.spaces.numbers import divisors_of


class FlattenEncoder(nn.Module):
    """Real numbers as they are, also those that a normalizer made of whole ones; whole numbers as fractions of their
    bounds."""

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
    """One-hot vectors of one or several choices, concatenated."""

    def __init__(self, nvec: tuple[int, ...]) -> None:
        super().__init__()
        self.nvec = nvec
        self.num_features = sum(nvec)

    def forward(self, observation: Tensor) -> Tensor:
        rows = observation.shape[0]
        columns = torch.split(observation.reshape(rows, len(self.nvec)).long(), 1, dim=1)
        # Not `one_hot`, which reads the extremes back: a device would have to wait.
        hot = [
            torch.zeros(rows, n, device=column.device).scatter_(1, column, 1.0)
            for column, n in zip(columns, self.nvec, strict=True)
        ]
        return torch.cat(hot, dim=1)


class DictEncoder(nn.Module):
    """Each named observation by its own encoder; the features concatenated in the order of the names."""

    def __init__(self, space: Dict, body: str) -> None:
        super().__init__()
        self.names = sorted(space.items)
        parts = [build_encoder(space.items[name], body) for name in self.names]
        self.num_features: int = sum(part.num_features for part in parts)
        self.parts = nn.ModuleList(parts)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(observation[name]) for name, part in zip(self.names, self.parts, strict=True)], dim=1)


class Trunk(nn.Module):
    """An encoder and layers on top of it."""

    def __init__(self, encoder: Encoder, hidden_sizes: tuple[int, ...], activation: str) -> None:
        super().__init__()
        self.encoder = encoder
        sizes = (encoder.num_features, *hidden_sizes)
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.num_features: int = sizes[-1]
        self.is_tanh = activation == "tanh"
        orthogonal_layers(math.sqrt(2.0), *self.layers)

    def forward(self, observation: Any) -> Tensor:
        hidden: Tensor = self.encoder(observation)
        for layer in self.layers:
            hidden = layer(hidden).tanh_() if self.is_tanh else layer(hidden).relu_()
        return hidden


Encoder: TypeAlias = FlattenEncoder | OneHotEncoder | ImageEncoder | DictEncoder | Trunk


def build_encoder(space: Space, body: str = "nature") -> Encoder:
    """`body` is for images: nature | impala."""
    if isinstance(space, Dict) and space.items:
        return DictEncoder(space, body)
    if isinstance(space, Discrete) and space.n >= 1:
        return OneHotEncoder((space.n,))
    if isinstance(space, MultiDiscrete) and space.nvec:
        return OneHotEncoder(tuple(space.nvec))
    if isinstance(space, Box) and math.prod(space.shape) >= 1:
        return build_image_encoder(space, body) if is_image(space) else FlattenEncoder(space)
    raise ValueError(
        f"no encoder for the observation space {space}; supported are Box, Discrete, MultiDiscrete (as which "
        "MultiBinary counts) and Dict (as which Tuple counts) of these, none of them empty"
    )
