"""Gymnasium's native vector environments as lanes; their arrays are passed on without copying."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from srl.api.control import OptionValue
from srl.api.lanes import GoalFunctions, Lanes, LaneSpec, TimeStep
from srl.base.errors import raised, traceback_of
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array, Tree
from srl.environments.adapters.autoreset import FACTS, NATIVE, WAITING, flags, next_step
from srl.environments.adapters.environment_state import environment_state, restore_environment
from srl.environments.adapters.goals import goal_functions
from srl.environments.adapters.info_facts import InfoFacts
from srl.environments.adapters.masks import (
    MASK_KEY,
    MaskableConfig,
    from_info,
    gives_mask,
    mask_check,
    masked_team,
)
from srl.environments.conversion import OBSERVATION, action_decoder, observation_buffers, observation_encoder
from srl.environments.factories import Factory, copy_seeds, locate, parameters_of
from srl.environments.failures import EnvironmentBroken, all_finite, broken_lanes, count_failure, finite_check
from srl.environments.spaces import from_gymnasium

FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class VectorConfig(MaskableConfig):
    """A Gymnasium id with a native vector environment, or the name of a function that takes `num_envs`."""

    def build(self, num_copies: int) -> VectorLanes:
        key = self.mask_key

        def find_mask() -> bool:
            return gives_mask(lambda: next_step(self.make(1), key), key) if self.info_mask is None else self.info_mask

        return VectorLanes(
            self.name,
            lambda: next_step(without_action_check(self.make(num_copies)), key),
            find_mask,
            key,
            self.log_info,
        )

    def build_rendered(self) -> Lanes:
        """Make one plain copy that renders frames: vector environments render all copies or none."""
        if self.located:
            raise ValueError(
                f"{self.name} makes vector environments, which cannot be recorded; a function that returns a "
                "gymnasium.Env can"
            )
        from srl.environments.adapters.gymnasium import GymnasiumConfig

        plain = GymnasiumConfig(self.name, self.kwargs, info_mask=self.info_mask, mask_key=self.mask_key)
        return plain.build_rendered()

    def goal_functions(self) -> GoalFunctions:
        return goal_functions(self.name, lambda: self.make(1))

    def make(self, num_copies: int) -> Any:
        if self.located:
            factory = locate(self.name)
            environment = factory(num_envs=num_copies, **_next_step(factory, self.kwargs))
            if not isinstance(environment, VectorEnv):
                raise TypeError(
                    f"{self.name} takes num_envs but returned {type(environment).__name__}, not a VectorEnv"
                )
        else:
            entry_point = registered(self.name).vector_entry_point
            factory = entry_point if callable(entry_point) else load_env_creator(entry_point)
            environment = gymnasium.make_vec(
                self.name, num_copies, "vector_entry_point", **_next_step(factory, self.kwargs)
            )
        return environment


def registered(name: str) -> Any:
    """Return Gymnasium's spec for an id, after importing the module that registers it, if the id names one."""
    module, _, last = name.rpartition(":")
    if module:
        importlib.import_module(module)
    return gymnasium.spec(last)


def _next_step(factory: Factory, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, with autoreset mode NEXT_STEP as the default if the environment has that option."""
    chosen = {"autoreset_mode": AutoresetMode.NEXT_STEP} if "autoreset_mode" in parameters_of(factory) else {}
    return {**chosen, **kwargs}


def without_action_check(environment: Any) -> Any:
    """Disable the action check in `step` of Gymnasium's native vector environments.

    The check takes a fifth of CartPole's time and is unnecessary: our actions come from a network head made for the
    space, and the decoder clips boxes.
    """
    inner = environment.unwrapped
    kind = type(inner.action_space)
    if kind in (spaces.Discrete, spaces.MultiDiscrete, spaces.Box):
        unchecked = copy(inner.action_space)
        unchecked.__class__ = type(f"Unchecked{kind.__name__}", (kind,), {"contains": lambda self, action: True})
        inner.action_space = unchecked
    return environment


class VectorLanes(Lanes):
    """A vector environment that follows the next-step rule (see :mod:`srl.environments.adapters.autoreset`).

    Its copies cannot be replaced individually: when one fails, all are replaced, and every lane is reported as failed.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], Any],
        find_mask: Callable[[], bool] = lambda: False,
        mask_key: str = MASK_KEY,
        log_info: tuple[str, ...] = (),
    ) -> None:
        """`find_mask` returns whether the infos contain an action mask."""
        try:
            environment = make()
        except Exception as error:
            raise EnvironmentBroken(f"environment {name} could not be created: {raised(error)}") from error
        self._name, self._make, self._environment, self._mask_key = name, make, environment, mask_key
        self._options: dict[str, OptionValue] = {}  # attributes set during the run
        self._num_lanes = int(environment.num_envs)
        self._info_facts = InfoFacts(log_info, self._num_lanes)
        observation = from_gymnasium(environment.single_observation_space, "observation")
        action = from_gymnasium(environment.single_action_space, "action")
        self._encode, self._decode = observation_encoder(observation), action_decoder(action)
        team, self._num_choices = masked_team("agent", observation, action, mask_key, find_mask)
        self._check_masks = mask_check(team.observation, action, mask_key)
        self.spec = LaneSpec(name, self._num_lanes, (team,))
        self._finite = finite_check(observation_buffers(team.observation, self._num_lanes))
        self._seeds = copy_seeds(0)
        self._seed = 0
        self._steps = 0  # since the environment was seeded
        self._failures_in_a_row = 0
        self._ended: Array = np.zeros(self._num_lanes, bool)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._seeds = copy_seeds(seed)
        try:
            return (self._restart(next(self._seeds)),)
        except Exception as error:
            return self._replace(traceback_of(error))

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        self._steps += 1
        try:
            native, reward, terminated, truncated, info = self._environment.step(self._decode(actions[0]))
            observation = self._encode(native, self._num_lanes)
            if self._num_choices:
                observation = self._with_mask(observation, info)
            if reward.dtype is not FLOAT32:
                reward = reward.astype(FLOAT32)
            terminated, truncated = flags(terminated), flags(truncated)
        except EnvironmentBroken:
            raise
        except Exception as error:
            return self._replace(traceback_of(error))
        if not self._finite(observation, reward):
            broken = broken_lanes(observation, reward)
            return self._replace("\n".join(f"lane {lane}: {what}" for lane, what in broken.items()))
        ended = terminated | truncated
        if self._check_masks is not None and (blocked := self._check_masks(observation, ~ended)):
            return self._replace("\n".join(f"lane {lane}: {what}" for lane, what in blocked.items()))
        first, self._ended = self._ended, ended
        time_step = TimeStep(observation, reward, terminated, truncated, ~self._ended, first)
        if info:
            self._apply(info, time_step)
        return (time_step,)

    def _with_mask(self, observation: Tree, info: Mapping[str, Any]) -> Tree:
        mask = from_info(info, self._num_choices, self._num_lanes, key=self._mask_key)
        parts = observation if isinstance(observation, Mapping) else {OBSERVATION: observation}
        return {**parts, self._mask_key: mask}

    def _apply(self, info: Mapping[str, Any], time_step: TimeStep) -> None:
        """Apply the infos that our own wrappers add, and take statistics of episodes from the others."""
        if self._ended.any():
            native = info.get(NATIVE, info)
            time_step.facts = {**self._info_facts.from_vector(native, self._ended), **info.get(FACTS, {})}
        if WAITING in info:
            waiting = info[WAITING]
            time_step.acting &= ~waiting
            time_step.first = time_step.first & ~waiting
            self._ended = self._ended | waiting

    def set_option(self, name: str, value: OptionValue) -> None:
        self._set(name, value)
        self._options[name] = value

    def _set(self, name: str, value: OptionValue) -> None:
        environment = self._environment.unwrapped
        if hasattr(environment, "get_attr"):
            environment.get_attr(name)  # raises AttributeError; `set_attr` would add an attribute that nothing reads
            environment.set_attr(name, value)
        else:
            getattr(environment, name)
            setattr(environment, name, value)

    def state(self) -> State:
        return {
            "ended": self._ended.copy(),
            "counters": pack([self._seeds.following, self._seed, self._steps, self._failures_in_a_row]),
            **under("environment", environment_state(self._environment)),
        }

    def restore(self, state: State) -> None:
        self._ended = state["ended"].copy()
        self._seeds.following, self._seed, self._steps, self._failures_in_a_row = unpack(state["counters"])
        self._environment.reset(seed=self._seed)
        restore_environment(self._environment, part(state, "environment"))

    def close(self) -> None:
        if self._environment is not None:
            with suppress(Exception):  # Closing an environment may fail.
                self._environment.close()
            self._environment = None

    def _restart(self, seed: int) -> TimeStep:
        self._seed, self._steps = seed, 0
        native, info = self._environment.reset(seed=seed)
        observation = self._encode(native, self._num_lanes)
        if self._num_choices:
            observation = self._with_mask(observation, info)
        self._ended = np.zeros(self._num_lanes, bool)
        no_lane, all_lanes = np.zeros(self._num_lanes, bool), np.ones(self._num_lanes, bool)
        reward = np.zeros(self._num_lanes, np.float32)
        if not all_finite(observation):
            raise ValueError("; ".join(broken_lanes(observation, reward).values()))
        if self._check_masks is not None and (blocked := self._check_masks(observation, all_lanes)):
            raise ValueError("; ".join(f"lane {lane}: {what}" for lane, what in blocked.items()))
        return TimeStep(observation, reward, no_lane, no_lane, all_lanes, all_lanes)

    def _replace(self, report: str) -> tuple[TimeStep, ...]:
        where = f"vector environment {self._name}, seed {self._seed}, step {self._steps} since the seed"
        self._failures_in_a_row = count_failure(self._failures_in_a_row, self._steps <= 1, f"{where}: {report}")
        with suppress(Exception):
            self._environment.close()
        try:
            self._environment = self._make()
            for name, value in self._options.items():
                self._set(name, value)
            time_step = self._restart(next(self._seeds))
        except Exception as error:
            raise EnvironmentBroken(
                f"{where}: failed, and its replacement failed, too ({raised(error)}). First failure:\n{report}"
            ) from error
        time_step.failed = np.ones(self._num_lanes, bool)
        time_step.failures = (f"{where}: failed; all its lanes were replaced (new seed {self._seed}):\n{report}",)
        return (time_step,)
