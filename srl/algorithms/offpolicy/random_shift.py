"""Random shifts of the images in drawn batches (Kostrikov et al. 2021, DrQ)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from srl.api.dataflow import BatchFunction, SequenceBatch
from srl.base.tree import Array, leaves

compiled = njit(cache=True, nogil=True, error_model="numpy")


def shifting(orders: Mapping[str, str], pixels: int) -> BatchFunction:
    """Return a function that shifts the images of a batch in place by up to `pixels`. `orders` has the order of the
    axes of each image, such as CHW, by path of the observation."""

    def shift(batch: Any, random: np.random.Generator) -> Any:
        in_time = isinstance(batch, SequenceBatch)
        for observation in [batch.observation] if in_time else [batch.observation, batch.next_observation]:
            for path, array in leaves(observation):
                if path in orders:
                    shift_images(array, orders[path], _offsets(array, orders[path], pixels, in_time, random))
        return batch

    return shift


def _offsets(array: Array, order: str, pixels: int, in_time: bool, random: np.random.Generator) -> Array:
    """Draw the shift [..., 2] of each image. With `in_time`, all images of a sequence have the same."""
    leading = array.shape[: array.ndim - len(order)]
    drawn = (leading[0], 1, *leading[2:]) if in_time else leading
    offsets = random.integers(-pixels, pixels, (*drawn, 2), dtype=np.int64, endpoint=True)
    return np.broadcast_to(offsets, (*leading, 2))


def shift_images(images: Array, order: str, offsets: Array) -> None:
    """Shift contiguous images [..., *order] in place: the pixel at (y, x) becomes the one at (y, x) + offset, or the
    nearest one at the border."""
    assert images.flags.c_contiguous, "arrays of batches are"
    num_leading = images.ndim - len(order)
    sizes = dict(zip(order, images.shape[num_leading:], strict=True))
    frames = math.prod(
        size for axis, size in sizes.items() if axis not in "HW" and order.index(axis) < order.index("H")
    )
    depth = sizes["C"] if order.endswith("C") else 1
    rows = images.reshape(-1, frames, sizes["H"], sizes["W"] * depth)
    _shift(rows, depth, np.ascontiguousarray(offsets).reshape(-1, 2))


@compiled
def _copy(source: Array, target: Array) -> None:
    for k in range(len(target)):
        target[k] = source[k]


@compiled
def _shift(images: Array, depth: int, offsets: Array) -> None:
    """Shift images [N, frames, H, W * depth] by `offsets` [N, 2] of rows and columns."""
    num_frames, height, width = images.shape[1:]
    before = np.empty((height, width), images.dtype)
    for i in range(len(images)):
        down, right = offsets[i, 0], offsets[i, 1] * depth
        begin, end = max(0, -right), min(width, width - right)  # elements whose source is inside
        for frame in range(num_frames):
            image = images[i, frame]
            _copy(image.reshape(-1), before.reshape(-1))
            for y in range(height):
                source = before[min(max(y + down, 0), height - 1)]
                target = image[y]
                for x in range(begin):
                    target[x] = source[x % depth]
                _copy(source[begin + right : end + right], target[begin:end])
                for x in range(end, width):
                    target[x] = source[width - depth + x % depth]
