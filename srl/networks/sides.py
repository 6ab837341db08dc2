"""Actor and critic that see different things, side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.api.spaces import Dict, Space
from srl.networks.encoders.encoders import Encoder, build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.options import NetworkOptions


def without(observation: Space, keys: tuple[str, ...]) -> Space:
    """A Dict observation without some of its parts."""
    if not keys or not isinstance(observation, Dict):
        return observation
    return Dict({name: item for name, item in observation.items.items() if name not in keys})


class PairedTrunk(nn.Module):
    """Two trunks; their features side by side."""

    def __init__(self, actor: Encoder | EntityEncoder, critic: Encoder | EntityEncoder) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic
        self.num_features: int = actor.num_features + critic.num_features

    def forward(self, observation: Any) -> Tensor:
        return torch.cat((self.actor(observation), self.critic(observation)), dim=1)


class SidedEncoder(nn.Module):
    """For a stacked actor-critic: features [2, B, F], the actor's first. What only the critic sees is zero there."""

    def __init__(self, observation: Space, options: NetworkOptions) -> None:
        super().__init__()
        assert isinstance(observation, Dict)
        hidden = Dict({name: observation.items[name] for name in options.global_keys})
        self.both = build_encoder(without(observation, options.global_keys))
        self.critic = build_encoder(hidden)
        self.num_features: int = self.both.num_features + self.critic.num_features

    def forward(self, observation: Any) -> Tensor:
        both: Tensor = self.both(observation)
        features = both.new_zeros(2, both.shape[0], self.num_features)  # `len` is a constant to torch.export
        features[:, :, : self.both.num_features] = both
        features[1, :, self.both.num_features :] = self.critic(observation)
        return features
