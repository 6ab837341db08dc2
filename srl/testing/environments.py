"""Small environments with known answers, named as `srl.testing.environments:Tracer`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from srl.base.tree import Array

SEED_MODULUS = 1_000_000  # observations are float32, which is exact for integers up to 2**24


class Tracer(gymnasium.Env[Array, int]):  # type: ignore[misc]
    """Environment that observes (seed % 1,000,000, episode, t), where episodes and steps count from zero. The step that
    leads to `t` has reward `t`.

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


def slow_cartpole(seconds: float = 0.001) -> SlowSteps:
    """Create a CartPole whose steps also sleep: a learnable task that leaves cores idle, for measurements on a busy
    machine."""
    return SlowSteps(gymnasium.make("CartPole-v1"), seconds)
