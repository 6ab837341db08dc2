"""An environment of any spaces, to train and export policies of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from srl.base.seeding import generator_state, restore_generator
from srl.base.tree import Array

OBSERVATIONS = {
    "vector": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "image": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "choices": spaces.MultiDiscrete([3, 4]),
    "parts": spaces.Dict(
        {
            "arm": spaces.Dict({"angle": spaces.Box(-np.inf, np.inf, (2, 2), np.float32), "mode": spaces.Discrete(3)}),
            "far": spaces.Box(0, 255, (5,), np.uint8),
        }
    ),
    "camera": spaces.Dict(
        {"image": spaces.Box(0, 255, (36, 36, 3), np.uint8), "speed": spaces.Box(-1.0, 1.0, (2,), np.float32)}
    ),
}
ACTIONS = {
    "discrete": spaces.Discrete(4),
    "several": spaces.MultiDiscrete([2, 3]),
    "binary": spaces.MultiBinary(3),
    "box": spaces.Box(np.array([-0.1, -2.0], np.float32), np.array([0.1, 0.01], np.float32)),
    "hybrid": spaces.Dict(
        {
            "where": spaces.Box(-0.1, 0.1, (2,), np.float32),
            "what": spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))),
            "zoom": spaces.Box(0, 255, (2,), np.uint8),
        }
    ),
}
CHOICES = {"discrete": 4, "several": 5, "binary": 6, "box": 0, "hybrid": 5}


class Varied(gymnasium.Env[Any, Any]):
    """Shows random things, and pays 1 for each of ten steps. With `masked` there is a key `action_mask`, all ones."""

    def __init__(self, observation: str = "vector", action: str = "discrete", masked: bool = False) -> None:
        self._shown, self.action_space = OBSERVATIONS[observation], ACTIONS[action]
        self._choices = CHOICES[action] if masked else 0
        self.observation_space = self._shown
        if masked:
            parts = dict(self._shown) if isinstance(self._shown, spaces.Dict) else {"seen": self._shown}
            self.observation_space = spaces.Dict({**parts, "action_mask": spaces.MultiBinary(self._choices)})
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        self.t += 1
        return self._look(), 1.0, self.t == 10, False, {}

    def save_state(self) -> dict[str, Array]:
        return {"t": np.array(self.t), "random": generator_state(self.np_random)}

    def restore_state(self, state: Mapping[str, Array]) -> None:
        self.t = int(state["t"])
        restore_generator(self.np_random, state["random"])

    def _look(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        seen = self.observation_space.sample()
        if self._choices:
            seen["action_mask"] = np.ones(self._choices, np.int8)
        return seen
