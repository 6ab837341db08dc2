"""Encoders for an actor and a critic that have different observations or separate layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from srl.api.spaces import Dict, Space
from srl.networks.encoders.build import Encoder, build_encoder
from srl.networks.encoders.entities import EntityEncoder
from srl.networks.options import NetworkOptions


def without(observation: Space, keys: tuple[str, ...]) -> Space:
    """Return the observation space without these keys of a Dict."""
    if not keys or not isinstance(observation, Dict):
        return observation
    return Dict({name: item for name, item in observation.items.items() if name not in keys})


class PairedEncoder(nn.Module):
    """Separate encoders for actor and critic, with concatenated features."""

    def __init__(self, actor: Encoder | EntityEncoder, critic: Encoder | EntityEncoder) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic
        self.num_features: int = actor.num_features + critic.num_features

    def forward(self, observation: Any) -> Tensor:
        return torch.cat((self.actor(observation), self.critic(observation)), dim=1)


class AsymmetricEncoder(nn.Module):
    """Encoder for a stacked actor-critic, with features [2, B, F], the actor's first. Features that only the critic
    sees are zero for the actor."""

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
