"""Environments that break only in worker processes: what a run meets after a look at the environment found nothing."""

import ctypes
import os
import sys
import time

import gymnasium
import numpy as np

from srl.testing.environments import Tracer


class Broken(Tracer):
    """Breaks at its `after`-th step, counted over episodes, of every copy that was made by a worker. With `once`, the
    path of a file that does not exist yet, only the first copy to come there breaks."""

    def __init__(self, fault: str, after: int = 50, once: str = "") -> None:
        super().__init__()
        self.fault, self.after, self.once = fault, after, once
        self.steps = 0

    def step(self, action):
        self.steps += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if self.steps == self.after and sys.argv[0].startswith("srl-worker") and self._first():
            observation = self._break(observation)
        return observation, reward, terminated, truncated, info

    def _first(self) -> bool:
        if not self.once:
            return True
        try:
            os.close(os.open(self.once, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _break(self, observation):
        match self.fault:
            case "raise":
                raise RuntimeError("the simulator lost its mind")
            case "hang":
                time.sleep(3600)
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
