"""Observations and actions as an environment writes them, and as policies do: a space says how the two differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, bounds_of
from srl.base.tree import Array, Tree


def encoded(space: Space, native: Any) -> Tree:
    """One native observation, or a batch of them, as a policy sees it."""
    if isinstance(space, Dict):
        return {name: encoded(item, native[_key(space, name)]) for name, item in space.items.items()}
    array = np.asarray(native)
    if isinstance(space, Box):
        return array.astype(space.dtype, copy=False)
    counted = array.astype(np.int64, copy=False)
    if isinstance(space, Discrete):
        return counted - space.start
    if space.native_shape:
        _check(counted, space.native_shape)
        leading = counted.shape[: counted.ndim - len(space.native_shape)]
        counted = counted.reshape(*leading, len(space.nvec))
    return counted - np.array(space.start) if space.start else counted


def decoded(space: Space, actions: Any) -> Any:
    """A batch of a policy's actions as the environment may be given them; policies draw real numbers beyond the bounds
    of a Box."""
    if isinstance(space, Dict):
        parts = {name: decoded(item, actions[name]) for name, item in space.items.items()}
        return tuple(parts[str(place)] for place in range(len(parts))) if space.is_tuple else parts
    array = np.asarray(actions)
    if isinstance(space, Discrete):
        return array + space.start if space.start else array
    if isinstance(space, MultiDiscrete):
        counted = (array + np.array(space.start) if space.start else array).astype(space.native_dtype or np.int64)
        return counted.reshape(len(counted), *space.native_shape) if space.native_shape else counted
    dtype = np.dtype(space.native_dtype or space.dtype)
    clipped: Array = np.clip(np.rint(array) if dtype.kind in "iub" else array, *bounds_of(space)).astype(dtype)
    return clipped


def _key(space: Dict, name: str) -> str | int:
    return int(name) if space.is_tuple else name


def _check(array: Array, shape: tuple[int, ...]) -> None:
    if array.shape[array.ndim - len(shape) :] != shape:
        raise ValueError(f"an observation has the shape {shape}, a batch of them one axis more; found {array.shape}")
