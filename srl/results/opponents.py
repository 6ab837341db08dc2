"""Opponents that were not trained: random ones, and functions of the user."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from srl.api.policy import Decision, Policy
from srl.api.spaces import Space
from srl.base.object_names import load_object
from srl.base.seeding import generator
from srl.base.tree import Array, Tree, leaves, map_tree
from srl.environments.adapters.masks import MASK_KEY, allowed_choices
from srl.environments.random_actions import random_actions

RANDOM = "random"


class RandomPolicy(Policy):
    """A policy that samples uniformly among the allowed actions."""

    def __init__(self, action: Space, seed: int, mask_key: str = MASK_KEY) -> None:
        self.version = 0
        self._action, self._mask_key = action, mask_key
        self._generator = generator(seed, "random opponent")

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        allowed = allowed_choices(observation, len(first), self._mask_key)
        return {"action": random_actions(self._action, len(first), self._generator, allowed)}

    def load(self, parameters: Array, version: int) -> None:
        pass


class ScriptedPolicy(Policy):
    """A policy made of a function of an observation and a random generator that returns an action."""

    def __init__(self, function: Callable[[Any, np.random.Generator], Any], seed: int) -> None:
        self.version = 0
        self._function = function
        self._generator = generator(seed, "scripted opponent")

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        rows = [map_tree(lambda array, row=row: array[row], observation) for row in range(len(first))]
        actions = [self._function(row, self._generator) for row in rows]
        if isinstance(actions[0], Mapping):
            return {"action": {key: np.stack([action[key] for action in actions]) for key, _ in leaves(actions[0])}}
        return {"action": np.stack([np.asarray(action) for action in actions])}

    def load(self, parameters: Array, version: int) -> None:
        pass


def opponent(name: str, action: Space, seed: int, mask_key: str = MASK_KEY) -> Policy:
    """Return the opponent `random`, or one made of `package.module:function` or `path/file.py:function`."""
    if name == RANDOM:
        return RandomPolicy(action, seed, mask_key)
    if ":" not in name:
        raise ValueError(f"no opponent {name!r}; use `random` or a function as path/file.py:function")
    return ScriptedPolicy(load_object(name), seed)
