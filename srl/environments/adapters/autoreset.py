"""Conversion of Gymnasium's autoreset modes to the next-step rule, in which the last observation has its own step.

Gymnasium has three modes. `NEXT_STEP` is our rule. In the other two, copies are stepped together even if some have
ended, so a copy that has ended takes one step that the policy does not control:

- `DISABLED`: that step belongs to an episode that a second masked reset discards. It only costs time.
- `SAME_STEP`: that step is the first of the new episode. It is taken with a neutral action: choice 0 (or the first one
  that a mask allows), or the real number closest to 0. The learner sees the episode from its second observation on;
  `return` and `length` include the unseen step. An environment whose episodes last only one step is rejected.

Environments that have an option `autoreset_mode` are built with `NEXT_STEP`, which avoids all this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from srl.api.spaces import choice_sizes
from srl.base.tree import Array
from srl.environments.adapters.masks import MASK_KEY, allowed_choices, from_info
from srl.environments.failures import EnvironmentBroken
from srl.environments.spaces import from_gymnasium

WAITING = "srl/waiting"
"""Key in a step's info: mask [L] of lanes that neither act nor begin an episode, because theirs ended unseen."""
FACTS = "srl/facts"
"""Key in a step's info: statistics of the episodes that ended (`facts` of :class:`srl.api.lanes.TimeStep`)."""
NATIVE = "srl/info"
"""Key in a step's info: the environment's own info, if an episode ended."""

MAX_UNSEEN_EPISODES = 100
BOOL = np.dtype(bool)


def flags(array: Any) -> Array:
    """Return end-of-episode flags as bool: some environments use 0 and 1, which `~` and indexing treat differently."""
    return array if getattr(array, "dtype", None) is BOOL else np.asarray(array, bool)


def zeroed(lanes: Array, *arrays: Array) -> Iterator[Array]:
    """Return copies of the arrays [L] that are 0 where `lanes` [L] is true."""
    return (np.where(lanes, np.zeros_like(array), array) for array in arrays)


def next_step(environment: Any, mask_key: str = MASK_KEY) -> Any:
    """Return the environment, wrapped if necessary so that it follows the next-step rule. Of the native infos,
    a wrapper keeps the action mask, under `mask_key`, and those of steps in which an episode ended, under NATIVE."""
    mode = environment.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    mode = mode if isinstance(mode, AutoresetMode) else AutoresetMode(mode)
    if mode is AutoresetMode.SAME_STEP:
        return NextStepFromSameStep(environment, mask_key)
    return NextStepFromDisabled(environment, mask_key) if mode is AutoresetMode.DISABLED else environment


class _NextStep:
    """Base class for the wrappers, with the vector-environment attributes that lanes use."""

    def __init__(self, environment: Any, mask_key: str = MASK_KEY) -> None:
        self.environment = environment
        self._masks = ActionMasks(environment, mask_key)
        self.num_envs = int(environment.num_envs)
        self.single_observation_space = environment.single_observation_space
        self.single_action_space = environment.single_action_space
        self._clear()

    def _clear(self) -> None:
        """Forget the current episodes of all copies."""
        self._ended = np.zeros(self.num_envs, bool)  # in the last step

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self._clear()
        native, info = self.environment.reset(seed=seed)
        return native, self._masks.in_info(info)

    def close(self) -> None:
        self.environment.close()


class NextStepFromDisabled(_NextStep):
    """A wrapper for mode DISABLED: copies that ended are reset, stepped with the others, and reset again."""

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        starting = self._ended
        if not starting.any():
            native, reward, terminated, truncated, info = self.environment.step(actions)
            own = info
        else:
            native, info = self._restart(starting)
            actions = self._masks.allowed(actions, starting, native, info)
            _, reward, terminated, truncated, info = self.environment.step(actions)
            own = info
            native, fresh = self._restart(starting)
            info = self._masks.joined(info, fresh, starting)
            reward, terminated, truncated = zeroed(starting, reward, terminated, truncated)
        terminated, truncated = flags(terminated), flags(truncated)
        self._ended = terminated | truncated
        last = {NATIVE: own} if self._ended.any() else {}
        return native, reward, terminated, truncated, {**self._masks.in_info(info), **last}

    def _restart(self, mask: Array) -> tuple[Any, dict[str, Any]]:
        native, info = self.environment.reset(options={"reset_mask": mask.copy()})
        return native, info


class NextStepFromSameStep(_NextStep):
    """A wrapper for mode SAME_STEP: returns an episode's last observation although the next episode has begun."""

    def __init__(self, environment: Any, mask_key: str = MASK_KEY) -> None:
        super().__init__(environment, mask_key)
        space = environment.single_action_space
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            raise ValueError(f"autoreset mode SAME_STEP with actions {space} is not supported; use NEXT_STEP")
        low, high = getattr(space, "low", None), getattr(space, "high", None)
        self._neutral = getattr(space, "start", 0) if low is None else np.clip(np.zeros_like(low), low, high)

    def _clear(self) -> None:
        super()._clear()
        self._return = np.zeros(self.num_envs, np.float64)
        self._length = np.zeros(self.num_envs, np.int64)
        self._unseen = 0
        self._last: tuple[Any, dict[str, Any]] = (None, {})  # observations and masks of the last step

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        starting = self._ended
        if starting.any():
            actions = actions.copy()
            actions[starting] = self._neutral
            actions = self._masks.allowed(actions, starting, *self._last)
        native, reward, terminated, truncated, info = self.environment.step(actions)
        terminated, truncated = flags(terminated), flags(truncated)
        mask = self._masks.in_info(info)
        self._return += reward
        self._length += 1
        ended = terminated | truncated
        if not (ended.any() or starting.any()):
            return native, reward, terminated, truncated, mask
        facts = {"return": self._return.astype(np.float32), "length": self._length.copy()}
        self._return[ended], self._length[ended] = 0, 0
        waiting = starting & ended
        self._count_unseen(waiting)
        self._last = native, mask
        if ended.any():
            native = self._with_last(native, ended, info)
        reward, terminated, truncated = zeroed(starting, reward, terminated, truncated)
        self._ended = ended
        return native, reward, terminated, truncated, {**mask, FACTS: facts, WAITING: waiting, NATIVE: info}

    def _count_unseen(self, waiting: Array) -> None:
        self._unseen = self._unseen + 1 if waiting.any() else 0
        if self._unseen >= MAX_UNSEEN_EPISODES:
            raise EnvironmentBroken(
                f"{MAX_UNSEEN_EPISODES} episodes in a row ended at their first step, which autoreset mode SAME_STEP "
                "hides from the policy; use autoreset mode NEXT_STEP"
            )

    def _with_last(self, native: Any, ended: Array, info: dict[str, Any]) -> Any:
        """Return the observations; for copies that ended, replace them with the last ones of their episodes."""
        finals = info.get("final_obs")
        if finals is None:
            raise EnvironmentBroken(
                "autoreset mode SAME_STEP needs info['final_obs'] at the end of an episode; it is missing"
            )
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            finals = [finals[lane] for lane in np.flatnonzero(ended)]
        return _replaced(native, finals, ended)


def _replaced(native: Any, finals: Any, ended: Array) -> Any:
    """Return `native` with ended lanes' rows from `finals`, a batch like it or a list with one item per ended lane."""
    if isinstance(native, dict):
        return {key: _replaced(item, _part(finals, key), ended) for key, item in native.items()}
    if isinstance(native, tuple):
        return tuple(_replaced(item, _part(finals, key), ended) for key, item in enumerate(native))
    native = native.copy()
    native[ended] = np.stack(finals) if isinstance(finals, list) else finals[ended]
    return native


def _part(finals: Any, key: Any) -> Any:
    return [final[key] for final in finals] if isinstance(finals, list) else finals[key]


class ActionMasks:
    """Action masks in the observations or infos of a vector environment, if it has any."""

    def __init__(self, environment: Any, key: str) -> None:
        self._key = key
        self._space = environment.single_action_space
        self._num_lanes = int(environment.num_envs)
        self._sizes = choice_sizes(from_gymnasium(self._space, "action"))

    def in_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """Return a dictionary with the mask [L, choices] in an info, under its key; empty if there is none."""
        if self._key not in info or not self._sizes:
            return {}
        return {self._key: from_info(info, sum(self._sizes), self._num_lanes, key=self._key)}

    def joined(self, info: Mapping[str, Any], fresh: Mapping[str, Any], starting: Array) -> dict[str, Any]:
        """Return the action masks: from `fresh`, a reset's info, for lanes that are `starting` [L], and from the step's
        `info` for the others. If only a reset has masks, they apply to all lanes."""
        fresh_mask, mask = self.in_info(fresh).get(self._key), self.in_info(info).get(self._key)
        if fresh_mask is None or mask is None:
            return {} if fresh_mask is None else {self._key: fresh_mask}
        return {self._key: np.where(starting[:, None], fresh_mask, mask)}

    def allowed(self, actions: Any, starting: Array, native: Any, info: Mapping[str, Any]) -> Any:
        """Return the native actions. In lanes that are `starting`, discrete ones become the first allowed choice."""
        mask = self.in_info(info).get(self._key, allowed_choices(native, self._num_lanes, self._key))
        discrete = isinstance(self._space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))
        if mask is None or not discrete or mask.shape[1] != sum(self._sizes):
            return actions
        ends = np.cumsum([0, *self._sizes])
        first = np.stack([mask[:, a:b].argmax(axis=1) for a, b in pairwise(ends)], axis=1)
        chosen = first.reshape(actions.shape) + getattr(self._space, "start", 0)
        where = starting.reshape(-1, *(1,) * (actions.ndim - 1))
        return np.where(where, chosen, actions).astype(actions.dtype)
