"""Gymnasium's spaces in our words, and native observations and actions as our arrays and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from gymnasium import spaces as gym_spaces

from srl.api.spaces import Bound, Box, Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.base.tree import SEPARATOR, Array, Tree, from_leaves, joined, lane_of, leaves, map_tree

Key: TypeAlias = Any

SUPPORTED = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple"
# Dtypes that travel as they are; the rest become the nearest one that every network and wire knows.
NARROWED = {"float64": "float32", "float16": "float32", "bool": "uint8", "uint16": "int32", "uint32": "int64"}
KEPT = {"float32", "uint8", "int8", "int16", "int32", "int64"}


def from_gymnasium(space: Any, role: str) -> Space:
    """Our words for a native space. `role` is "observation" or "action": it stands in messages."""
    if isinstance(space, gym_spaces.Box):
        return _box(space, role)
    if isinstance(space, gym_spaces.Discrete):
        return Discrete(int(space.n), int(space.start))
    if isinstance(space, (gym_spaces.MultiDiscrete, gym_spaces.MultiBinary)):
        sizes = space.nvec if isinstance(space, gym_spaces.MultiDiscrete) else np.full(space.shape, 2)
        start = _start(space)
        return MultiDiscrete(
            tuple(int(n) for n in sizes.ravel()),
            () if sizes.ndim == 1 else tuple(sizes.shape),
            () if start is None else tuple(int(n) for n in start.ravel()),
            "" if space.dtype == np.int64 else np.dtype(space.dtype).name,
        )
    if isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        parts = {_key(key, space): from_gymnasium(item, role) for key, item in _items(space)}
        return Dict(parts, isinstance(space, gym_spaces.Tuple))
    raise ValueError(f"{role} space {space} is not supported; supported are {SUPPORTED}: wrap the environment")


def _box(space: Any, role: str) -> Box:
    name = np.dtype(space.dtype).name
    dtype = NARROWED.get(name, name)
    if role == "action":
        dtype = "float32"  # Policies give real numbers; the decoder rounds them where the environment wants integers.
    if dtype not in KEPT:
        raise ValueError(f"{role} space {space} has dtype {name}; supported are {sorted(KEPT | set(NARROWED))}")
    shape = tuple(int(n) for n in space.shape)
    native_dtype = name if role == "action" and name != dtype else ""
    return Box(shape, dtype, _bound(space.low), _bound(space.high), native_dtype)


def _bound(values: Array) -> Bound:
    """One number where all elements agree: a picture's bounds would be longer than the picture."""
    flat = values.ravel()
    if flat.size and (flat == flat[0]).all():
        return float(flat[0])
    return tuple(float(value) for value in flat)


def _items(space: Any) -> Iterator[tuple[Key, Any]]:
    """The parts of a Dict or a Tuple, each with the key that finds it in a native value."""
    return iter(space.spaces.items()) if isinstance(space, gym_spaces.Dict) else enumerate(space.spaces)


def _key(key: Key, space: Any) -> str:
    name = str(key)
    if not name or SEPARATOR in name:
        raise ValueError(f"key {name!r} of space {space} must be a name without {SEPARATOR!r}: rename it in a wrapper")
    return name


@dataclass(frozen=True)
class ObservationLeaf:
    """One array of an observation: where it is found in a native value, and what it must look like there."""

    path: str  # in our tree
    keys: tuple[Key, ...]  # in the native value
    native_shape: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    start: Array | None
    """What a choice is counted from, where that is not zero."""

    def find(self, value: Any) -> Array:
        """The native array of this leaf, without a copy where the environment already gives an array."""
        for key in self.keys:
            value = value[key]
        return np.asarray(value)

    def encode(self, native: Array, *leading: int) -> Array:
        """Our array, its first axes `leading`; the native array itself where it fits. Complains as a ValueError."""
        if native.shape != (*leading, *self.native_shape):
            found, wanted = native.shape[len(leading) :], self.native_shape
            raise ValueError(f"observation{self._where()} has shape {found}, its space says {wanted}")
        if native.dtype.kind not in ("fiub" if self.dtype == "float32" else "iub"):
            raise ValueError(f"observation{self._where()} has dtype {native.dtype}, its space says {self.dtype}")
        if self.start is not None:
            native = native - self.start
        return native.reshape((*leading, *self.shape)).astype(self.dtype, copy=False)

    def _where(self) -> str:
        return f" {self.path!r}" if self.path else ""


def observation_leaves(space: Any) -> tuple[ObservationLeaf, ...]:
    """The arrays of a native observation space, sorted as :func:`srl.base.tree.leaves` gives them."""
    return tuple(sorted(_leaves(space, "", ()), key=lambda leaf: leaf.path.split(SEPARATOR)))


def _leaves(space: Any, path: str, keys: tuple[Key, ...]) -> Iterator[ObservationLeaf]:
    if isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        for key, item in _items(space):
            name = _key(key, space)
            yield from _leaves(item, joined(path, name), (*keys, key))
        return
    spec: Any = array_spec(from_gymnasium(space, "observation"))
    yield ObservationLeaf(path, keys, tuple(space.shape), spec.shape, spec.dtype, _start(space))


def _start(space: Any) -> Array | None:
    start = np.asarray(getattr(space, "start", 0), np.int64)
    return start if start.any() else None


def observation_buffers(space: Space, *leading: int) -> Tree:
    """Zeroed arrays for observations, one for each leaf."""
    buffers: Tree = map_tree(lambda spec: spec.empty(*leading), array_spec(space))
    return buffers


def observation_encoder(space: Any) -> Callable[..., Tree]:
    """A function ``(native, *leading) -> tree``: a native observation, or a batch of them, as our arrays."""
    parts = observation_leaves(space)
    if len(parts) == 1 and not parts[0].path:
        return _bare_encoder(parts[0])

    def encode(native: Any, *leading: int) -> Tree:
        tree: Tree = from_leaves({leaf.path: leaf.encode(leaf.find(native), *leading) for leaf in parts})
        return tree

    return encode


def _bare_encoder(leaf: ObservationLeaf) -> Callable[..., Array]:
    dtype, shape = np.dtype(leaf.dtype), leaf.native_shape
    fits = leaf.start is None and shape == leaf.shape

    def encode(native: Any, *leading: int) -> Array:
        if fits and type(native) is np.ndarray and native.dtype is dtype and native.shape == leading + shape:
            return native  # The hot path of native vector environments.
        return leaf.encode(leaf.find(native), *leading)

    return encode


def action_decoder(space: Any) -> Callable[[Any], Any]:
    """A function from our actions [L, ...] to native ones [L, ...]; for a Dict or Tuple, a dictionary or tuple of such.

    Box actions are clipped to their bounds here and nowhere else: a log-probability is that of the unclipped action,
    the environment gets the clipped one.
    """
    from_gymnasium(space, "action")
    if isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        return _composite_decoder(space)
    if isinstance(space, gym_spaces.Box):
        return _box_decoder(space)
    start, shape, dtype = _start(space), tuple(space.shape), np.dtype(space.dtype)
    plain = start is None and len(shape) <= 1

    def decode(actions: Array) -> Array:
        if plain and actions.dtype is dtype:
            return actions
        native = actions.reshape((len(actions), *shape))
        return (native if start is None else native + start).astype(dtype, copy=False)

    return decode


def lane_decoder(space: Any) -> Callable[[Any], Any]:
    """The same, but one native action after the other, for copies that are stepped one by one."""
    decode = action_decoder(space)
    if not isinstance(space, (gym_spaces.Dict, gym_spaces.Tuple)):
        return decode

    def decode_lanes(actions: Any) -> list[Any]:
        batch = decode(actions)
        return [lane_of(batch, lane) for lane in range(len(next(leaves(actions))[1]))]

    return decode_lanes


def _composite_decoder(space: Any) -> Callable[[Any], Any]:
    parts = [(key, _key(key, space), action_decoder(item)) for key, item in _items(space)]
    if isinstance(space, gym_spaces.Dict):
        return lambda actions: {key: decode(actions[name]) for key, name, decode in parts}
    return lambda actions: tuple(decode(actions[name]) for _, name, decode in parts)


def _box_decoder(space: Any) -> Callable[[Array], Array]:
    low, high, dtype, shape = space.low, space.high, np.dtype(space.dtype), tuple(space.shape)
    whole = dtype.kind in "iub"
    bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())

    def decode(actions: Array) -> Array:
        native = actions.reshape((len(actions), *shape))
        if whole:
            native = np.rint(native)
        if bounded:
            native = np.minimum(np.maximum(native, low), high)
        return native.astype(dtype, copy=False)

    return decode
