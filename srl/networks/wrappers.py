"""Actor-critic wrappers: normalization of observations and values, and action masks.

A normalizer's statistics are parameters without a gradient. They are part of the flat parameter vector, so they are
published, saved and exported with the policy, and a network never runs at a scale it was not trained on. Only trainers
change them (`srl.algorithms.training.normalizers`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from srl.api.spaces import Box, Space
from srl.base.tree import joined, leaves
from srl.networks.distributions.distribution import Distribution
from srl.networks.network import Network, Wrapper
from srl.networks.spaces.boxes import is_normalized, space_leaves


def normalized_leaves(space: Space, shared: Collection[str] = (), integers: bool = True) -> dict[str, int]:
    """Return the path and size of each normalized part of an observation, in sorted order. The rows of a `shared` part
    share statistics, so its size is that of one row. `integers` also includes integer parts."""
    boxes = [(path, box) for path, box in space_leaves(space) if isinstance(box, Box) and is_normalized(box, integers)]
    return {path: math.prod(box.shape[1:] if path in shared else box.shape) for path, box in boxes}


class ObservationNormalizer(nn.Module):
    """Maps each part in `normalized_leaves` to (observation - mean) * scale, clipped; other parts are unchanged."""

    def __init__(self, space: Space, clip: float = 10.0, shared: Collection[str] = (), integers: bool = True) -> None:
        super().__init__()
        self.clip = clip
        self.sizes = normalized_leaves(space, shared, integers)
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
    """Maps a network's value v to the scale of the returns: mean + scale * v."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(1), requires_grad=False)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, value: Tensor) -> Tensor:
        return torch.addcmul(self.mean, value, self.scale)


class NormalizedActorCritic(Wrapper):
    """An actor-critic with optional normalizers for observations and values."""

    def __init__(
        self, network: Network, observation: ObservationNormalizer | None, value: ValueNormalizer | None
    ) -> None:
        super().__init__()
        self.network, self.state_size = network, network.state_size
        self.observation_normalizer = observation
        self.value_normalizer = value

    def forward(self, observation: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        if self.observation_normalizer is not None:
            observation = self.observation_normalizer(observation)
        parameters, value, *rest = self.network(observation, *memory)
        return parameters, value if self.value_normalizer is None else self.value_normalizer(value), *rest


class MaskedActorCritic(Wrapper):
    """An actor-critic with an action mask: choices that the environment forbids get probability 0. The inner network
    does not see the mask."""

    def __init__(self, network: Network, key: str, distribution: Distribution) -> None:
        super().__init__()
        self.network, self.state_size = network, network.state_size
        self.key = key
        self.distribution = distribution

    def forward(self, observation: Any, *state: Tensor) -> tuple[Tensor, ...]:
        rest, allowed = self.split(observation)
        parameters, *others = self.network(rest, *state)
        return self.distribution.mask(parameters, allowed), *others

    def split(self, observation: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """Split off the mask. Return the inner network's observation and the allowed choices, [B, choices] bool."""
        rest = {name: part for name, part in observation.items() if name != self.key}
        parts = [leaf.reshape(leaf.shape[0], -1) != 0 for _, leaf in leaves(observation[self.key])]
        return rest, parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
