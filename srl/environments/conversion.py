"""Conversion between an environment's native values (observations, actions, frames) and our arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec, bounds_of
from srl.base.errors import WrongValue, raised
from srl.base.tree import SEPARATOR, Array, Tree, from_leaves, joined, lane_of, leaves, map_tree

Key: TypeAlias = str | int

OBSERVATION = "observation"  # key of an observation that is not a Dict, beside other keys
PREVIOUS_ACTION, PREVIOUS_REWARD = "previous_action", "previous_reward"


@dataclass(frozen=True)
class ObservationLeaf:
    """One array of an observation, with its location and shape both in the native value and in our tree."""

    path: str  # in our tree
    keys: tuple[Key, ...]  # in the native value
    native_shape: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    start: Array | None
    """Smallest native value of each choice; None if all are zero."""

    def find(self, value: Any) -> Array:
        """Return this leaf's native array, without copying if it is already an array."""
        for key in self.keys:
            value = value[key]
        return np.asarray(value)

    def encode(self, native: Array, *leading: int) -> Array:
        """Convert a native array whose leading axes are `leading` to ours, without copying if possible. Raise
        WrongValue if its shape or dtype is wrong."""
        if native.shape != (*leading, *self.native_shape):
            found, expected = native.shape[len(leading) :], self.native_shape
            raise WrongValue(f"observation{self._where()} has shape {found}, its space says {expected}")
        if native.dtype.kind not in ("fiub" if self.dtype == "float32" else "iub"):
            raise WrongValue(f"observation{self._where()} has dtype {native.dtype}, its space says {self.dtype}")
        if self.start is not None:
            native = native - self.start
        return native.reshape((*leading, *self.shape)).astype(self.dtype, copy=False)

    def _where(self) -> str:
        return f" {self.path!r}" if self.path else ""


def observation_leaves(space: Space) -> tuple[ObservationLeaf, ...]:
    """Return one leaf per array of an observation, in the order of :func:`srl.base.tree.leaves`."""
    return tuple(sorted(_leaves(space, "", ()), key=lambda leaf: leaf.path.split(SEPARATOR)))


def _leaves(space: Space, path: str, keys: tuple[Key, ...]) -> Iterator[ObservationLeaf]:
    if isinstance(space, Dict):
        for name, item in space.items.items():
            yield from _leaves(item, joined(path, name), (*keys, int(name) if space.is_tuple else name))
        return
    spec: Any = array_spec(space)
    yield ObservationLeaf(path, keys, _native_shape(space), spec.shape, spec.dtype, _start(space))


def _native_shape(space: Box | Discrete | MultiDiscrete) -> tuple[int, ...]:
    if isinstance(space, Discrete):
        return ()
    if isinstance(space, Box):
        return space.shape
    return space.native_shape or (len(space.nvec),)


def _start(space: Space) -> Array | None:
    """Return the smallest value of each choice, in the native shape, or None if all are zero."""
    if not isinstance(space, (Discrete, MultiDiscrete)) or not space.start:
        return None
    return np.array(space.start, np.int64).reshape(_native_shape(space))


def observation_buffers(space: Space, *leading: int) -> Tree:
    """Return a tree of zeroed observation arrays with leading axes `leading`."""
    buffers: Tree = map_tree(lambda spec: spec.empty(*leading), array_spec(space))
    return buffers


def observation_encoder(space: Space) -> Callable[..., Tree]:
    """Return a function ``(native, *leading) -> tree`` that converts a native observation or a batch to our arrays."""
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
            return native  # The hot path for native vector environments.
        return leaf.encode(leaf.find(native), *leading)

    return encode


def batch_axes(space: Space, native: Any) -> tuple[int, ...]:
    """Return a native observation's leading axes: () for a single observation, (L,) for a batch. Raise ValueError for
    any other shape."""
    leaf = observation_leaves(space)[0]
    array = leaf.find(native)
    axes = array.shape[: max(0, array.ndim - len(leaf.native_shape))]
    if len(axes) > 1 or array.shape[len(axes) :] != leaf.native_shape:
        raise ValueError(
            f"expected an observation of shape {leaf.native_shape}, or a batch with one more axis in front; found "
            f"shape {array.shape}"
        )
    return axes


def action_decoder(space: Space) -> Callable[[Any], Any]:
    """Return a function that converts our actions [L, ...] to native ones: one array, or a dictionary or tuple of them.

    Box actions are clipped to their bounds here and nowhere else: the environment receives the clipped action, while
    the log-probability is that of the unclipped one.
    """
    if isinstance(space, Dict):
        return _composite_decoder(space)
    if isinstance(space, Box):
        return _box_decoder(space)
    start, shape, dtype = _start(space), _native_shape(space), np.dtype(space.native_dtype or "int64")
    plain = start is None and len(shape) <= 1

    def decode(actions: Array) -> Array:
        if plain and actions.dtype is dtype:
            return actions
        native = actions.reshape((len(actions), *shape))
        return (native if start is None else native + start).astype(dtype, copy=False)

    return decode


def lane_decoder(space: Space) -> Callable[[Any], Any]:
    """Return a function that converts our actions [L, ...] to L native ones, for copies that are stepped one by one."""
    decode = action_decoder(space)
    if not isinstance(space, Dict):
        return decode

    def decode_lanes(actions: Any) -> list[Any]:
        batch = decode(actions)
        return [lane_of(batch, lane) for lane in range(len(next(leaves(actions))[1]))]

    return decode_lanes


def _composite_decoder(space: Dict) -> Callable[[Any], Any]:
    parts = [(name, action_decoder(item)) for name, item in space.items.items()]
    if space.is_tuple:
        parts.sort(key=lambda part: int(part[0]))
        return lambda actions: tuple(decode(actions[name]) for name, decode in parts)
    return lambda actions: {name: decode(actions[name]) for name, decode in parts}


def _box_decoder(space: Box) -> Callable[[Array], Array]:
    dtype, shape = np.dtype(space.native_dtype or space.dtype), space.shape
    is_integer = dtype.kind in "iub"
    # Integer bounds stay floats because they are compared with rounded floats.
    low, high = (bound if is_integer else bound.astype(dtype) for bound in bounds_of(space))
    bounded = bool(np.isfinite(low).any() or np.isfinite(high).any())

    def decode(actions: Array) -> Array:
        native = actions.reshape((len(actions), *shape))
        if is_integer:
            native = np.rint(native)
        if bounded:
            native = np.minimum(np.maximum(native, low), high)
        return native.astype(dtype, copy=False)

    return decode


def previous_action_space(space: Space) -> Space:
    """Return the space of previous actions. A choice has one more alternative, 0, before the first action; the others
    count from 1."""
    if isinstance(space, Discrete):
        return Discrete(space.n + 1)
    if isinstance(space, MultiDiscrete):
        return MultiDiscrete(tuple(n + 1 for n in space.nvec))
    if isinstance(space, Box):
        return Box(space.shape, "float32", space.low, space.high)
    return Dict({name: previous_action_space(item) for name, item in space.items.items()}, space.is_tuple)


def previous_action(space: Space, action: Any) -> Tree:
    """Return actions [L, ...] of a policy as the next observations have them."""
    if isinstance(space, Dict):
        return {name: previous_action(item, action[name]) for name, item in space.items.items()}
    if isinstance(space, Box):
        clipped: Array = np.clip(action, *bounds_of(space)).astype(np.float32)
        return clipped
    return np.asarray(action, np.int64) + 1


def rendered_frame(name: str, render: Callable[[], Any]) -> Array:
    """Render and return a frame [height, width, 3] uint8. Raise ValueError if the environment cannot render."""
    try:
        frame = render()
    except Exception as error:
        raise ValueError(f"environment {name} cannot be rendered here: {raised(error)}") from error
    if not isinstance(frame, np.ndarray) or frame.ndim != 3 or frame.shape[2] < 3:
        raise ValueError(
            f"environment {name} cannot be recorded: render() returned {type(frame).__name__}, expected an array "
            "[height, width, 3] as for render_mode='rgb_array'"
        )
    return frame[:, :, :3].astype(np.uint8, copy=False)
