"""Cheap random numbers, one at a time: a layout takes about fifty of them."""

from __future__ import annotations

import numpy as np

from srl.environments.hide_and_seek.options import Count

AT_ONCE = 256


class RandomDraws:
    """Random numbers from a buffer that a generator refills; the same seed gives the same numbers."""

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
        """Draw an integer from 0 to `number` - 1."""
        return int(self.random() * number)

    def between(self, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both inclusive."""
        return low + self.below(high - low + 1)

    def count(self, count: Count) -> int:
        return count if isinstance(count, int) else self.between(*count)

    def chance(self, probability: float) -> bool:
        return self.random() < probability
