"""Random numbers one at a time: a world is laid out with some fifty draws, each of which must cost next to nothing."""

from __future__ import annotations

import numpy as np

from srl.environments.hide_and_seek.options import Count

AT_ONCE = 256


class RandomDraws:
    """Draws from a generator many numbers at once and manipulation them out; the same seed gives the same throws."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._numbers: list[float] = []

    def random(self) -> float:
        if not self._numbers:
            self._numbers = self._generator.random(AT_ONCE).tolist()
        return self._numbers.pop()

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def below(self, number: int) -> int:
        """A whole number from 0 to `number` - 1."""
        return int(self.random() * number)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both inclusive."""
        return low + self.below(high - low + 1)

    def count(self, count: Count) -> int:
        return count if isinstance(count, int) else self.between(*count)

    def chance(self, probability: float) -> bool:
        return self.random() < probability
