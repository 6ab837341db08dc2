"""Small environments with known answers, named as `srl.testing.environments:tracer`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np

from srl.base.tree import Array

if TYPE_CHECKING:
    from srl.testing.multiagent_environments import DyingTeam, TurnGame

FAULTS = ("raise", "raise_in_reset", "hang", "nan", "nan_reward", "shape", "dtype", "exit", "segfault")
SEED_MODULUS = 1_000_000  # observations are float32, which counts exactly up to 2**24


class Tracer(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """The observation is (seed % 1,000,000, episode, t), where episodes and steps count from zero. The step that leads
    to `t` has reward `t`.

    Every episode has `length` steps, so its return is ``length * (length + 1) / 2``. A reset with a seed restarts the
    episode count. A reset without one keeps the last seed (-1 before the first).
    """

    def __init__(self, length: int = 5, truncate: bool = False, dtype: str = "float32") -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, SEED_MODULUS, (3,), np.dtype(dtype).type)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.length = length
        self.truncate = truncate
        self.seed = -1
        self.episode = -1
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.seed = seed % SEED_MODULUS
        self.episode = self.episode + 1 if seed is None else 0
        self.t = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.t += 1
        ended = self.t >= self.length
        return self._observe(), float(self.t), ended and not self.truncate, ended and self.truncate, {"action": action}

    def save_state(self) -> dict[str, Array]:
        return {"counters": np.array([self.seed, self.episode, self.t])}

    def restore_state(self, state: Mapping[str, Array]) -> None:
        self.seed, self.episode, self.t = state["counters"].tolist()

    def _observe(self) -> Array:
        return np.array([self.seed, self.episode, self.t], self.observation_space.dtype)


class Faulty(Tracer):
    """A tracer that fails at step `after` (the reset is step 0) of every `every`-th episode of an instance.

    With ``every=1`` each instance fails, including replacements. With ``every=2`` the first episode of each instance
    has no fault. With `once`, the path of a file that does not exist yet, only one instance in all processes fails: it
    creates the file, and instances that find the file do not fail.
    """

    def __init__(
        self,
        fault: str = "raise",
        after: int = 2,
        every: int = 1,
        once: str = "",
        hang_seconds: float = 3600.0,
        length: int = 5,
        truncate: bool = False,
    ) -> None:
        if fault not in FAULTS:
            raise ValueError(f"unknown fault {fault!r}; choose from {', '.join(FAULTS)}")
        super().__init__(length, truncate)
        self.fault = fault
        self.after = 0 if fault == "raise_in_reset" else after
        self.every = every
        self.once = once
        self.hang_seconds = hang_seconds

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        observation, info = super().reset(seed=seed)
        if self._due():
            observation, _ = self._break(observation, 0.0)
        return observation, info

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        if self._due():
            observation, reward = self._break(observation, reward)
        return observation, reward, terminated, truncated, info

    def _due(self) -> bool:
        if self.t != self.after or (self.episode + 1) % self.every != 0:
            return False
        if not self.once:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _break(self, observation: Array, reward: float) -> tuple[Array, float]:
        match self.fault:
            case "hang":
                time.sleep(self.hang_seconds)
            case "nan":
                observation = np.full_like(observation, np.nan)
            case "nan_reward":
                reward = float("nan")
            case "shape":
                observation = np.zeros(4, observation.dtype)
            case "dtype":
                observation = observation.astype(np.float64)
            case "exit":
                os._exit(3)
            case "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            case _:
                raise RuntimeError(f"failed on purpose at step {self.t} of episode {self.episode}")
        return observation, reward


class Slow(Tracer):
    """A tracer whose steps take `seconds` each."""

    def __init__(self, seconds: float = 0.01, length: int = 5, truncate: bool = False) -> None:
        super().__init__(length, truncate)
        self.seconds = seconds

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        return super().step(action)


class SlowSteps(gymnasium.Wrapper[Any, Any, Any, Any]):  # type: ignore[misc]
    """A wrapper that makes every step take `seconds` longer."""

    def __init__(self, env: gymnasium.Env[Any, Any], seconds: float) -> None:
        super().__init__(env)
        self.seconds = seconds

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        return self.env.step(action)  # type: ignore[no-any-return]


class ConstantReward(Tracer):
    """Every step has reward 1, and episodes are truncated, so that all values are ``1 / (1 - discount)``."""

    def __init__(self, length: int = 5) -> None:
        super().__init__(length, truncate=True)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, 1.0, terminated, truncated, info

    def _observe(self) -> Array:
        return np.ones(1, np.float32)


def tracer(**kwargs: Any) -> Tracer:
    return Tracer(**kwargs)


def faulty(**kwargs: Any) -> Faulty:
    return Faulty(**kwargs)


def slow(**kwargs: Any) -> Slow:
    return Slow(**kwargs)


def slow_cartpole(seconds: float = 0.001) -> SlowSteps:
    """CartPole whose steps also sleep: a task that can be learned but leaves the cores idle, for measurements on a busy
    machine."""
    return SlowSteps(gymnasium.make("CartPole-v1"), seconds)


def constant_reward(**kwargs: Any) -> ConstantReward:
    return ConstantReward(**kwargs)


def turn_game(**kwargs: Any) -> TurnGame:
    """Return the turn-based game. Like `dying_team`, it needs the extra `pettingzoo`."""
    from srl.testing.multiagent_environments import TurnGame

    return TurnGame(**kwargs)


def dying_team(**kwargs: Any) -> DyingTeam:
    from srl.testing.multiagent_environments import DyingTeam

    return DyingTeam(**kwargs)
