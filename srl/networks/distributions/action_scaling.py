"""Scaling of Box actions between the network's units, where the bounds are -1 and 1, and the environment's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from srl.api.spaces import Box, bounds_of
from srl.base.tree import Array
from srl.networks.spaces.boxes import WIDEST


@dataclass(frozen=True)
class ActionScaling:
    """Elementwise map between unit and native actions, native = center + half * unit, with elements in C order."""

    center: tuple[float, ...]
    half: tuple[float, ...]

    @cached_property
    def log_volume(self) -> float:
        """Log-density in unit space minus log-density in native space."""
        return sum(map(math.log, self.half))

    def to_native(self, unit: Tensor) -> Tensor:
        """Convert unit actions [B, d] to native ones."""
        center, half = self._tensors(unit)
        return torch.addcmul(center, half, unit)

    def to_unit(self, native: Tensor) -> Tensor:
        """Convert native actions [B, d] to unit ones."""
        center, half = self._tensors(native)
        return (native - center).div_(half)

    def _tensors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        # The tensors that an exporter traces must not be cached.
        return (_make_tensors if torch.compiler.is_compiling() else _cached_tensors)(self, like.dtype, like.device)


def _make_tensors(scaling: ActionScaling, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    center, half = (torch.tensor(numbers, dtype=dtype, device=device) for numbers in (scaling.center, scaling.half))
    return center, half


@lru_cache(maxsize=64)
def _cached_tensors(scaling: ActionScaling, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cache the tensors: creating them from Python numbers takes as long as sampling, and stalls an accelerator."""
    with torch.inference_mode(False):  # a policy may create tensors that a trainer needs
        return _make_tensors(scaling, dtype, device)


def finite_scaling(box: Box) -> ActionScaling:
    """Return the scaling for a Box whose bounds are all finite."""
    return _between(*bounds_of(box))


def scaling_of(box: Box) -> ActionScaling | None:
    """Return the scaling for any Box: elements without two practical bounds are not scaled. None if no element is."""
    low, high = bounds_of(box)
    bounded = (low < high) & (low > -WIDEST) & (high < WIDEST)
    scaling = _between(np.where(bounded, low, -1.0), np.where(bounded, high, 1.0))
    return scaling if any(scaling.center) or set(scaling.half) != {1.0} else None


def _between(low: Array, high: Array) -> ActionScaling:
    return ActionScaling(tuple(((low + high) / 2.0).ravel().tolist()), tuple(((high - low) / 2.0).ravel().tolist()))
