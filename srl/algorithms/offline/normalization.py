"""Statistics of a data set's observations, which are part of the policy's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from srl.algorithms.training.devices import move
from srl.algorithms.training.moments import Moments
from srl.algorithms.training.ranks import Ranks
from srl.base.tree import Tree, leaves
from srl.networks.wrappers import NormalizedActorCritic, ObservationNormalizer


def normalizer_of(network: nn.Module) -> ObservationNormalizer | None:
    return network.observation_normalizer if isinstance(network, NormalizedActorCritic) else None


def set_statistics(normalizer: ObservationNormalizer, observations: Tree) -> None:
    """Set mean and scale to those of the observations [N, ...]. Every rank has the whole data set, so that none needs
    to ask the others."""
    parts, alone = dict(leaves(observations)), Ranks()
    found = []
    for path, size in normalizer.sizes.items():
        moments = Moments(size)
        moments.fold(parts[path].reshape(-1, size), alone)
        found.append(moments)
    if not found:
        return
    statistics = (normalizer.mean, [m.mean for m in found]), (normalizer.scale, [1.0 / m.deviation for m in found])
    with torch.no_grad():
        for parameter, numbers in statistics:
            parameter.copy_(move(np.concatenate(numbers).astype(np.float32), parameter.device, wait=True))


def applied(normalizer: ObservationNormalizer | None, observation: Any) -> Any:
    return observation if normalizer is None else normalizer(observation)
