"""States: named arrays from which an object resumes exactly. Nested parts have prefixes; plain data is JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from srl.base.tree import Array

State: TypeAlias = Mapping[str, Array]


class NotResumable(RuntimeError):
    """An object cannot be saved as arrays, or a saved state does not fit it. The message gives the reason."""


class NotResumableYet(NotResumable):
    """An object cannot be saved yet, because part of it is still being built or connected; try again."""


def under(prefix: str, state: State) -> dict[str, Array]:
    """Add `prefix/` to all names in a part's state."""
    return {f"{prefix}/{key}": value for key, value in state.items()}


def part(state: State, prefix: str) -> dict[str, Array]:
    """Return the part of a state under `prefix`: the inverse of :func:`under`."""
    return {key.removeprefix(f"{prefix}/"): value for key, value in state.items() if key.startswith(f"{prefix}/")}


def pack(value: Any) -> Array:
    """Encode plain data as JSON: dictionaries with string keys, lists, strings, numbers (of any size, even non-finite),
    booleans and None."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8).copy()


def unpack(text: Array) -> Any:
    return json.loads(text.tobytes())
