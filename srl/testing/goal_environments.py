"""Goal environments that are learned within seconds with hindsight, and hardly without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from srl.base.tree import Array

GoalStep = tuple[dict[str, Array], float, bool, bool, dict[str, Any]]


class _GoalProbe(gymnasium.Env[Any, Any]):  # type: ignore[misc]
    """Base class: the reward is 0 where the goal is reached, otherwise -1. The achieved goal is the position, which is
    all that there is to observe."""

    def __init__(self, position: gymnasium.spaces.Box, length: int) -> None:
        self.observation_space = gymnasium.spaces.Dict(
            {"observation": position, "achieved_goal": position, "desired_goal": position}
        )
        self.length = length
        self.t = 0
        self.position = self.goal = np.zeros(position.shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.position, self.goal = self.draw(), self.draw()
        return self.observe(), {}

    def step(self, action: Any) -> GoalStep:
        self.t += 1
        self.position = self.moved(action)
        reward = float(self.compute_reward(self.position, self.goal, {}))
        terminated = bool(self.compute_terminated(self.position, self.goal, {}))
        return self.observe(), reward, terminated, self.t >= self.length, {"is_success": reward == 0.0}

    def observe(self) -> dict[str, Array]:
        return {"observation": self.position, "achieved_goal": self.position, "desired_goal": self.goal}

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """Return the rewards of goals [..., n]."""
        return -(~self.reached(achieved_goal, desired_goal)).astype(np.float32)

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        """Return where an episode terminates. Default: nowhere."""
        return False

    def draw(self) -> Array:
        """Return a random position."""
        raise NotImplementedError

    def moved(self, action: Any) -> Array:
        """Return the position after an action."""
        raise NotImplementedError

    def reached(self, achieved_goal: Array, desired_goal: Array) -> Array:
        raise NotImplementedError

    def save_state(self) -> Mapping[str, Array]:
        return {"t": np.array(self.t), "position": self.position, "goal": self.goal}

    def restore_state(self, state: Mapping[str, Array]) -> None:
        self.t, self.position, self.goal = int(state["t"]), state["position"].copy(), state["goal"].copy()


class BitFlip(_GoalProbe):
    """Each action flips one of `size` bits; the goal is a certain state of all of them, and ends the episode
    (Andrychowicz et al. 2017, section 3.1). `distance` is the number of bits that differ at the start; None: any."""

    def __init__(self, size: int = 10, distance: int | None = None) -> None:
        super().__init__(gymnasium.spaces.Box(0.0, 1.0, (size,), np.float32), size)
        self.action_space = gymnasium.spaces.Discrete(size)
        self.distance = distance

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if self.distance is not None:
            flipped = self.np_random.permutation(len(self.goal)) < self.distance
            self.goal = np.where(flipped, 1.0 - self.position, self.position).astype(np.float32)
        return self.observe(), {}

    def draw(self) -> Array:
        bits: Array = self.np_random.integers(2, size=self.position.shape).astype(np.float32)
        return bits

    def moved(self, action: Any) -> Array:
        flipped: Array = np.where(np.arange(len(self.position)) == action, 1.0 - self.position, self.position)
        return flipped.astype(np.float32)

    def reached(self, achieved_goal: Array, desired_goal: Array) -> Array:
        found: Array = np.all(achieved_goal == desired_goal, axis=-1)
        return found

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Any:
        return self.reached(achieved_goal, desired_goal)


class PointReach(_GoalProbe):
    """An action moves a point in a square by up to 0.15 in each direction; the goal is a place, which is reached within
    a distance of 0.1. Episodes are truncated after `length` steps."""

    def __init__(self, length: int = 25) -> None:
        super().__init__(gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32), length)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def draw(self) -> Array:
        place: Array = self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)
        return place

    def moved(self, action: Any) -> Array:
        moved: Array = np.clip(self.position + 0.15 * np.asarray(action), -1.0, 1.0).astype(np.float32)
        return moved

    def reached(self, achieved_goal: Array, desired_goal: Array) -> Array:
        found: Array = np.linalg.norm(achieved_goal - desired_goal, axis=-1) < 0.1
        return found
