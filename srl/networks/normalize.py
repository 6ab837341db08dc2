"""Normalization inside the network: observations are scaled on the way in, values on the way out.

The statistics are parameters that no gradient moves. They lie in the flat vector with all others, so that they travel,
are saved and exported with the policy; only a trainer changes them (`srl.algorithms.training.normalizers`). What a
network learned on one scale is then never used on another.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from srl.api.spaces import Box, Dict, Space
from srl.base.tree import joined
from srl.networks.actor_critic import SharedActorCritic, SplitActorCritic, StackedActorCritic
from srl.networks.memory.recurrent import state_size_of
from srl.networks.spaces.numbers import is_normalized


def normalized_leaves(space: Space, path: str = "", shared: Collection[str] = (), whole: bool = True) -> dict[str, int]:
    """Path and size of each part of an observation that is normalized, in sorted order. The rows of a `shared` part are
    normalized alike: its size is that of one row. `whole`: whole numbers, too."""
    if isinstance(space, Dict):
        parts = [
            normalized_leaves(space.items[name], joined(path, name), shared, whole) for name in sorted(space.items)
        ]
        return {name: size for part in parts for name, size in part.items()}
    if not (isinstance(space, Box) and is_normalized(space, whole)):
        return {}
    return {path: math.prod(space.shape[1:] if path in shared else space.shape)}


class ObservationNormalizer(nn.Module):
    """(observation - mean) * scale, clipped, for every part that `normalized_leaves` names; the rest passes."""

    def __init__(self, space: Space, clip: float = 10.0, shared: Collection[str] = (), whole: bool = True) -> None:
        super().__init__()
        self.clip = clip
        self.sizes = normalized_leaves(space, shared=shared, whole=whole)
        size = sum(self.sizes.values())
        self.mean = nn.Parameter(torch.zeros(size), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(size), requires_grad=False)
        ends = torch.tensor([0, *self.sizes.values()]).cumsum(0).tolist()
        self._slices = {path: slice(ends[i], ends[i + 1]) for i, path in enumerate(self.sizes)}

    def forward(self, observation: Any) -> Any:
        return self._normalize(observation, "")

    def _normalize(self, observation: Any, path: str) -> Any:
        if isinstance(observation, Mapping):
            return {name: self._normalize(part, joined(path, name)) for name, part in observation.items()}
        part = self._slices.get(path)
        if part is None:
            return observation
        flat = observation.reshape(-1, part.stop - part.start)
        scaled = (flat - self.mean[part]).mul_(self.scale[part]).clamp_(-self.clip, self.clip)
        return scaled.float().reshape(observation.shape)


class ValueNormalizer(nn.Module):
    """A network's value v becomes mean + scale * v."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, value: Tensor) -> Tensor:
        return torch.addcmul(self.mean, value, self.scale)


class NormalizedActorCritic(nn.Module):
    """Any actor-critic between normalizers; either may be missing. What it gets and returns beside observations,
    parameters and values (a memory) passes."""

    def __init__(
        self, network: nn.Module, observation: ObservationNormalizer | None, value: ValueNormalizer | None
    ) -> None:
        super().__init__()
        self.network = network
        self.state_size = state_size_of(network)
        self.observation_normalizer = observation
        self.value_normalizer = value

    def forward(self, observation: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        if self.observation_normalizer is not None:
            observation = self.observation_normalizer(observation)
        parameters, value, *rest = self.network(observation, *memory)
        return parameters, value if self.value_normalizer is None else self.value_normalizer(value), *rest


def value_head(network: nn.Module) -> tuple[Tensor, Tensor]:
    """Weight and bias of the layer that puts out the value: those of our networks, or of a `value` that is a
    torch.nn.Linear. ValueError if there is none."""
    for module in network.modules():
        if isinstance(module, StackedActorCritic):
            return module.value_weight.data, module.value_bias.data
        if isinstance(module, (SharedActorCritic, SplitActorCritic)):
            return module.value.weight.data, module.value.bias.data
    last = getattr(network, "value", None)
    if isinstance(last, nn.Linear) and last.bias is not None:
        return last.weight.data, last.bias.data
    raise ValueError(
        f"PopArt rescales the layer that puts out the value, and {type(network).__name__} does not say which it is; "
        "call it `value`, a torch.nn.Linear with a bias, or use normalize_return 'running'"
    )
