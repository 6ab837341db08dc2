"""The bounds of a Box as a frame: networks speak in units of it, environments in numbers of their own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from torch import Tensor

from srl.api.spaces import Box, bounds_of
from srl.base.tree import Array
from srl.networks.spaces.numbers import WIDEST


@dataclass(frozen=True)
class Frame:
    """native = center + half * unit for each element, in C order: the bounds are -1 and 1 in units."""

    center: tuple[float, ...]
    half: tuple[float, ...]

    @property
    def is_trivial(self) -> bool:
        return not any(self.center) and set(self.half) == {1.0}

    @cached_property
    def log_volume(self) -> float:
        """By how much a native log-density is less than that in units."""
        return sum(map(math.log, self.half))

    def to_native(self, unit: Tensor) -> Tensor:
        """[B, d] -> [B, d]"""
        center, half = self._tensors(unit)
        return torch.addcmul(center, half, unit)

    def to_unit(self, native: Tensor) -> Tensor:
        """[B, d] -> [B, d]"""
        center, half = self._tensors(native)
        return (native - center).div_(half)

    def _tensors(self, like: Tensor) -> tuple[Tensor, Tensor]:
        # What an exporter traces are not tensors that one may keep.
        return (_made if torch.compiler.is_compiling() else _kept)(self, like.dtype, like.device)


def _made(frame: Frame, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.tensor(frame.center, dtype=dtype, device=device), torch.tensor(frame.half, dtype=dtype, device=device)


@lru_cache(maxsize=64)
def _kept(frame: Frame, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Made once: from Python's numbers it takes as long as a draw, and a device would have to wait."""
    with torch.inference_mode(False):  # who acts may be the first to ask; who learns wants them, too
        return _made(frame, dtype, device)


def full_frame(box: Box) -> Frame:
    """That of a Box whose bounds are all finite."""
    return _between(*bounds_of(box))


def frame_of(box: Box) -> Frame | None:
    """That of a Box: elements with a bound that is missing, or as good as missing, stay as they are. None where all
    do, or are between -1 and 1 anyway."""
    low, high = bounds_of(box)
    bounded = (low < high) & (low > -WIDEST) & (high < WIDEST)
    frame = _between(np.where(bounded, low, -1.0), np.where(bounded, high, 1.0))
    return None if frame.is_trivial else frame


def _between(low: Array, high: Array) -> Frame:
    return Frame(tuple(((low + high) / 2.0).ravel().tolist()), tuple(((high - low) / 2.0).ravel().tolist()))
