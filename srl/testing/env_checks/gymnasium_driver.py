"""Drivers for single and vector Gymnasium environments."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium.vector.utils import iterate

from srl.testing.env_checks.driver import AgentResult, Caller, StepResult, act, unpack_reset, unpack_step
from srl.testing.env_checks.values import check_spaces
from srl.testing.findings import CheckStopped


class GymnasiumProbe:
    keeps_observations = True

    def __init__(self, environment: Any, call: Caller) -> None:
        self._environment = environment
        self._call = call
        self._actions: Any = None
        self.limit: int | None = getattr(getattr(environment, "spec", None), "max_episode_steps", None)

    def check_spaces(self) -> None:
        check_spaces(self._call.findings, *self.spaces_of(""), "")

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        environment = self._environment
        return getattr(environment, "observation_space", None), getattr(environment, "action_space", None)

    def seed_actions(self, seed: int) -> None:
        # A copy: some environments create a new, unseeded space in `reset`.
        self._actions = copy.deepcopy(self._environment.action_space)
        self._actions.seed(seed)

    def reset(self, seed: int | None) -> StepResult:
        return StepResult({"": AgentResult(self._first_observation(seed))})

    def step(self) -> StepResult:
        observation, reward, terminated, truncated, _ = self._act()
        result = AgentResult(observation, reward, terminated, truncated)
        return StepResult({"": result}, bool(np.any(terminated)) or bool(np.any(truncated)))

    def finish(self) -> None:
        finish(self._environment, self._call)

    def _first_observation(self, seed: int | None) -> Any:
        if seed is None:
            result = self._call("reset()", self._environment.reset)
        else:
            result = self._call("reset(seed=...)", self._environment.reset, seed=seed)
        return unpack_reset(self._call.findings, result)

    def _act(self) -> tuple[Any, ...]:
        result = act(self._call, self._environment.step, self._actions.sample())
        return unpack_step(self._call.findings, result)


class VectorProbe(GymnasiumProbe):
    """A vector environment, in which each copy counts as an agent. It resets its copies itself and may reuse arrays."""

    keeps_observations = False

    def __init__(self, environment: Any, call: Caller) -> None:
        super().__init__(environment, call)
        self._names = [f"copy {index}" for index in range(environment.num_envs)]

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        return self._environment.single_observation_space, self._environment.single_action_space

    def reset(self, seed: int | None) -> StepResult:
        observations = self._split(self._first_observation(seed))
        return StepResult({name: AgentResult(one) for name, one in zip(self._names, observations, strict=True)})

    def step(self) -> StepResult:
        observations, *numbers, _ = self._act()
        for name, array in zip(("reward", "terminated", "truncated"), numbers, strict=True):
            self._check_batch(name, array)
        columns = zip(self._names, self._split(observations), *numbers, strict=True)
        return StepResult({name: AgentResult(*values) for name, *values in columns})

    def _check_batch(self, name: str, array: Any) -> None:
        expected = (len(self._names),)
        if not isinstance(array, np.ndarray) or array.shape != expected:
            found = f"shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            fix = "return one value for each copy"
            self._call.findings.stop(f"`{name}` to be an array of shape {expected}", found, fix)

    def _split(self, observations: Any) -> list[Any]:
        expected = f"observations of all {len(self._names)} copies"
        fix = "return an element of observation_space, the batched space"
        try:
            parts = list(iterate(self._environment.observation_space, observations))
        except Exception as error:
            self._call.findings.stop(expected, f"{error!r}", fix, error)
        if len(parts) != len(self._names):
            self._call.findings.stop(expected, f"{len(parts)} entries", fix)
        return parts


def finish(environment: Any, call: Caller) -> None:
    """Render, if the environment has a render mode, and close. Errors become findings."""
    if getattr(environment, "render_mode", None) is not None:
        with suppress(CheckStopped):
            call("render", environment.render)
    with suppress(CheckStopped):
        call("close", environment.close)
