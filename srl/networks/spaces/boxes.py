"""Box observations: which ones are images, how their axes are laid out, and how other numbers are scaled. This module
does not import torch, so checks in the controller and command line are fast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from srl.api.spaces import Box, Dict, Space, bounds_of
from srl.base.tree import Array, joined

NATURE_SIDE = 36  # smallest side of an image whose three convolutions leave one pixel
SMALL_SIDE = 5  # smallest side of an image; smaller byte arrays are treated as tables
CHANNELS = (1, 3, 4)
MOST_CHANNELS = 64
WIDEST = 1e9  # larger bounds are limits of the dtype, not a meaningful range


def is_image(space: Space) -> bool:
    """Return whether a space holds images: bytes [C, H, W] or [H, W, C]. Large images may also have no channels [H, W],
    be stacked frames [S, H, W, C], or be bounded real numbers."""
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


def space_leaves(space: Space, path: str = "") -> Iterator[tuple[str, Space]]:
    """Yield the path and space of each leaf of nested Dicts in sorted order. Any other space is its own leaf."""
    if isinstance(space, Dict):
        for name in sorted(space.items):
            yield from space_leaves(space.items[name], joined(path, name))
    else:
        yield path, space


def has_image(space: Space) -> bool:
    return any(is_image(item) for _, item in space_leaves(space))


def is_lone_image(space: Space) -> bool:
    """Return whether a space is an image, or a Dict that contains only one image."""
    if isinstance(space, Dict):
        return len(space.items) == 1 and all(is_lone_image(item) for item in space.items.values())
    return is_image(space)


@dataclass(frozen=True)
class Layout:
    """Order of an image's axes, and the divisor that scales its pixels."""

    order: str  # HW | CHW | HWC | SHWC
    channels: int
    sides: tuple[int, int]
    divisor: float


def layout_of(space: Box) -> Layout:
    """Determine the axes of an image. Of three axes, the first or last holds the channels: the one with 1, 3 or 4
    entries, or else the smaller one if the other two are large."""
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
    """Return the divisor that scales bytes and real-valued images to at most 1: their upper bound."""
    if isinstance(space.high, float) and 1.0 <= space.high <= 255.0:
        return space.high
    return 255.0 if space.dtype == "uint8" else 1.0


def is_normalized(space: Box, integers: bool = True) -> bool:
    """Return whether `normalize_observation` applies to a space. It does not apply to images, whose scale is known, or
    to integers between -1 and 1 (flags and masks), and applies to other integers only if `integers` is set."""
    if is_image(space):
        return False
    if space.dtype.startswith("float"):
        return True
    return integers and bool((_largest(space) > 1.0).any())


def divisors_of(space: Box) -> Array:
    """Return divisors [n] that scale the integers of a Box to [-1, 1]: for each element, the larger magnitude of its
    bounds. They are 1 for real numbers, and where the bounds are just the limits of a dtype wider than a byte."""
    if space.dtype.startswith("float"):
        return np.ones(space.shape).ravel()
    limits = np.iinfo(space.dtype)
    largest = _largest(space)
    if limits.bits == 8:
        return np.clip(largest, 1.0, limits.max)
    return np.where(largest < min(limits.max, WIDEST), np.maximum(largest, 1.0), 1.0)


def _largest(space: Box) -> Array:
    low, high = bounds_of(space)
    largest: Array = np.maximum(np.abs(low), np.abs(high)).ravel()
    return largest
