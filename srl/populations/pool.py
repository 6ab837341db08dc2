"""Past versions of a policy: kept by tags in the parameter service, drawn evenly or by how hard they are to beat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from srl.api.parameters import ParameterStore
from srl.base.tree import Array

LATEST, PREFIX = "latest", "past-"
HARDNESS = 2.0
"""Vinyals et al. 2019: an opponent is met in proportion to (1 - our win rate) to this power."""
LEAST = 0.05
"""Also those that we always beat are met again, with at least so much of that weight."""
MEMORY = 50.0
"""About so many of the last games against a version decide its win rate."""


@dataclass(frozen=True)
class PoolConfig:
    draw: Literal["uniform", "prioritized"]
    share: float = 0.5
    """Of games against past versions; the others are against the newest."""
    every: int = 20
    """Versions between two that are kept."""
    size: int = 12
    """At most so many are kept, spread over the whole run."""


def refill(store: ParameterStore, past: Iterable[tuple[int, Array]]) -> int:
    """Keep versions that were read from elsewhere, the oldest first, in a store that is still empty."""
    number = 0
    for version, parameters in past:
        if version > store.version:
            store.push(version, parameters, (f"{PREFIX}{number}",))
            number += 1
    return number


class Pool:
    """Whoever asks for an opponent keeps the pool up, too: all workers of a host share the tags of its service. Win
    rates are the asker's own."""

    def __init__(self, config: PoolConfig, store: ParameterStore) -> None:
        self._config = config
        self._store = store
        self._scores: dict[int, tuple[float, float]] = {}  # version -> games and points, the old ones fading

    def refresh(self) -> dict[str, int]:
        """Keep the newest version if it is time; returns tag -> version of those that are kept."""
        versions = self._store.versions()
        past = {tag: version for tag, version in versions.items() if tag.startswith(PREFIX)}
        newest = versions.get(LATEST, -1)
        if newest >= 0 and newest >= max(past.values(), default=-self._config.every) + self._config.every:
            tag = self._place(past)
            self._store.tag(tag)
            past[tag] = newest
        return past

    def _place(self, past: dict[str, int]) -> str:
        """A tag that is free, or that of the version whose neighbors in time are nearest to each other."""
        if len(past) < self._config.size:
            return next(tag for number in range(self._config.size) if (tag := f"{PREFIX}{number}") not in past)
        ordered = sorted(past, key=past.__getitem__)
        if len(ordered) < 3:
            return ordered[0]
        gaps = [past[ordered[i + 1]] - past[ordered[i - 1]] for i in range(1, len(ordered) - 1)]
        return ordered[1 + int(np.argmin(gaps))]

    def draw(self, generator: np.random.Generator) -> str:
        """The tag of an opponent; `latest` is ourselves."""
        past = self.refresh()
        if not past or generator.random() >= self._config.share:
            return LATEST
        tags = sorted(past)
        weights = np.array([self._weight(past[tag]) for tag in tags])
        return tags[generator.choice(len(tags), p=weights / weights.sum())]

    def _weight(self, version: int) -> float:
        if self._config.draw == "uniform":
            return 1.0
        return float(max(LEAST, (1.0 - self.win_rate(version)) ** HARDNESS))

    def win_rate(self, version: int) -> float:
        """Points per game against a version, beginning with one game that was drawn."""
        games, points = self._scores.get(version, (0.0, 0.0))
        return (points + 0.5) / (games + 1.0)

    def note(self, version: int, points: float) -> None:
        """A game against it ended: 1 if we won, 0.5 drawn, 0 lost."""
        games, before = self._scores.get(version, (0.0, 0.0))
        fade = 1.0 - 1.0 / MEMORY
        self._scores[version] = (games * fade + 1.0, before * fade + points)
