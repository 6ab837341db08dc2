"""States: all that a thing needs to go on exactly, as arrays by name. Parts nest by prefix, plain data is text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from srl.base.tree import Array

State: TypeAlias = Mapping[str, Array]


class NotResumable(RuntimeError):
    """Something cannot be put into arrays, or a saved state does not fit; the message says where and what."""


class NotYet(NotResumable):
    """Something is just being built or met; a moment later it can be saved."""


def under(prefix: str, state: State) -> dict[str, Array]:
    """A part's state under its name."""
    return {f"{prefix}/{key}": value for key, value in state.items()}


def part(state: State, prefix: str) -> dict[str, Array]:
    """What :func:`under` put there."""
    return {key.removeprefix(f"{prefix}/"): value for key, value in state.items() if key.startswith(f"{prefix}/")}


def pack(value: Any) -> Array:
    """Dictionaries with string keys, lists, strings, numbers (of any size, also not finite), booleans and None."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8).copy()


def unpack(text: Array) -> Any:
    return json.loads(text.tobytes())
