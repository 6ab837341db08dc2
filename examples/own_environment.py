"""Your own environment, trained: a boat crosses a river whose current changes with every episode."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import srl


class River(gymnasium.Env):
    """Reach the other bank (y = 1) near the pier (x = 0). The boat steers left, straight on, or right."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)  # x, y, current
    action_space = spaces.Discrete(3)

    def __init__(self, strongest: float = 0.05) -> None:
        self.strongest = strongest

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)  # creates self.np_random, the only source of randomness
        self.x, self.y = 0.0, 0.0
        self.current = self.np_random.uniform(-self.strongest, self.strongest)
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.x += self.current + 0.08 * (int(action) - 1)
        self.y += 0.04
        landed = self.y >= 1.0
        lost = abs(self.x) > 1.0
        reward = 1.0 - abs(self.x) if landed else -1.0 if lost else 0.0
        return self._observe(), reward, landed or lost, False, {}  # observation, reward, terminated, truncated, info

    def _observe(self) -> Any:
        return np.array([self.x, self.y, self.current], np.float32)


def make(strongest: float = 0.05) -> gymnasium.Env:
    """Worker processes import this file and call this function."""
    return River(strongest)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--root", default="runs")
    arguments = parser.parse_args()
    run = srl.train(make, steps=arguments.steps, root=arguments.root)
    policy = srl.load(run.path)
    environment = make()
    observation, _ = environment.reset(seed=1)
    total, ended = 0.0, False
    while not ended:
        observation, reward, terminated, truncated, _ = environment.step(policy.act(observation))
        total, ended = total + float(reward), terminated or truncated
    print(f"landed with a return of {total:.2f} (the best possible is 1)")
