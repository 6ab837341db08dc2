"""Actor-critics, which map features to distribution parameters [B, n] and values [B]."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from srl.networks.activations import tanh_
from srl.networks.network import Network, Wrapper
from srl.networks.parameters import orthogonal_layers

POLICY_GAIN = 0.01
VALUE_GAIN = 1.0
HIDDEN_GAIN = math.sqrt(2.0)


class StackedActorCritic(Network):
    """Separate actor and critic with the same hidden sizes, computed as one network with stacked weights.

    Each layer is one batched product with weights [2, in, out]; index 0 is the actor, index 1 the critic. This halves
    the number of torch calls, which dominate the run time of a small network. `backpropagation.StackedPass` trains it
    without autograd.
    """

    def __init__(
        self, num_features: int, hidden_sizes: tuple[int, ...], activation: str, num_outputs: int, num_free: int
    ) -> None:
        super().__init__()
        self.activation = activation
        sizes = (num_features, *hidden_sizes)
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(2, a, b)) for a, b in pairwise(sizes)])
        self.biases = nn.ParameterList([nn.Parameter(torch.zeros(2, 1, size)) for size in hidden_sizes])
        self.policy_weight = nn.Parameter(torch.zeros(num_outputs - num_free, sizes[-1]))
        self.policy_bias = nn.Parameter(torch.zeros(num_outputs - num_free, 1))
        self.value_weight = nn.Parameter(torch.zeros(1, sizes[-1]))
        self.value_bias = nn.Parameter(torch.zeros(1, 1))
        self.free = nn.Parameter(torch.zeros(num_free, 1)) if num_free else None
        for matrix in (matrix for weight in self.weights for matrix in weight.data):
            nn.init.orthogonal_(matrix, HIDDEN_GAIN)
        nn.init.orthogonal_(self.policy_weight, POLICY_GAIN)
        nn.init.orthogonal_(self.value_weight, VALUE_GAIN)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        hidden = stacked_features(features)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = torch.baddbmm(bias, hidden, weight)  # [2, B, out]
            hidden = tanh_(hidden) if self.activation == "tanh" else hidden.relu_()
        return self.heads(hidden)

    def heads(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Map the last hidden layer [2, B, size] to parameters [B, n], a transposed view of [n, B], and values [B]."""
        actor, critic = hidden.transpose(1, 2).unbind(0)  # [size, B] each
        parameters = torch.addmm(self.policy_bias, self.policy_weight, actor)
        value = torch.addmm(self.value_bias, self.value_weight, critic)
        if self.free is not None:
            parameters = torch.cat((parameters, self.free.expand(-1, hidden.shape[1])))
        return parameters.t(), value[0]

    def value_head(self) -> tuple[Tensor, Tensor]:
        return self.value_weight, self.value_bias


def stacked_features(features: Tensor) -> Tensor:
    """Expand shared features [B, F] to [2, B, F]. Features that are already separate for actor and critic are returned
    unchanged."""
    return features if features.dim() == 3 else features.expand(2, *features.shape)


class LinearHeads(Network):
    """Linear output layers for the distribution parameters and the value."""

    def __init__(self, num_features: int, num_outputs: int, num_free: int) -> None:
        super().__init__()
        self.policy = nn.Linear(num_features, num_outputs - num_free)
        self.value = nn.Linear(num_features, 1)
        self.free = nn.Parameter(torch.zeros(num_free)) if num_free else None
        orthogonal_layers(POLICY_GAIN, self.policy)
        orthogonal_layers(VALUE_GAIN, self.value)

    def outputs(self, actor: Tensor, critic: Tensor) -> tuple[Tensor, Tensor]:
        """Return parameters and values for the actor's and the critic's features, [B, F] each."""
        parameters = self.policy(actor)
        if self.free is not None:  # the same in every row
            parameters = torch.cat((parameters, self.free.expand(parameters.shape[0], -1)), dim=1)
        return parameters, self.value(critic)[:, 0]

    def value_head(self) -> tuple[Tensor, Tensor]:
        return self.value.weight, self.value.bias


class SharedHeads(LinearHeads):
    """Two heads that share the features of a deep encoder."""

    def __init__(self, num_features: int, num_outputs: int, num_free: int) -> None:
        super().__init__(num_features, num_outputs, num_free)
        self._detached = False

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.outputs(features, features.detach() if self._detached else features)

    def detach_value(self, detached: bool) -> None:
        self._detached = detached


class SplitHeads(LinearHeads):
    """Two heads, each on its own half of the features."""

    def __init__(self, num_features: int, num_outputs: int, num_free: int) -> None:
        super().__init__(num_features // 2, num_outputs, num_free)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        return self.outputs(*features.chunk(2, dim=1))


class NormedHeads(Wrapper):
    """Layer norms before the heads: one for all features, or one for each half."""

    def __init__(self, heads: Network, num_features: int, num_parts: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(num_features // num_parts) for _ in range(num_parts)])
        self.network = heads

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        parts = features.chunk(len(self.norms), dim=1)
        normed = torch.cat([norm(part) for norm, part in zip(self.norms, parts, strict=True)], dim=1)
        result: tuple[Tensor, Tensor] = self.network(normed)
        return result


class EncodedActorCritic(Wrapper):
    """An encoder followed by an actor-critic."""

    def __init__(self, encoder: nn.Module, actor_critic: Network) -> None:
        super().__init__()
        self.encoder = encoder
        self.network = actor_critic

    def forward(self, observation: Any) -> tuple[Tensor, Tensor]:
        result: tuple[Tensor, Tensor] = self.network(self.encoder(observation))
        return result


def start_from(network: nn.Module, parameters: tuple[float, ...]) -> None:
    """Set output biases to these distribution parameters [n]. Weights are small, so the policy starts near them."""
    for module in network.modules():
        if isinstance(module, (StackedActorCritic, LinearHeads)):
            bias = module.policy_bias if isinstance(module, StackedActorCritic) else module.policy.bias
            bias.data.copy_(torch.tensor(parameters[: bias.numel()]).view_as(bias))
            if module.free is not None:
                module.free.data.copy_(torch.tensor(parameters[bias.numel() :]).view_as(module.free))
