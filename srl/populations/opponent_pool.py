"""Pool of a policy's past versions, kept under tags in the parameter service and drawn as opponents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from srl.api.parameters import ParameterStore
from srl.base.tree import Array

LATEST, PREFIX = "latest", "past-"
HARDNESS = 2.0  # Vinyals et al. 2019: an opponent is drawn in proportion to (1 - our win rate) to this power.
MIN_WEIGHT = 0.05  # smallest weight, so that opponents that always lose are still drawn
WIN_RATE_GAMES = 50.0  # approximate number of recent games against a version that determine its win rate


@dataclass(frozen=True)
class PoolConfig:
    draw: Literal["uniform", "prioritized"]
    share: float = 0.5  # fraction of games against past versions; the others are against the newest
    every: int = 20  # interval, in versions, at which a version is kept
    size: int = 12  # maximum number of kept versions, spread over the whole run


def refill(store: ParameterStore, past: Iterable[tuple[int, Array]]) -> int:
    """Fill an empty store with earlier versions, oldest first, and return their number."""
    number = 0
    for version, parameters in past:
        if version > store.version:
            store.push(version, parameters, (f"{PREFIX}{number}",))
            number += 1
    return number


class OpponentPool:
    """One worker's opponents. All workers on a host share the tags in its parameter service, and each updates the pool
    when it draws. Each worker tracks its own win rates."""

    def __init__(self, config: PoolConfig, store: ParameterStore) -> None:
        self._config = config
        self._store = store
        self._scores: dict[int, tuple[float, float]] = {}  # version -> games and points, with less weight on older ones

    def refresh(self) -> dict[str, int]:
        """Tag the newest version if it is due. Returns a map from tag to version for all kept versions."""
        versions = self._store.versions()
        past = {tag: version for tag, version in versions.items() if tag.startswith(PREFIX)}
        newest = versions.get(LATEST, -1)
        if newest >= 0 and newest >= max(past.values(), default=-self._config.every) + self._config.every:
            tag = self._tag_for_newest(past)
            self._store.tag(tag)
            past[tag] = newest
        return past

    def _tag_for_newest(self, past: dict[str, int]) -> str:
        """Return a free tag, or else the tag of the version whose two neighbors are closest to each other."""
        if len(past) < self._config.size:
            return next(tag for number in range(self._config.size) if (tag := f"{PREFIX}{number}") not in past)
        ordered = sorted(past, key=past.__getitem__)
        if len(ordered) < 3:
            return ordered[0]
        gaps = [past[ordered[i + 1]] - past[ordered[i - 1]] for i in range(1, len(ordered) - 1)]
        return ordered[1 + int(np.argmin(gaps))]

    def draw(self, generator: np.random.Generator) -> str:
        """Draw an opponent at random and return its tag; `latest` is the current policy itself."""
        past = self.refresh()
        if not past or generator.random() >= self._config.share:
            return LATEST
        tags = sorted(past)
        weights = np.array([self._weight(past[tag]) for tag in tags])
        return tags[generator.choice(len(tags), p=weights / weights.sum())]

    def _weight(self, version: int) -> float:
        if self._config.draw == "uniform":
            return 1.0
        return float(max(MIN_WEIGHT, (1.0 - self.win_rate(version)) ** HARDNESS))

    def win_rate(self, version: int) -> float:
        """Return the mean points per game against a version, starting from one imaginary drawn game."""
        games, points = self._scores.get(version, (0.0, 0.0))
        return (points + 0.5) / (games + 1.0)

    def add_result(self, version: int, points: float) -> None:
        """Count a game against a version: 1 point if won, 0.5 if drawn, 0 if lost."""
        games, before = self._scores.get(version, (0.0, 0.0))
        fade = 1.0 - 1.0 / WIN_RATE_GAMES
        self._scores[version] = (games * fade + 1.0, before * fade + points)
