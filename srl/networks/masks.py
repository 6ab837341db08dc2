"""Masks: choices that the environment forbids get no probability, and the encoder does not see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from srl.base.tree import leaves
from srl.networks.distributions.discrete import Distribution
from srl.networks.memory.recurrent import state_size_of


class MaskedActorCritic(nn.Module):
    """Any actor-critic, with a mask of its choices beside what it sees."""

    def __init__(self, network: nn.Module, key: str, distribution: Distribution) -> None:
        super().__init__()
        self.network = network
        self.key = key
        self.distribution = distribution
        self.state_size = state_size_of(network)

    def forward(self, observation: Any, *state: Tensor) -> tuple[Tensor, ...]:
        rest, allowed = self.split(observation)
        parameters, *others = self.network(rest, *state)
        return self.distribution.mask(parameters, allowed), *others

    def split(self, observation: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """What the network sees, and what is allowed: [B, choices] bool."""
        rest = {name: part for name, part in observation.items() if name != self.key}
        parts = [leaf.reshape(leaf.shape[0], -1) != 0 for _, leaf in leaves(observation[self.key])]
        return rest, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
