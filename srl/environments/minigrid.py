"""MiniGrid's environments with observations that a network can read: their own hold a text, and codes as colours."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from srl.base.tree import Array

ENTRY_POINTS = "minigrid."
FACTORY = "srl.environments.minigrid:make"
CODES = (11, 6, 4)
"""Kinds of objects, colours, and states (open, closed, locked; or a direction) in each cell of the view."""
DIRECTIONS = 4


class Readable(gymnasium.ObservationWrapper[Any, Any, Any]):  # type: ignore[misc]
    """The view and the direction as one vector of zeros and ones. The mission, which is the same sentence in most of
    the environments, is left out."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        rows, columns, _ = environment.observation_space["image"].shape
        self._cells = rows * columns
        self._bounds = np.array(CODES) - 1
        self._first = np.arange(self._cells)[:, None] * sum(CODES) + np.cumsum((0, *CODES[:-1]))  # [cells, 3]
        size = self._cells * sum(CODES) + DIRECTIONS
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,), np.uint8)

    def observation(self, observation: Any) -> Array:
        hot = np.zeros(self.observation_space.shape, np.uint8)
        codes = np.minimum(observation["image"].reshape(self._cells, 3), self._bounds)
        hot[(self._first + codes).ravel()] = 1
        hot[self._cells * sum(CODES) + int(observation["direction"])] = 1
        return hot


def make(id: str, **kwargs: Any) -> Readable:  # noqa: A002 - Gymnasium's word
    """The environment that `minigrid` registers under this id."""
    import minigrid  # noqa: F401 - registers them

    return Readable(gymnasium.make(id, **kwargs))
