"""Conversion of Gymnasium spaces to those of `srl.api.spaces`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from srl.api.spaces import Bound, Box, Dict, Discrete, MultiDiscrete, Space
from srl.base.tree import SEPARATOR, Array

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
# Dtypes in KEPT stay as they are; those in NARROWED become one that every network and the wire format support.
NARROWED = {"float64": "float32", "float16": "float32", "bool": "uint8", "uint16": "int32", "uint32": "int64"}
KEPT = {"float32", "uint8", "int8", "int16", "int32", "int64"}


def from_gymnasium(space: Any, role: str) -> Space:
    """Return our equivalent of a Gymnasium space. Raise ValueError if there is none. `role` is "observation" or
    "action"."""
    if isinstance(space, gym_spaces.Box):
        return _box(space, role)
    if isinstance(space, gym_spaces.Discrete):
        return Discrete(int(space.n), int(space.start), _native_dtype(space))
    if isinstance(space, gym_spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64).ravel()
        return _multi_discrete(space, space.nvec, tuple(int(n) for n in start) if start.any() else ())
    if isinstance(space, gym_spaces.MultiBinary):
        return _multi_discrete(space, np.full(space.shape, 2), ())
    if isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        parts = {_name(key, space): from_gymnasium(item, role) for key, item in _items(space)}
        return Dict(parts, isinstance(space, gym_spaces.Tuple))
    raise ValueError(f"{role} space {space} is not supported; supported are {SUPPORTED}: wrap the environment")


def _box(space: Any, role: str) -> Box:
    name = np.dtype(space.dtype).name
    dtype = NARROWED.get(name, name)
    if role == "action":
        dtype = "float32"  # The decoder rounds actions if the environment expects integers.
    if dtype not in KEPT:
        raise ValueError(f"{role} space {space} has dtype {name}; supported are {sorted(KEPT | set(NARROWED))}")
    shape = tuple(int(n) for n in space.shape)
    native_dtype = name if role == "action" and name != dtype else ""
    return Box(shape, dtype, _bound(space.low), _bound(space.high), native_dtype)


def _multi_discrete(space: Any, sizes: Array, start: tuple[int, ...]) -> MultiDiscrete:
    native_shape = () if sizes.ndim == 1 else tuple(sizes.shape)
    return MultiDiscrete(tuple(int(n) for n in sizes.ravel()), native_shape, start, _native_dtype(space))


def _native_dtype(space: Any) -> str:
    return "" if space.dtype == np.int64 else np.dtype(space.dtype).name


def _bound(values: Array) -> Bound:
    """Return one number if all elements are equal: an image's bounds would otherwise be larger than the image."""
    flat = values.ravel()
    if flat.size and (flat == flat[0]).all():
        return float(flat[0])
    return tuple(float(value) for value in flat)


def _items(space: Any) -> Iterator[tuple[Any, Any]]:
    return iter(space.spaces.items()) if isinstance(space, gym_spaces.Dict) else enumerate(space.spaces)


def _name(key: Any, space: Any) -> str:
    is_name = isinstance(key, str) and key and SEPARATOR not in key
    if not is_name and isinstance(space, gym_spaces.Dict):
        raise ValueError(f"key {key!r} of space {space} must be a name without {SEPARATOR!r}: rename it in a wrapper")
    return str(key)
