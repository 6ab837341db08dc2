"""Steps that nobody decides: masks of actions beside them, and choices that the masks allow."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import spaces

from srl.api.spaces import choice_sizes
from srl.base.tree import Array
from srl.environments.adapters.masks import allowed_choices, from_info
from srl.environments.spaces import from_gymnasium


class Choices:
    """The masks of a vector environment's actions, in its observations or infos, if it has any."""

    def __init__(self, environment: Any, key: str) -> None:
        self._key = key
        self._space = environment.single_action_space
        self._num_lanes = int(environment.num_envs)
        self._sizes = choice_sizes(from_gymnasium(self._space, "action"))

    def told(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """What is left of an info: its mask [L, choices]."""
        if self._key not in info or not self._sizes:
            return {}
        return {self._key: from_info(info, sum(self._sizes), self._num_lanes, key=self._key)}

    def joined(self, info: Mapping[str, Any], fresh: Mapping[str, Any], starting: Array) -> dict[str, Any]:
        """The mask of a step, with that of a reset where lanes are `starting` [L]."""
        fresh_mask, mask = self.told(fresh).get(self._key), self.told(info).get(self._key)
        if fresh_mask is None or mask is None:
            return {} if fresh_mask is None else {self._key: fresh_mask}
        return {self._key: np.where(starting[:, None], fresh_mask, mask)}

    def allowed(self, actions: Any, starting: Array, native: Any, info: Mapping[str, Any]) -> Any:
        """The native actions, those of lanes that are `starting` replaced by the first that their mask allows; a Dict
        or Tuple of actions stays as it is."""
        mask = self.told(info).get(self._key, allowed_choices(native, self._num_lanes, self._key))
        discrete = isinstance(self._space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        if mask is None or not discrete or mask.shape[1] != sum(self._sizes):
            return actions
        ends = np.cumsum([0, *self._sizes])
        first = np.stack([mask[:, a:b].argmax(axis=1) for a, b in pairwise(ends)], axis=1)
        chosen = first.reshape(actions.shape) + getattr(self._space, "start", 0)
        where = starting.reshape(-1, *(1,) * (actions.ndim - 1))
        return np.where(where, chosen, actions).astype(actions.dtype)
