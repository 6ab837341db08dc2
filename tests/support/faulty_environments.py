"""Environments that fail on purpose, everywhere or only in worker processes, and environments of many spaces."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Any

import gymnasium
import numpy as np

from srl.base.tree import Array
from srl.testing.environments import Slow, Tracer

FAULTS = ("raise", "raise_in_reset", "hang", "nan", "nan_reward", "shape", "dtype", "exit", "segfault")


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


class Loud(Slow):
    """An environment that prints at every step in workers; the output of a test's command is not read until it ends."""

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if sys.argv[0].startswith("srl-worker"):
            print("x" * 2000)
        return super().step(action)


class Broken(Tracer):
    """Every copy in a worker process fails at its `after`-th step, counted over episodes. With `once`, a directory,
    each of several faults ("raise nan") occurs once, in the order given, in the first copy that reaches that step."""

    def __init__(self, fault: str, after: int = 50, once: str = "") -> None:
        super().__init__()
        self.faults, self.after, self.once = fault.split(), after, once
        self.steps = 0

    def step(self, action):
        self.steps += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps % self.after == 0 and sys.argv[0].startswith("srl-worker"):
            observation = self._break(observation, self._fault())
        return observation, reward, terminated, truncated, info

    def _fault(self) -> str:
        if not self.once:
            return self.faults[0]
        for fault in self.faults:
            try:
                os.close(os.open(f"{self.once}/{fault}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            return fault
        return ""

    def _break(self, observation, fault):
        match fault:
            case "raise":
                raise RuntimeError("the simulator lost its mind")
            case "hang":
                hang_forever()
            case "nan":
                return observation * np.nan
            case "shape":
                return np.zeros(4, np.float32)
            case "exit":
                os._exit(0)
            case "system_exit":
                sys.exit(0)
            case "segfault":
                ctypes.string_at(0)
        return observation


def hang_forever() -> None:
    """Block without an end, which is the fault."""
    while True:
        signal.pause()


def make(**kwargs) -> Broken:
    return Broken(**kwargs)


def unsupported() -> Tracer:
    environment = Tracer()
    environment.action_space = gymnasium.spaces.Graph(gymnasium.spaces.Discrete(2), None)
    return environment


class Spaces(gymnasium.Env):
    """Any action and observation space; each step earns 1."""

    def __init__(self, action: str = "discrete", observation: str = "box") -> None:
        spaces = gymnasium.spaces
        self.action_space = {
            "discrete": spaces.Discrete(3, start=1),
            "multidiscrete": spaces.MultiDiscrete([2, 3]),
            "multibinary": spaces.MultiBinary(3),
            "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
        }[action]
        self.observation_space = {
            "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
            "dict": spaces.Dict(
                {"position": spaces.Box(-1.0, 1.0, (2,), np.float32), "mode": spaces.Discrete(4), "far": spaces.Box(
                    0, 255, (5,), np.uint8)}
            ),
            "discrete": spaces.Discrete(7),
            "image": spaces.Box(0, 255, (4, 84, 84), np.uint8),
        }[observation]  # fmt: skip
        self.t = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.t += 1
        return self.observation_space.sample(), 1.0, self.t >= 20, False, {}
