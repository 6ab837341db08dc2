"""Seeds for the copies of an environment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np


def copy_seeds(seed: int) -> Iterator[int]:
    """Seeds that never repeat, beginning at a place drawn from `seed`; small enough for any environment's int32."""
    start = int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 2
    return itertools.count(start)
