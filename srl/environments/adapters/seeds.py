"""Seeds for the copies of an environment."""

from __future__ import annotations

from collections.abc import Iterator

from srl.base.seeding import derive


class CopySeeds(Iterator[int]):
    """Seeds that never repeat; a plain counter, so that a saved run goes on where it was."""

    def __init__(self, start: int) -> None:
        self.following = start

    def __next__(self) -> int:
        self.following += 1
        return self.following - 1


def copy_seeds(seed: int) -> CopySeeds:
    """Beginning at a place drawn from `seed`; small enough for any environment's int32."""
    return CopySeeds(derive(seed, "environments") >> 33)
