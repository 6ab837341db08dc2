"""Seeds: one number of the user becomes an independent number for every place that draws randomness."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *path: str | int) -> int:
    """A 63-bit seed for the place named by `path`, e.g. `derive(seed, "actors", index, incarnation)`.

    The same on every machine and in every Python; places that differ in any part draw independently, and `("a", 1)`
    is another place than `("a1",)` or `("a", "1")`.
    """
    parts = (int(seed), *(part if isinstance(part, str) else int(part) for part in path))
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8, person=b"srl-seed")
    return int.from_bytes(digest.digest(), "little") >> 1


def generator(seed: int, *path: str | int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(derive(seed, *path)))
