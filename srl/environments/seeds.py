"""Seeds for the copies of an environment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from srl.base.seeding import derive


def copy_seeds(seed: int) -> Iterator[int]:
    """Seeds that never repeat, beginning at a place drawn from `seed`; small enough for any environment's int32."""
    return itertools.count(derive(seed, "environments") >> 33)
