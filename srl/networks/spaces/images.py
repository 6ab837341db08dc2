"""Which observations are images, and where their axes stand. Without torch, so that a controller can ask."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from srl.api.spaces import Box, Dict, Space

NATURE_SIDE = 36
"""The smallest image whose three convolutions leave one pixel."""
SMALL_SIDE = 5
"""Smaller arrays of bytes are tables, not images."""
CHANNELS = (1, 3, 4)
MOST_CHANNELS = 64


def is_image(space: Space) -> bool:
    """Bytes [C, H, W] or [H, W, C]; large ones also without channels [H, W], as stacked frames [S, H, W, C], or as real
    numbers that have bounds."""
    if not isinstance(space, Box) or space.dtype not in ("uint8", "float32"):
        return False
    if len(space.shape) not in ((2, 3, 4) if space.dtype == "uint8" else (3, 4)):
        return False
    layout = layout_of(space)
    if space.dtype == "float32" and not math.isfinite(np.max(space.high)):
        return False
    if min(layout.sides) >= NATURE_SIDE:
        return layout.channels <= MOST_CHANNELS
    known = {space.shape[0], space.shape[-1]} & set(CHANNELS)
    return bool(known) and len(space.shape) == 3 and space.dtype == "uint8" and min(layout.sides) >= SMALL_SIDE


def has_image(space: Space) -> bool:
    if isinstance(space, Dict):
        return any(has_image(item) for item in space.items.values())
    return is_image(space)


def is_lone_image(space: Space) -> bool:
    """An image, or a dictionary with an image and nothing else."""
    if isinstance(space, Dict):
        return len(space.items) == 1 and all(is_lone_image(item) for item in space.items.values())
    return is_image(space)


@dataclass(frozen=True)
class Layout:
    """Where an image's axes stand, and by what its numbers are divided."""

    order: str
    """HW | CHW | HWC | SHWC"""
    channels: int
    sides: tuple[int, int]
    divisor: float


def layout_of(space: Box) -> Layout:
    """Of three axes the channels are the first or the last: the one of which there may be 1, 3 or 4, or else the
    smaller one, if what is left is large."""
    shape = space.shape
    divisor = divisor_of(space)
    if len(shape) == 2:
        return Layout("HW", 1, (shape[0], shape[1]), divisor)
    if len(shape) == 4:
        return Layout("SHWC", shape[0] * shape[3], (shape[1], shape[2]), divisor)
    smaller = shape[-1] < shape[0] and min(shape[:2]) >= NATURE_SIDE
    if shape[0] not in CHANNELS and (shape[-1] in CHANNELS or smaller):
        return Layout("HWC", shape[2], (shape[0], shape[1]), divisor)
    return Layout("CHW", shape[0], (shape[1], shape[2]), divisor)


def divisor_of(space: Box) -> float:
    """What brings bytes, and images of real numbers, to at most 1: their upper bound."""
    if space.dtype == "uint8":
        return space.high if isinstance(space.high, float) and 1.0 <= space.high <= 255.0 else 255.0
    bounded = isinstance(space.high, float) and 1.0 <= space.high <= 255.0
    return space.high if bounded and isinstance(space.high, float) else 1.0
