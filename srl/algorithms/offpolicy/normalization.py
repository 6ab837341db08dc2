"""Normalized observations of algorithms that learn from replay: it stores raw ones, and each counts once, when new."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.algorithms.training.devices import move
from srl.algorithms.training.moments import Moments
from srl.algorithms.training.ranks import Ranks
from srl.api.spaces import Space
from srl.base.tree import Array, Tree, leaves
from srl.networks.spaces.entities import shared_rows
from srl.networks.wrappers import ObservationNormalizer


class NormalizedEncoder(nn.Module):
    """An encoder after a normalizer."""

    def __init__(self, encoder: nn.Module, normalizer: ObservationNormalizer) -> None:
        super().__init__()
        self.encoder, self.normalizer = encoder, normalizer
        self.num_features = encoder.num_features

    def forward(self, observation: Any) -> Any:
        return self.encoder(self.normalizer(observation))


def normalized(encoder: Any, seen: Space, config: OffPolicyConfig) -> Any:
    """Return the encoder of the observations `seen`, with a normalizer if the config asks for it and if there is
    anything to normalize."""
    if not config.normalize_observation:
        return encoder
    normalizer = ObservationNormalizer(seen, config.observation_clip, shared_rows(config))
    return NormalizedEncoder(encoder, normalizer) if normalizer.sizes else encoder


def normalizers_in(modules: Iterable[nn.Module]) -> list[ObservationNormalizer]:
    found = [inner for module in modules for inner in module.modules()]
    return [module for module in found if isinstance(module, ObservationNormalizer)]


class NewObservations:
    """Statistics of the observations in which decisions were made, for all normalizers of a trainer's networks."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        sizes = {path: size for one in normalizers_in(modules) for path, size in one.sizes.items()}
        self._moments = {path: Moments(size) for path, size in sorted(sizes.items())}

    def fold(self, new: Tree | None, modules: Iterable[nn.Module], ranks: Ranks) -> None:
        """Add the observations of new decisions, and write the statistics into the normalizers of `modules`, which may
        include target networks. Raises NotFiniteError on all ranks if an observation is not finite."""
        if not self._moments:
            return
        if new is None:
            if all(moments.state[0].any() for moments in self._moments.values()):
                return  # recorded data is new only once
            raise ValueError("normalize_observation needs a dataflow with keeps_new=True, so that batches have `new`")
        parts = dict(leaves(new))
        for path, moments in self._moments.items():
            moments.fold(parts[path].reshape(-1, moments.state.shape[1]), ranks)
        for module in normalizers_in(modules):
            mean = np.concatenate([self._moments[path].mean for path in module.sizes])
            scale = 1.0 / np.concatenate([self._moments[path].deviation for path in module.sizes])
            with torch.no_grad():
                for parameter, numbers in ((module.mean, mean), (module.scale, scale)):
                    parameter.copy_(move(numbers.astype(np.float32), parameter.device, wait=True))

    def state(self) -> dict[str, Array]:
        """Return the arrays that a restart needs, which are changed in place."""
        names = {path: f"observation_moments/{path}" if path else "observation_moments" for path in self._moments}
        return {name: self._moments[path].state for path, name in names.items()}
