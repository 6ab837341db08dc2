"""Observation and action spaces as plain data: the same in config files, messages and networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TypeAlias, Union

import numpy as np

from srl.base.tree import Array, ArraySpec, TreeSpec

Bound: TypeAlias = Union[float, tuple[float, ...]]
MAX_SHOWN = 4  # bounds in a message


@dataclass(frozen=True)
class Box:
    """An array of numbers. A bound is one number for all elements, or one per element in C order."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: Bound = float("-inf")
    high: Bound = float("inf")
    native_dtype: str = ""
    """The environment's dtype, if it is not `dtype`: policies return floats where it expects integers."""

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True)
class Discrete:
    """One of `n` choices. SRL stores 0 to n-1; the adapter adds `start` for the environment."""

    n: int
    start: int = 0  # the environment's value for the first choice (Gymnasium's `start`)
    native_dtype: str = ""  # the environment's dtype, if it is not int64

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once; the i-th is one of ``nvec[i]``."""

    nvec: tuple[int, ...]
    native_shape: tuple[int, ...] = ()  # the environment's shape, if it is not one-dimensional
    start: tuple[int, ...] = ()  # the environment's values for the first choices (Gymnasium's `start`), if not all zero
    native_dtype: str = ""  # the environment's dtype, if it is not int64

    def __str__(self) -> str:
        return _text(self)


@dataclass(frozen=True)
class Dict:
    """Named spaces. The items of a tuple are named "0", "1", ..."""

    items: Mapping[str, Space]
    is_tuple: bool = False

    def __getitem__(self, name: str) -> Space:
        return self.items[name]

    def __str__(self) -> str:
        items = ", ".join(str(item) if self.is_tuple else f"{name}: {item}" for name, item in self.items.items())
        return f"Tuple({items})" if self.is_tuple else f"Dict({items})"


Space: TypeAlias = Union[Box, Discrete, MultiDiscrete, Dict]


def _text(space: Box | Discrete | MultiDiscrete) -> str:
    """Return a space for messages: its first field, and others that are not at their defaults. Bounds of many elements
    are shortened to their range."""
    first, *others = fields(space)
    words = [str(getattr(space, first.name))]
    for field in others:
        value = getattr(space, field.name)
        if value != field.default:
            many = isinstance(value, tuple) and len(value) > MAX_SHOWN
            words.append(f"{field.name}={f'{min(value)} to {max(value)}' if many else value}")
    return f"{type(space).__name__}({', '.join(words)})"


def array_spec(space: Space) -> TreeSpec:
    """Return the specs of the arrays that hold one element of a space."""
    if isinstance(space, Box):
        return ArraySpec(space.shape, space.dtype)
    if isinstance(space, Discrete):
        return ArraySpec((), "int64")
    if isinstance(space, MultiDiscrete):
        return ArraySpec((len(space.nvec),), "int64")
    return {name: array_spec(item) for name, item in sorted(space.items.items())}


def bounds_of(box: Box) -> tuple[Array, Array]:
    """Return the lower and the upper bounds, each in the box's shape."""
    low, high = (np.asarray(bound, np.float64) for bound in (box.low, box.high))
    wide = [bound.reshape(box.shape) if bound.ndim else np.full(box.shape, bound) for bound in (low, high)]
    return wide[0], wide[1]


def choice_sizes(action: Space) -> tuple[int, ...]:
    """Return the number of alternatives of each choice in an action, in the order of action masks: by item name."""
    if isinstance(action, Dict):
        return tuple(size for name in sorted(action.items) for size in choice_sizes(action.items[name]))
    if isinstance(action, Discrete):
        return (action.n,)
    return tuple(action.nvec) if isinstance(action, MultiDiscrete) else ()
