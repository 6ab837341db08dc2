"""Construction of encoders, which map a tree of observations [B, ...] to features [B, F]."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.networks.activations import tanh_
from srl.networks.encoders.images import ImageEncoder, build_image_encoder
from srl.networks.encoders.vectors import FlattenEncoder, OneHotEncoder
from srl.networks.parameters import orthogonal_layers
from srl.networks.spaces.boxes import is_image


class DictEncoder(nn.Module):
    """One encoder per part of a Dict, with features concatenated in order of the keys."""

    def __init__(self, space: Dict, body: str) -> None:
        super().__init__()
        self.names = sorted(space.items)
        parts = [build_encoder(space.items[name], body) for name in self.names]
        self.num_features: int = sum(part.num_features for part in parts)
        self.parts = nn.ModuleList(parts)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        return torch.cat([part(observation[name]) for name, part in zip(self.names, self.parts, strict=True)], dim=1)


class Trunk(nn.Module):
    """An encoder followed by dense layers."""

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
            hidden = tanh_(layer(hidden)) if self.is_tanh else layer(hidden).relu_()
        return hidden


Encoder: TypeAlias = FlattenEncoder | OneHotEncoder | ImageEncoder | DictEncoder | Trunk


def build_encoder(space: Space, body: str = "nature") -> Encoder:
    """Build the encoder for a space; `body` selects the image convolutions. Raises ValueError if none supports it."""
    if isinstance(space, Dict) and space.items:
        return DictEncoder(space, body)
    if isinstance(space, Discrete) and space.n >= 1:
        return OneHotEncoder((space.n,))
    if isinstance(space, MultiDiscrete) and space.nvec:
        return OneHotEncoder(tuple(space.nvec))
    if isinstance(space, Box) and math.prod(space.shape) >= 1:
        return build_image_encoder(space, body) if is_image(space) else FlattenEncoder(space)
    raise ValueError(
        f"no encoder for the observation space {space}; supported are Box, Discrete, MultiDiscrete (also MultiBinary) "
        "and Dict (also Tuple) of these, none of them empty"
    )
