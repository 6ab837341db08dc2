"""Statistics of observations and returns, computed in float64 and written into the normalizers' parameters."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.training.devices import move
from srl.algorithms.training.moments import Moments
from srl.algorithms.training.ranks import Ranks
from srl.api.trainer import Trajectory
from srl.base.tree import Array, leaves
from srl.networks.wrappers import MaskedActorCritic, NormalizedActorCritic, ObservationNormalizer, ValueNormalizer

POPART_WINDOW = 1e6
"""Approximate number of recent returns that determine PopArt's scale; earlier ones belong to older policies."""


class ObservationStatistics:
    """Statistics of the observations in which a lane acted. They change *after* an update, because its actions were
    chosen with the old ones and its probability ratios must start at 1."""

    def __init__(self, module: ObservationNormalizer) -> None:
        self._module = module
        # One per part, because parts with entities have a different number of rows than the batch.
        self.moments = {path: Moments(size) for path, size in module.sizes.items()}

    def fold(self, batch: Trajectory, ranks: Ranks) -> None:
        acting = batch.acting[:-1]
        parts = dict(leaves(batch.observation))
        for path, moments in self.moments.items():
            moments.fold(parts[path][:-1][acting].reshape(-1, self._module.sizes[path]), ranks)
        if self.moments:
            _write(self._module.mean, np.concatenate([moments.mean for moments in self.moments.values()]))
            _write(self._module.scale, 1.0 / np.concatenate([moments.deviation for moments in self.moments.values()]))

    def state(self) -> dict[str, Array]:
        names = {path: f"observation_moments/{path}" if path else "observation_moments" for path in self.moments}
        return {name: self.moments[path].state for path, name in names.items()}


class ReturnStatistics:
    """Statistics of the value targets. They change *before* an update, which then learns on their scale.

    If the network's `head` is given, it is rescaled so that its values are preserved (PopArt, van Hasselt et al. 2016,
    eq. 8 and 9).
    """

    def __init__(self, module: ValueNormalizer, head: tuple[Tensor, Tensor] | None, window: float) -> None:
        self._module = module
        self._head = head
        self.moments = Moments(1, window)

    @property
    def deviation(self) -> float:
        return float(self.moments.deviation[0])

    def fold(self, target: Array, ranks: Ranks) -> None:
        """Add this rank's targets [N]."""
        before_mean, before_deviation = float(self.moments.mean[0]), self.deviation
        self.moments.fold(target[:, None], ranks)
        mean, deviation = float(self.moments.mean[0]), self.deviation
        if self._head is not None:
            weight, bias = (tensor.data for tensor in self._head)
            weight.mul_(before_deviation / deviation)
            bias.mul_(before_deviation / deviation).add_((before_mean - mean) / deviation)
        _write(self._module.mean, self.moments.mean)
        _write(self._module.scale, self.moments.deviation)


class Normalizers:
    """Running statistics behind a network's normalizers."""

    def __init__(self, network: nn.Module, normalize_return: str) -> None:
        self.observations: ObservationStatistics | None = None
        self.returns: ReturnStatistics | None = None
        if isinstance(network, MaskedActorCritic):
            network = network.network
        if isinstance(network, NormalizedActorCritic):
            if network.observation_normalizer is not None:
                self.observations = ObservationStatistics(network.observation_normalizer)
            if network.value_normalizer is not None:
                popart = normalize_return == "popart"
                head, window = (network.value_head(), POPART_WINDOW) if popart else (None, math.inf)
                self.returns = ReturnStatistics(network.value_normalizer, head, window)

    @property
    def deviation(self) -> float:
        """Standard deviation of the returns, which scales the values."""
        return 1.0 if self.returns is None else self.returns.deviation

    def state(self) -> dict[str, Array]:
        """Return the float64 arrays that a restart needs in addition to the parameters. They are changed in place."""
        state = {} if self.observations is None else self.observations.state()
        return state if self.returns is None else {**state, "return_moments": self.returns.moments.state}


def _write(parameter: Tensor, numbers: Array) -> None:
    with torch.no_grad():
        parameter.copy_(move(numbers.astype(np.float32), parameter.device, wait=True))
