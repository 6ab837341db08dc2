"""PettingZoo wrappers that add the state of the whole game to each agent's observation, for a centralized critic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo.utils.wrappers import BaseParallelWrapper, BaseWrapper

from srl.base.tree import Array
from srl.environments.adapters.masks import MASK_KEY

STATE, OBSERVATION = "state", "observation"


class _State:
    """The environment's own `state()`, or the concatenated observations of all agents, with zeros for absent ones."""

    def __init__(self, environment: Any, mask_key: str) -> None:
        self._environment, self._mask_key = environment, mask_key
        self._own = _has_state(environment)
        self._spaces = {
            agent: _seen(environment.observation_space(agent), mask_key) for agent in environment.possible_agents
        }
        size = sum(spaces.flatdim(space) for space in self._spaces.values())
        joint = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._space = environment.state_space if self._own else joint

    def space(self, agent: Any) -> spaces.Dict:
        seen = self._environment.observation_space(agent)
        parts = dict(seen.spaces) if isinstance(seen, spaces.Dict) else {OBSERVATION: seen}
        if STATE in parts:
            raise ValueError(f"agent {agent!r}: the observation already has a key {STATE!r}; use state=False")
        return spaces.Dict({**parts, STATE: self._space})

    def beside(self, observation: Any, state: Array) -> dict[str, Any]:
        parts = dict(observation) if isinstance(observation, Mapping) else {OBSERVATION: observation}
        return {**parts, STATE: state}

    def of(self, observe: Callable[[Any], Any]) -> Array:
        """Return the state; `observe` returns an agent's observation, or None if the agent is absent."""
        if self._own:
            return np.asarray(self._environment.state(), self._space.dtype)
        parts = [
            np.zeros(spaces.flatdim(space))
            if (seen := observe(agent)) is None
            else spaces.flatten(space, _without_mask(seen, self._mask_key))
            for agent, space in self._spaces.items()
        ]
        return np.concatenate(parts).astype(np.float32)


class ParallelWithState(BaseParallelWrapper):  # type: ignore[misc]
    def __init__(self, environment: Any, mask_key: str = MASK_KEY) -> None:
        super().__init__(environment)
        self._state = _State(environment, mask_key)

    def observation_space(self, agent: Any) -> spaces.Dict:
        return self._state.space(agent)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        observations, infos = self.env.reset(seed=seed, options=options)
        return self._extended(observations), infos

    def step(self, actions: Any) -> tuple[Any, ...]:
        observations, *rest = self.env.step(actions)
        return self._extended(observations), *rest

    def _extended(self, observations: Mapping[Any, Any]) -> dict[Any, Any]:
        state = self._state.of(observations.get)
        return {agent: self._state.beside(seen, state) for agent, seen in observations.items() if seen is not None}


class TurnsWithState(BaseWrapper):  # type: ignore[misc]
    def __init__(self, environment: Any, mask_key: str = MASK_KEY) -> None:
        super().__init__(environment)
        self._state = _State(environment, mask_key)

    def observation_space(self, agent: Any) -> spaces.Dict:
        return self._state.space(agent)

    def observe(self, agent: Any) -> dict[str, Any] | None:
        seen = self.env.observe(agent)
        if seen is None:
            return None
        state = self._state.of(lambda other: self.env.observe(other) if other in self.env.agents else None)
        return self._state.beside(seen, state)


def _has_state(environment: Any) -> bool:
    """Return whether the environment implements `state` and its space."""
    try:
        return isinstance(environment.state_space, spaces.Box)
    except (AttributeError, NotImplementedError):
        return False


def _seen(space: Any, mask_key: str) -> Any:
    if isinstance(space, spaces.Dict) and mask_key in space.spaces:
        return spaces.Dict({key: part for key, part in space.spaces.items() if key != mask_key})
    return space


def _without_mask(observation: Any, mask_key: str) -> Any:
    if isinstance(observation, Mapping) and mask_key in observation:
        return {key: part for key, part in observation.items() if key != mask_key}
    return observation
