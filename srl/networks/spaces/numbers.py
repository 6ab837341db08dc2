"""Arrays of numbers that are no pictures: which are normalized, and how whole ones are scaled where nothing is. Without
torch, like every look at a space."""

from __future__ import annotations

import numpy as np

from srl.api.spaces import Box, bounds_of
from srl.base.tree import Array
from srl.networks.spaces.images import is_image

WIDEST = 1e9
"""Bounds beyond this are the limits of a number's type, not a range that anybody means."""


def is_normalized(space: Box, whole: bool = True) -> bool:
    """Not pictures, which have a scale of their own, and not flags and masks: whole numbers between -1 and 1. Other
    whole numbers are, if `whole`."""
    if is_image(space):
        return False
    if space.dtype.startswith("float"):
        return True
    return whole and bool((_largest(space) > 1.0).any())


def divisors_of(space: Box) -> Array:
    """What brings each of the whole numbers of a Box [n] to between -1 and 1: the larger of its bounds. 1 where these
    are but the limits of a type (other than bytes), and for real numbers."""
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
