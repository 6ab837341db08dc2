"""Spaces of data sets: written as Minari writes them, read back, and compared with those of an environment."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from gymnasium import spaces as gym_spaces

from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, bounds_of
from srl.environments.spaces import from_gymnasium


def to_text(space: Space) -> str:
    """Return the environment's own space as text."""
    return json.dumps(_described(space))


def _described(space: Space) -> dict[str, Any]:
    if isinstance(space, Dict):
        if space.is_tuple:
            ordered = sorted(space.items, key=int)
            return {"type": "Tuple", "subspaces": [_described(space.items[name]) for name in ordered]}
        return {"type": "Dict", "subspaces": {name: _described(item) for name, item in space.items.items()}}
    if isinstance(space, Discrete):
        return {"type": "Discrete", "dtype": "int64", "start": space.start, "n": space.n}
    if isinstance(space, MultiDiscrete):
        shape = space.native_shape or (len(space.nvec),)
        start = space.start or (0,) * len(space.nvec)
        sizes, starts = (np.reshape(numbers, shape).tolist() for numbers in (space.nvec, start))
        return {"type": "MultiDiscrete", "dtype": space.native_dtype or "int64", "nvec": sizes, "start": starts}
    low, high = (bound.tolist() for bound in bounds_of(space))
    dtype = space.native_dtype or space.dtype
    return {"type": "Box", "dtype": dtype, "shape": list(space.shape), "low": low, "high": high}


def from_text(text: str, role: str) -> Space:
    """Return the space that a text describes. Raises ValueError if it does not describe one, or one that is not
    supported. `role` is "observation" or "action"."""
    try:
        native = _native(json.loads(text))
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise ValueError(f"cannot read the {role} space {text[:200]!r}: {error}") from error
    return from_gymnasium(native, role)


def _native(data: Any) -> Any:
    kind = data["type"]
    if kind == "Box":
        low, high = (np.array(data[name], data["dtype"]) for name in ("low", "high"))
        return gym_spaces.Box(low, high, tuple(data["shape"]), np.dtype(data["dtype"]).type)
    if kind == "Discrete":
        return gym_spaces.Discrete(data["n"], start=data.get("start", 0))
    if kind == "MultiDiscrete":
        sizes = np.array(data["nvec"])
        start = np.array(data["start"]) if "start" in data else None
        return gym_spaces.MultiDiscrete(sizes, np.dtype(data.get("dtype", "int64")).type, start=start)
    if kind == "MultiBinary":
        return gym_spaces.MultiBinary(data["n"])
    if kind == "Dict":
        return gym_spaces.Dict({name: _native(item) for name, item in data["subspaces"].items()})
    if kind == "Tuple":
        return gym_spaces.Tuple([_native(item) for item in data["subspaces"]])
    raise ValueError(f"spaces of type {kind!r} are not supported")


def difference(found: Space, expected: Space, path: str = "") -> str:
    """Describe the first difference between a data set's space and an environment's; empty if arrays of one serve as
    arrays of the other. The bounds of observations do not matter, those of actions do."""
    where = f" {path!r}" if path else ""
    if isinstance(found, Dict) and isinstance(expected, Dict) and found.is_tuple == expected.is_tuple:
        if found.items.keys() != expected.items.keys():
            return f"parts{where} {sorted(found.items)} in place of {sorted(expected.items)}"
        parts = (
            difference(found.items[name], expected.items[name], f"{path}/{name}".lstrip("/")) for name in found.items
        )
        return next(filter(None, parts), "")
    if type(found) is not type(expected) or _layout(found) != _layout(expected):
        return f"{_shown(found)}{where} in place of {_shown(expected)}"
    return ""


def action_difference(found: Space, expected: Space) -> str:
    """As :func:`difference`, for actions."""
    different = difference(found, expected)
    if not different and isinstance(found, Box) and isinstance(expected, Box):
        bounds = zip(bounds_of(found), bounds_of(expected), strict=True)
        if not all(np.allclose(one, other, rtol=1e-4) for one, other in bounds):
            return f"bounds {found.low} to {found.high} in place of {expected.low} to {expected.high}"
    return different


def _layout(space: Space) -> tuple[Any, ...]:
    if isinstance(space, Box):
        return space.shape, np.dtype(space.dtype).kind == "f"
    if isinstance(space, Discrete):
        return space.n, space.start
    assert isinstance(space, MultiDiscrete)
    return space.nvec, space.start


def _shown(space: Space) -> str:
    if isinstance(space, Box):
        return f"a Box of shape {space.shape} and dtype {space.dtype}"
    return str(space) if not isinstance(space, Dict) else "a Tuple" if space.is_tuple else "a Dict"
