"""MiniGrid environments with vector observations. Native ones contain text, and object codes in place of colors."""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from typing import Any

import gymnasium
import numpy as np

from srl.base.tree import Array
from srl.environments.factories import is_known

ENTRY_POINTS = "minigrid."
FACTORY = "minigrid"
"""Short name of `make` in :mod:`srl.base.object_names`."""
FAMILIES = ("MiniGrid-", "BabyAI-")
"""Prefixes of MiniGrid's ids."""
CODES = (11, 6, 4)
"""Number of object kinds, colors and states (open, closed, locked, or a direction) that a cell of the view can have."""
DIRECTIONS = 4
BABY_WORDS = (
    *("a", "after", "and", "ball", "behind", "blue", "box", "door", "front", "go", "green", "grey", "in", "key"),
    *("left", "next", "object", "of", "on", "open", "pick", "purple", "put", "red", "right", "the", "then", "to"),
    *("up", "yellow", "you", "your"),
)
"""BabyAI's vocabulary in its own spelling, which its mission space does not list."""
BABY_LENGTH = 72
"""Words in the longest mission: four times `put the red ball in front of you next to the blue box in front of you`,
plus `and`, `and`, `after you`."""


class VectorObservation(gymnasium.ObservationWrapper[Any, Any, Any]):  # type: ignore[misc]
    """A wrapper that encodes view, direction and the mission's variable words as one vector of zeros and ones."""

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        rows, columns, _ = environment.observation_space["image"].shape
        self._cells = rows * columns
        self._bounds = np.array(CODES) - 1
        self._first = np.arange(self._cells)[:, None] * sum(CODES) + np.cumsum((0, *CODES[:-1]))  # [cells, 3]
        self._words = words_of(environment.observation_space["mission"])
        size = self._cells * sum(CODES) + DIRECTIONS + len(self._words)
        self.observation_space = gymnasium.spaces.Box(0, 1, (size,), np.uint8)

    def observation(self, observation: Any) -> Array:
        vector = np.zeros(self.observation_space.shape, np.uint8)
        codes = np.minimum(observation["image"].reshape(self._cells, 3), self._bounds)
        vector[(self._first + codes).ravel()] = 1
        directions = self._cells * sum(CODES)
        vector[directions + int(observation["direction"])] = 1
        if self._words:
            words = enumerate(_split(observation["mission"]))
            places = [self._words[word] for word in words if word in self._words]
            vector[[directions + DIRECTIONS + place for place in places]] = 1
        return vector


def words_of(missions: Any) -> dict[tuple[int, str], int]:
    """Return an index for each (position, word) pair that varies among the missions of a space."""
    if type(missions).__name__ == "BabyAIMissionSpace":  # which contains the missions of all levels
        pairs = list(itertools.product(range(BABY_LENGTH), BABY_WORDS))
    else:
        missions_as_words = [
            _split(missions.mission_func(*chosen)) for chosen in itertools.product(*missions.ordered_placeholders or ())
        ]
        at = [set(words) for words in itertools.zip_longest(*missions_as_words, fillvalue="")]
        pairs = [(i, word) for i, words in enumerate(at) if len(words) > 1 for word in sorted(words - {""})]
    return {pair: number for number, pair in enumerate(pairs)}


def _split(mission: str) -> list[str]:
    return mission.replace(",", "").lower().split()


def register(name: str) -> None:
    """Register MiniGrid's ids if `name` looks like one of them. Raise ValueError if MiniGrid is not installed."""
    if name in gymnasium.registry or not name.startswith(FAMILIES):
        return
    if importlib.util.find_spec("minigrid") is None:
        raise ValueError(f'environment {name} needs the package minigrid; pip install "srl-rl[minigrid]"')
    importlib.import_module("minigrid")


def named_code(name: Any) -> tuple[str, ...]:
    """Return the id unless it is one of MiniGrid's: `make` would make any environment that Gymnasium finds."""
    if isinstance(name, str) and name.startswith(FAMILIES):
        register(name)
        if is_known(name):
            return ()
    return (f"environment {name}",)


def make(id: str, **kwargs: Any) -> VectorObservation:  # noqa: A002 - Gymnasium's name
    """Make the environment that `minigrid` registers under this id."""
    register(id)
    return VectorObservation(gymnasium.make(id, disable_env_checker=True, **kwargs))
