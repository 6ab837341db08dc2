"""Plain Gymnasium environments as lanes: copies are stepped one by one; everything else works on arrays."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from srl.api.block import SEED, SEED_EPISODE
from srl.api.control import OptionValue
from srl.api.lanes import GoalFunctions, Lanes, LanesConfig, LaneSpec, TimeStep, named_texts
from srl.api.spaces import Dict, Space
from srl.base.errors import raised, traceback_of
from srl.base.state import State, pack, part, under, unpack
from srl.base.tree import Array, Tree, leaves
from srl.environments.adapters import minigrid
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
from srl.environments.adapters.wrappers import RepeatAction, SmallerImages, set_attribute
from srl.environments.conversion import (
    OBSERVATION,
    lane_decoder,
    observation_buffers,
    observation_leaves,
    rendered_frame,
)
from srl.environments.factories import copy_seeds, locate
from srl.environments.failures import (
    VALID,
    EnvironmentBroken,
    all_finite,
    broken_lanes,
    check_made,
    check_result,
    count_failure,
    failed_lanes,
    not_a_number,
)
from srl.environments.spaces import from_gymnasium


@dataclass(frozen=True)
class GymnasiumConfig(MaskableConfig):
    """A Gymnasium id, or the name of a function that returns an environment (see :mod:`srl.environments.factories`)."""

    max_episode_steps: int | None = None
    """Time limit in steps, in addition to the environment's own."""
    action_repeat: int = 1
    """Number of environment steps per action."""
    image_size: int | None = None
    """Side length of the images in observations. Default: their own."""
    grayscale: bool = False
    """Whether to remove the colors of images."""

    def named_code(self) -> tuple[str, ...]:
        if self.located and self.name == minigrid.FACTORY:
            options = dict(self.kwargs)
            return (*minigrid.named_code(options.pop("id", "")), *named_texts(options))
        return super().named_code()

    def episode_limit(self) -> int | None:
        limit = self.max_episode_steps or super().episode_limit()  # in environment steps
        return limit and -(-limit // self.action_repeat)

    def can_repeat_actions(self) -> bool:
        return True

    def with_action_repeat(self, times: int) -> GymnasiumConfig:
        return replace(self, action_repeat=times)

    def can_shrink_images(self) -> bool:
        return True

    def with_images(self, size: int | None, grayscale: bool) -> GymnasiumConfig:
        return replace(self, image_size=size, grayscale=grayscale)

    def build(self, num_copies: int) -> Lanes:
        if self.located and (game := self._multi_agent()) is not None:
            game = game.with_images(self.image_size, self.grayscale)
            return game.with_action_repeat(self.action_repeat).build(num_copies)
        return self._lanes(self.make, num_copies)

    def _multi_agent(self) -> LanesConfig | None:
        """Call the function; if it returns a PettingZoo environment, return the config for it, otherwise None."""
        factory = locate(self.name)
        if "pettingzoo" not in sys.modules:
            return None  # The function's module has not imported it.
        from srl.environments.pettingzoo.config import PettingZooConfig, is_pettingzoo

        try:
            environment = factory(**self.kwargs)
        except Exception:
            return None  # The lanes will raise the same error and report it.
        found = is_pettingzoo(environment)
        with suppress(Exception):
            environment.close()
        return PettingZooConfig(self.name, self.kwargs, self.mask_key, self.log_info) if found else None

    def build_rendered(self) -> GymnasiumLanes:
        """Make one copy that renders frames."""
        rendered = replace(self, kwargs={**self.kwargs, "render_mode": "rgb_array"})
        try:
            return self._lanes(rendered.make, 1)
        except EnvironmentBroken as error:
            raise ValueError(f"{self.name} cannot be recorded with render_mode='rgb_array': {error}") from error

    def goal_functions(self) -> GoalFunctions:
        return goal_functions(self.name, self.make)

    def make(self) -> Any:
        """Make one copy."""
        environment = self._make()
        if self.image_size is not None or self.grayscale:
            environment = SmallerImages(environment, self.image_size, self.grayscale)
        if self.action_repeat == 1:
            return environment
        limit = self.max_episode_steps  # counts environment steps, not actions
        return RepeatAction(environment if limit is None else TimeLimit(environment, limit), self.action_repeat)

    def _lanes(self, make: Callable[[], Any], num_copies: int) -> GymnasiumLanes:
        limit = self.max_episode_steps if self.action_repeat == 1 else None
        return GymnasiumLanes(self.name, make, num_copies, limit, self.info_mask, self.mask_key, self.log_info)

    def _make(self) -> Any:
        if not self.located:
            self._log_mujoco_warnings()
            return gymnasium.make(self.name, disable_env_checker=True, **self.kwargs)
        environment = locate(self.name)(**self.kwargs)
        check_made(environment)
        return environment

    def _log_mujoco_warnings(self) -> None:
        """Keep MuJoCo warnings from Gymnasium's own tasks off the terminal."""
        spec = gymnasium.registry.get(self.name)
        if spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
            from srl.environments.mujoco.callbacks import log_warnings

            log_warnings()


class GymnasiumLanes(Lanes):
    """Copies of one environment in this process. A copy that fails is replaced; only its own lane loses its episode."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Any],
        num_copies: int,
        max_episode_steps: int | None = None,
        info_mask: bool | None = None,
        mask_key: str = MASK_KEY,
        log_info: tuple[str, ...] = (),
    ) -> None:
        self._name, self._make, self._mask_key = name, make, mask_key
        self._info_facts = InfoFacts(log_info, num_copies)
        self._infos: list[Mapping[str, Any]] = [{}] * num_copies  # of the last step
        self._limit = max_episode_steps
        self._options: dict[str, OptionValue] = {}  # attributes set during the run
        self._environments: list[Any] = []
        self._bare: list[Any] = []  # the same, without the wrappers that the lanes replace
        try:
            for _ in range(num_copies):
                self._add(make())
        except Exception as error:
            self.close()
            raise EnvironmentBroken(f"environment {name} could not be created: {raised(error)}") from error
        example = self._bare[0]
        observation = from_gymnasium(example.observation_space, "observation")
        action = from_gymnasium(example.action_space, "action")
        team, self._num_choices = masked_team(
            "agent",
            observation,
            action,
            mask_key,
            lambda: gives_mask(make, mask_key) if info_mask is None else info_mask,
        )
        self._check_masks = mask_check(team.observation, action, mask_key)
        self.spec = LaneSpec(name, num_copies, (team,))
        self._decode = lane_decoder(action)
        self._observation = observation_buffers(team.observation, num_copies)  # [L, ...]
        buffers: Any = self._observation
        bare = self._num_choices and not isinstance(observation, Dict)
        self._write = _writer(observation, buffers[OBSERVATION] if bare else buffers)
        self._reward = np.zeros(num_copies, np.float32)
        self._terminated, self._truncated, self._first = np.zeros((3, num_copies), bool)
        self._ended = np.zeros(num_copies, bool)
        self._elapsed = np.zeros(num_copies, np.int64)  # steps in the episode
        self._seeds = copy_seeds(0)
        self._seed = [0] * num_copies
        self._episodes = [0] * num_copies  # since the copy was seeded
        self._failures_in_a_row = [0] * num_copies

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._seeds = copy_seeds(seed)
        self._clear()
        self._first[:] = True
        self._elapsed[:] = 0
        failures: dict[int, str] = {}
        for copy, environment in enumerate(self._bare):
            self._seed[copy], self._episodes[copy] = next(self._seeds), 0
            result: Any = VALID
            try:
                result = observation, info = environment.reset(seed=self._seed[copy])
                self._write(copy, observation)
                if self._num_choices:
                    self._write_mask(copy, info)
            except Exception as error:
                check_result(self._name, result, True, error)
                failures[copy] = traceback_of(error)
        return self._time_step(failures)

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        rewards, terminations, truncations, write = self._reward, self._terminated, self._truncated, self._write
        starting, masked = self._ended, self._num_choices > 0
        self._clear()
        self._first[:] = starting
        self._elapsed += 1
        self._elapsed[starting] = 0
        failures: dict[int, str] = {}
        copies = zip(self._bare, self._decode(actions[0]), starting.tolist(), strict=True)
        for copy, (environment, action, start) in enumerate(copies):
            result: Any = VALID
            try:
                if start:
                    self._episodes[copy] += 1
                    result = observation, info = environment.reset()
                else:
                    result = observation, reward, terminated, truncated, info = environment.step(action)
                    self._infos[copy] = info
                    try:
                        rewards[copy] = reward
                    except (TypeError, ValueError) as error:
                        raise EnvironmentBroken(not_a_number(self._name, reward)) from error
                    if terminated:
                        terminations[copy] = True
                    if truncated:
                        truncations[copy] = True
                write(copy, observation)
                if masked:
                    self._write_mask(copy, info)
            except EnvironmentBroken:
                raise
            except Exception as error:
                check_result(self._name, result, start, error)
                failures[copy] = traceback_of(error)
        if self._limit is not None:
            truncations |= self._elapsed >= self._limit
        return self._time_step(failures)

    def set_option(self, name: str, value: OptionValue) -> None:
        for environment in self._environments:
            set_attribute(environment, name, value)
        self._options[name] = value

    def state(self) -> State:
        state = {
            "ended": self._ended.copy(),
            "elapsed": self._elapsed.copy(),
            "counters": pack([self._seeds.following, self._seed, self._episodes, self._failures_in_a_row]),
        }
        for copy, environment in enumerate(self._bare):
            state |= under(f"copy/{copy}", environment_state(environment))
        return state

    def restore(self, state: State) -> None:
        self._ended, self._elapsed = state["ended"].copy(), state["elapsed"].copy()
        self._seeds.following, self._seed, self._episodes, self._failures_in_a_row = unpack(state["counters"])
        for copy, environment in enumerate(self._bare):
            environment.reset(seed=self._seed[copy])
            restore_environment(environment, part(state, f"copy/{copy}"))

    def render(self) -> Array:
        """Return the current frame of the first copy."""
        return rendered_frame(self._name, self._bare[0].render)

    def close(self) -> None:
        for environment in self._environments:
            with suppress(Exception):  # Closing an environment may fail.
                environment.close()
        self._environments.clear()
        self._bare.clear()

    def _clear(self) -> None:
        for array in (self._reward, self._terminated, self._truncated):
            array.fill(0)

    def _time_step(self, failures: dict[int, str]) -> tuple[TimeStep, ...]:
        if not (all_finite(self._reward) and all_finite(self._observation)):
            failures = broken_lanes(self._observation, self._reward) | failures
        if self._check_masks is not None:
            acting = ~(self._terminated | self._truncated)
            failures = self._check_masks(self._observation, acting) | failures
        failed = failed_lanes(failures, len(self._bare))
        reports = tuple(self._replace(copy, report) for copy, report in failures.items())
        ended = self._terminated | self._truncated
        self._ended = ended
        time_step = TimeStep(
            self._observation, self._reward, self._terminated, self._truncated, ~ended, self._first, failed, reports
        )
        if ended.any():
            facts = self._info_facts.from_lanes((copy, self._infos[copy]) for copy in np.flatnonzero(ended).tolist())
            time_step.facts = {SEED: np.array(self._seed), SEED_EPISODE: np.array(self._episodes), **facts}
        return (time_step,)

    def _write_mask(self, copy: int, info: Mapping[str, Any]) -> None:
        buffers: Any = self._observation
        buffers[self._mask_key][copy] = from_info(info, self._num_choices, key=self._mask_key)

    def _add(self, environment: Any) -> None:
        self._environments.append(environment)
        bare, limit = unwrapped(environment)
        self._bare.append(bare)
        if limit is not None:
            self._limit = limit if self._limit is None else min(limit, self._limit)

    def _replace(self, copy: int, report: str) -> str:
        """Replace a failed environment with a new one, reset it, and return a report."""
        where = (
            f"environment {self._name}, copy {copy}, seed {self._seed[copy]}, episode {self._episodes[copy]} of that "
            f"seed, step {self._elapsed[copy]}"
        )
        new = self._episodes[copy] == 0 and self._elapsed[copy] <= 1
        self._failures_in_a_row[copy] = count_failure(self._failures_in_a_row[copy], new, f"{where}: {report}")
        with suppress(Exception):
            self._environments[copy].close()
        seed = next(self._seeds)
        try:
            environment = self._make()
            for name, value in self._options.items():
                set_attribute(environment, name, value)
            self._environments[copy] = environment
            self._bare[copy], _ = unwrapped(environment)
            observation, info = self._bare[copy].reset(seed=seed)
            self._write(copy, observation)
            if self._num_choices:
                self._write_mask(copy, info)
        except Exception as error:
            raise EnvironmentBroken(
                f"{where}: failed, and its replacement failed, too ({raised(error)}). First failure:\n{report}"
            ) from error
        self._seed[copy], self._episodes[copy], self._elapsed[copy] = seed, 0, 0
        self._reward[copy] = 0
        self._terminated[copy] = self._truncated[copy] = False
        self._first[copy] = True
        return f"{where}: failed and was replaced (new seed {seed}):\n{report}"


def unwrapped(environment: Any) -> tuple[Any, int | None]:
    """Strip the outer wrappers whose work the lanes do on arrays. Return the environment and its time limit, if any."""
    limit: int | None = None
    while type(environment) in (TimeLimit, OrderEnforcing, PassiveEnvChecker):
        if type(environment) is TimeLimit:
            steps = int(environment._max_episode_steps)
            limit = steps if limit is None else min(limit, steps)
        environment = environment.env
    return environment, limit


def _writer(space: Space, buffers: Tree) -> Callable[[int, Any], None]:
    """Return a function that writes a native observation into a lane's row, or raises ValueError if it does not fit."""
    pairs = [(leaf, dict(leaves(buffers))[leaf.path]) for leaf in observation_leaves(space)]
    if len(pairs) > 1 or pairs[0][0].path:

        def write_leaves(copy: int, observation: Any) -> None:
            for leaf, buffer in pairs:
                buffer[copy] = leaf.encode(leaf.find(observation))

        return write_leaves
    ((leaf, buffer),) = pairs
    kinds: str = "fiub" if leaf.dtype == "float32" else "iub"
    direct = leaf.native_shape if leaf.start is None and leaf.native_shape == leaf.shape else None

    def write(copy: int, observation: Any) -> None:
        if type(observation) is np.ndarray and observation.shape == direct and observation.dtype.kind in kinds:
            buffer[copy] = observation
        else:
            native: Array = leaf.encode(leaf.find(observation))
            buffer[copy] = native

    return write
