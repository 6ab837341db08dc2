"""Vector environments and factories, each named as `support.tracers:function`, and a check of their rows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from srl.api.lanes import Lanes, TimeStep
from srl.testing.environments import Tracer
from support.trees import leaf


def next_step(num_envs: int, length: int = 3, truncate: bool = False) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Tracer(length, truncate)] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)


def same_step(num_envs: int, length: int = 3, truncate: bool = False) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Tracer(length, truncate)] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def disabled(num_envs: int, length: int = 3, truncate: bool = False) -> SyncVectorEnv:
    return SyncVectorEnv([lambda: Tracer(length, truncate)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)


def chosen(num_envs: int, autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP) -> SyncVectorEnv:
    """Return a vector environment with an option for the mode, like those of Gymnasium and ALE."""
    return SyncVectorEnv([lambda: Tracer(3)] * num_envs, autoreset_mode=autoreset_mode)


class IntegerFlags(SyncVectorEnv):
    """A vector environment whose ends of episodes are 0 and 1."""

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(actions)
        return observation, reward, terminated.astype(np.int8), truncated.astype(np.int64), info


def integer_flags(num_envs: int, mode: str) -> SyncVectorEnv:
    return IntegerFlags([lambda: Tracer(3)] * num_envs, autoreset_mode=AutoresetMode[mode])


class BreakingVector(SyncVectorEnv):
    """A vector environment that raises, or returns NaN in lane 1, at its fourth step."""

    def __init__(self, num_envs: int, fault: str = "raise") -> None:
        super().__init__([lambda: Tracer(3)] * num_envs)
        self.fault, self.count = fault, 0

    def step(self, actions: Any) -> Any:
        self.count += 1
        if self.count == 4 and self.fault == "raise":
            raise RuntimeError("the vector is broken")
        observation, *rest = super().step(actions)
        if self.count == 4:
            observation[1] = np.nan
        return observation, *rest


class Echo(gymnasium.Env):
    """An environment whose observation contains the last action, under several keys."""

    def __init__(self, action_space: spaces.Space) -> None:
        self.action_space = action_space
        self.observation_space = spaces.Dict(
            action=spaces.Box(-np.inf, np.inf, (int(np.prod(action_space.shape, dtype=int)),), np.float64),
            pair=spaces.Tuple((spaces.Discrete(5, start=3), spaces.MultiBinary((2, 2)))),
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._observe(np.zeros(self.action_space.shape)), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return self._observe(action), 0.0, False, False, {}

    def _observe(self, action: Any) -> dict[str, Any]:
        flags = np.array([[1, 0], [0, 1]], np.int8)
        return {"action": np.asarray(action, np.float64).reshape(-1), "pair": (np.int64(7), flags)}


def echo_box() -> Echo:
    return Echo(spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([1.0, 2.0], np.float32)))


def echo_discrete() -> Echo:
    return Echo(spaces.Discrete(3, start=-1))


def echo_grid() -> Echo:
    return Echo(spaces.MultiDiscrete([[2, 3], [4, 5]]))


def echo_limited() -> gymnasium.Env:
    return gymnasium.wrappers.TimeLimit(echo_discrete(), max_episode_steps=4)


def not_an_environment() -> int:
    return 3


def unmakeable() -> gymnasium.Env:
    raise OSError("no simulator here")


number = 3


def step(lanes: Lanes, action: int = 0) -> TimeStep:
    (time_step,) = lanes.step((np.full(lanes.spec.num_copies, action),))
    return time_step


def assert_consecutive(lanes: Lanes, time_step: TimeStep, steps: int, lengths: int, begins_at: int = 0) -> int:
    """Every pair of rows of a lane is one real transition of one episode, or is flagged; returns the episodes seen."""
    num_first = 0
    for _ in range(steps):
        before, acting = leaf(time_step.observation).copy(), time_step.acting.copy()
        time_step = step(lanes)
        for lane in range(lanes.spec.num_copies):
            seed, episode, t = before[lane]
            now = leaf(time_step.observation)[lane].tolist()
            if acting[lane]:
                assert now == [seed, episode, t + 1]
                assert time_step.reward[lane] == t + 1
                assert not time_step.first[lane]
                assert time_step.terminated[lane] == (t + 1 == lengths)
                assert time_step.acting[lane] == (t + 1 != lengths)
            else:
                assert t == lengths
                assert now[0] == seed
                assert now[1] > episode
                assert now[2] == begins_at
                assert time_step.first[lane]
                assert time_step.acting[lane]
                assert time_step.reward[lane] == 0
                num_first += 1
    return num_first
