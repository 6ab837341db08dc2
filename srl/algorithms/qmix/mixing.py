"""Functions from the agents' values to the value of a joint action, which do not decrease in any of them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from srl.algorithms.qmix.config import QMIXConfig
from srl.api.spaces import Dict, Space
from srl.base.tree import map_tree
from srl.networks.encoders.build import build_encoder
from srl.networks.spaces.actions import split_mask


class Mixer(nn.Module):
    """Base class of mixers."""

    @abstractmethod
    def encode(self, observation: Any, present: Tensor) -> Tensor | None:
        """Return features [M, F] of the state of the game, or None if they are not needed, for observations [M, A, ...]
        of the agents in M joint steps; those of agents that are not `present` [M, A] are out of date."""

    @abstractmethod
    def forward(self, values: Tensor, features: Tensor | None) -> Tensor:
        """Return the values [M] of joint actions, given the agents' values [M, A]. Absent agents have the value 0."""


class Sum(Mixer):
    """VDN (Sunehag et al. 2018, eq. 1).

    Q_tot = sum_a Q_a
    """

    def encode(self, observation: Any, present: Tensor) -> None:
        return None

    def forward(self, values: Tensor, features: Tensor | None) -> Tensor:
        return values.sum(-1)


class MixingNetwork(Mixer):
    """QMIX (Rashid et al. 2018, section 4.1): two layers whose weights are absolute values, so that Q_tot is monotonic
    in each agent's value, and whose weights and biases are functions of the state s (hypernetworks).

    Q_tot = |w2(s)| elu(|W1(s)| Q + b1(s)) + b2(s)
    """

    def __init__(self, state: TeamState, num_agents: int, size: int, hypernet_size: int) -> None:
        super().__init__()
        self.state = state
        self.num_agents, self.size = num_agents, size
        self.first_weight = _hypernetwork(state.num_features, num_agents * size, hypernet_size)
        self.first_bias = nn.Linear(state.num_features, size)
        self.last_weight = _hypernetwork(state.num_features, size, hypernet_size)
        self.last_bias = _hypernetwork(state.num_features, 1, size)

    def encode(self, observation: Any, present: Tensor) -> Tensor:
        features: Tensor = self.state(observation, present)
        return features

    def forward(self, values: Tensor, features: Tensor | None) -> Tensor:
        weight = self.first_weight(features).abs().view(-1, self.num_agents, self.size)
        hidden = functional.elu(torch.bmm(values[:, None], weight)[:, 0] + self.first_bias(features))
        total: Tensor = (hidden * self.last_weight(features).abs()).sum(1) + self.last_bias(features)[:, 0]
        return total


def _hypernetwork(num_features: int, num_outputs: int, hidden: int) -> nn.Module:
    if not hidden:
        return nn.Linear(num_features, num_outputs)
    return nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(), nn.Linear(hidden, num_outputs))


class TeamState(nn.Module):
    """Features of the state of the game: of the `keys` of one agent that is present, since all agents receive the same
    state, or of the observations of all agents, with zeros for those that are absent."""

    def __init__(self, space: Space, keys: tuple[str, ...], num_agents: int, body: str) -> None:
        super().__init__()
        self._keys = keys
        self.encoder = build_encoder(space, body)
        self.num_features = self.encoder.num_features * (1 if keys else num_agents)

    def forward(self, observation: Any, present: Tensor) -> Tensor:
        if self._keys:
            row, one = torch.arange(len(present), device=present.device), present.byte().argmax(1)
            own = {key: map_tree(lambda part: part[row, one], observation[key]) for key in self._keys}
            features: Tensor = self.encoder(own)
            return features
        flat: Tensor = self.encoder(map_tree(lambda part: part.flatten(0, 1), observation))
        return (flat.view(*present.shape, -1) * present[:, :, None]).flatten(1)


def build_mixing_network(observation: Space, action: Space, config: QMIXConfig, seed: int) -> MixingNetwork:
    """Build the mixing network. The same seed gives the same weights; torch's global generator is not affected."""
    seen, keys = split_mask(observation, action, config.mask_key)[0], config.state_keys(observation)
    num_agents = config.num_agents or 1
    if keys:
        assert isinstance(seen, Dict)
        seen = Dict({key: seen.items[key] for key in keys})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = TeamState(seen, keys, num_agents, config.body)
        return MixingNetwork(state, num_agents, config.mixing_size, config.hypernet_size)
