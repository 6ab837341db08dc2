"""A small game of two kinds of agents with different kinds of actions, for runs in which each role has its own
algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from srl.base.tree import Array

LENGTH = 6


class Duel(ParallelEnv[str, Array, int]):
    """`archer` aims with a real number, `dodger` stands left or right. The archer gets 1 minus its distance to the
    dodger, and the dodger the negative; `LENGTH` steps, then truncation."""

    metadata = {"name": "duel", "render_modes": []}

    def __init__(self) -> None:
        self.render_mode = None
        self.possible_agents = ["archer", "dodger"]
        self.agents: list[str] = []
        self._places = np.zeros(2, np.float32)
        self._t = 0

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(-20.0, 20.0, (3,) if agent == "archer" else (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(-1.0, 1.0, (1,), np.float32) if agent == "archer" else spaces.Discrete(2)

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        self._places, self._t = np.zeros(2, np.float32), 0
        self.agents = list(self.possible_agents)
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        self._places = np.array([float(actions["archer"][0]), 2.0 * int(actions["dodger"]) - 1.0], np.float32)
        self._t += 1
        reward = 1.0 - abs(float(self._places[0] - self._places[1]))
        over = self._t == LENGTH
        agents, observations = list(self.agents), self._observations()
        if over:
            self.agents = []
        rewards = {"archer": reward, "dodger": -reward}
        return (
            observations, rewards, dict.fromkeys(agents, False), dict.fromkeys(agents, over),
            {agent: {} for agent in agents},
        )  # fmt: skip

    def _observations(self) -> dict[str, Array]:
        return {
            "archer": np.array([*self._places, self._t], np.float32),
            "dodger": np.array([self._places[1], self._t], np.float32),
        }


def duel() -> Duel:
    return Duel()
