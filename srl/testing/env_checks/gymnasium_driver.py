"""Drivers of Gymnasium environments, single and vector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from gymnasium.vector.utils import iterate

from srl.testing.env_checks.driver import AgentResult, Caller, CheckStopped, StepResult, act, unpack_reset, unpack_step
from srl.testing.env_checks.values import check_spaces


class GymnasiumProbe:
    keeps_observations = True

    def __init__(self, environment: Any, call: Caller) -> None:
        self._environment = environment
        self._call = call
        spec = getattr(environment, "spec", None)
        self.limit: int | None = getattr(spec, "max_episode_steps", None)

    def check_spaces(self) -> None:
        observation, action = self.spaces_of("")
        check_spaces(self._call.findings, observation, action, "")

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        environment = self._environment
        return getattr(environment, "observation_space", None), getattr(environment, "action_space", None)

    def seed_actions(self, seed: int) -> None:
        self._environment.action_space.seed(seed)

    def reset(self, seed: int | None) -> StepResult:
        options = {} if seed is None else {"seed": seed}
        observation = unpack_reset(self._call.findings, self._call(_reset(options), self._environment.reset, **options))
        return StepResult({"": AgentResult(observation)})

    def step(self) -> StepResult:
        result = act(self._call, self._environment.step, self._environment.action_space.sample())
        observation, reward, terminated, truncated, _ = unpack_step(self._call.findings, result)
        reception = AgentResult(observation, reward, terminated, truncated)
        return StepResult({"": reception}, bool(np.any(terminated)) or bool(np.any(truncated)))

    def finish(self) -> None:
        finish(self._environment, self._call)


class VectorProbe:
    """A vector environment, in which each copy counts as an agent. It resets its copies itself, and may reuse its
    arrays."""

    keeps_observations = False

    def __init__(self, environment: Any, call: Caller) -> None:
        self._environment = environment
        self._call = call
        self._names = [f"copy {copy}" for copy in range(environment.num_envs)]
        self.limit: int | None = getattr(getattr(environment, "spec", None), "max_episode_steps", None)

    def check_spaces(self) -> None:
        observation, action = self.spaces_of("")
        check_spaces(self._call.findings, observation, action, "")

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        return self._environment.single_observation_space, self._environment.single_action_space

    def seed_actions(self, seed: int) -> None:
        self._environment.action_space.seed(seed)

    def reset(self, seed: int | None) -> StepResult:
        options = {} if seed is None else {"seed": seed}
        observations = unpack_reset(
            self._call.findings, self._call(_reset(options), self._environment.reset, **options)
        )
        return StepResult(
            {name: AgentResult(one) for name, one in zip(self._names, self._split(observations), strict=True)}
        )

    def step(self) -> StepResult:
        result = act(self._call, self._environment.step, self._environment.action_space.sample())
        observations, *numbers, _ = unpack_step(self._call.findings, result)
        for name, array in zip(("reward", "terminated", "truncated"), numbers, strict=True):
            self._check_batch(name, array)
        columns = zip(self._names, self._split(observations), *numbers, strict=True)
        return StepResult({name: AgentResult(*values) for name, *values in columns})

    def finish(self) -> None:
        finish(self._environment, self._call)

    def _check_batch(self, name: str, array: Any) -> None:
        expected = (len(self._names),)
        if not isinstance(array, np.ndarray) or array.shape != expected:
            found = f"shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
            self._call.findings.error(
                f"`{name}` to be an array of shape {expected}", found, "return one value for each copy"
            )
            raise CheckStopped

    def _split(self, observations: Any) -> list[Any]:
        try:
            parts = list(iterate(self._environment.observation_space, observations))
        except Exception as error:
            self._stop(f"{error!r}", error)
        if len(parts) != len(self._names):
            self._stop(f"{len(parts)} entries", None)
        return parts

    def _stop(self, found: str, cause: Exception | None) -> NoReturn:
        expected = f"observations of all {len(self._names)} copies"
        self._call.findings.error(expected, found, "return an element of observation_space, the batched space")
        raise CheckStopped from cause


def _reset(options: dict[str, Any]) -> str:
    return "reset(seed=...)" if options else "reset()"


def finish(environment: Any, call: Caller) -> None:
    if getattr(environment, "render_mode", None) is not None:
        _attempt(call, "render", environment.render)
    _attempt(call, "close", environment.close)


def _attempt(call: Caller, what: str, function: Callable[[], Any]) -> None:
    """Report a failure and continue."""
    try:
        call(what, function)
    except CheckStopped:
        return
