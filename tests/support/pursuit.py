"""A small game of two kinds of agents: chasers and runners on a line, for tests of several policies in one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from srl.base.tree import Array

LENGTH = 6


class Pursuit(ParallelEnv[str, Array, int]):
    """`chaser_0`, `chaser_1` and `runner_0` step left, stay or step right. A chaser gets reward 1 for each step on the
    runner's place, and the runner gets the negative. Chasers see all places, the runner its own and the time; `LENGTH`
    steps, then truncation."""

    metadata = {"name": "pursuit", "render_modes": []}

    def __init__(self) -> None:
        self.render_mode = None
        self.possible_agents = ["chaser_0", "chaser_1", "runner_0"]
        self.agents: list[str] = []
        self._places = np.zeros(3, np.float32)
        self._t = 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-20.0, 20.0, (4,) if agent.startswith("chaser") else (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        self._places = np.random.default_rng(seed).integers(-3, 4, 3).astype(np.float32)
        self._t = 0
        self.agents = list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        self._places += np.array([actions[agent] - 1 for agent in self.possible_agents])
        self._t += 1
        caught = (self._places[:2] == self._places[2]).astype(float)
        rewards = dict(zip(self.possible_agents, [*caught, -caught.sum()], strict=True))
        over = self._t == LENGTH
        agents, observations = list(self.agents), self._observations()
        if over:
            self.agents = []
        ends = dict.fromkeys(agents, False), dict.fromkeys(agents, over)
        return observations, rewards, *ends, {agent: {} for agent in agents}

    def _observations(self) -> dict[str, Array]:
        return {
            "chaser_0": np.array([*self._places, 0.0], np.float32),
            "chaser_1": np.array([*self._places, 1.0], np.float32),
            "runner_0": np.array([self._places[2], self._t], np.float32),
        }


def pursuit() -> Pursuit:
    return Pursuit()
