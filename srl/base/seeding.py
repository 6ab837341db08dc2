"""Random numbers: independent seeds derived from the user's seed, and the state of generators."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.base.state import pack, unpack
from srl.base.tree import Array


def derive(seed: int, *path: str | int) -> int:
    """Return a 63-bit seed for the consumer named by `path`, e.g. `derive(seed, "actors", index, incarnation)`.

    The result is the same on every machine and Python version. Paths that differ in any part give independent seeds:
    `("a", 1)`, `("a1",)` and `("a", "1")` are three different paths.
    """
    parts = (int(seed), *(part if isinstance(part, str) else int(part) for part in path))
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8, person=b"srl-seed")
    return int.from_bytes(digest.digest(), "little") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive(seed, *path)))


def generator_state(generator: np.random.Generator) -> Array:
    return pack(plain(generator.bit_generator.state))


def restore_generator(generator: np.random.Generator, state: Array) -> None:
    generator.bit_generator.state = unpack(state)


def plain(value: Any) -> Any:
    """Replace arrays in a bit generator's state with lists, which its setter also accepts."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
