"""Goal environments that hindsight cannot use, or only with effort."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from srl.testing.goal_environments import BitFlip, PointReach


class NoFunction(gymnasium.Wrapper):
    """A goal environment without `compute_reward`."""

    def __init__(self) -> None:
        super().__init__(PointReach())

    def has_wrapper_attr(self, name: str) -> bool:
        return name != "compute_reward"


class SingleGoals(PointReach):
    """`compute_reward` takes one goal at a time."""

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> float:
        return -float(np.linalg.norm(achieved_goal - desired_goal) >= 0.1)


class NeedsInfo(PointReach):
    """`compute_reward` reads what only the environment knows."""

    def step(self, action: Any) -> Any:
        observation, _, *ends, info = super().step(action)
        return observation, -0.5, *ends, {**info, "cost": 0.5}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return -info["cost"] if "is_success" in info or not self.t else 0.0


class Costly(PointReach):
    """Every step costs more than `compute_reward` says."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, reward - 0.25, *rest


class OtherGoals(PointReach):
    """The desired goal is of another kind than the achieved one."""

    def __init__(self) -> None:
        super().__init__()
        goal = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.observation_space = gymnasium.spaces.Dict({**self.observation_space.spaces, "desired_goal": goal})

    def observe(self) -> dict[str, Any]:
        return {**super().observe(), "desired_goal": np.zeros(3, np.float32)}

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.float32(0.0)


class UnendingBits(BitFlip):
    """`compute_terminated` disagrees with the environment."""

    def step(self, action: Any) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, False, truncated, info

    def draw(self) -> Any:
        return np.zeros(self.position.shape, np.float32)  # any even number of flips of one bit reaches the goal
