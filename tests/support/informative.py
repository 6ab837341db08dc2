"""Environments whose infos have statistics: single, vector and multi-agent ones."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics, TransformReward


class Informative(gymnasium.Env[Any, Any]):
    """Episodes of three steps, reward 1 each. Every second one succeeds; `height` is the number of the episode."""

    observation_space = spaces.Box(0.0, 3.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self._episode = -1
        self._step = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode, self._step = (0 if seed is not None else self._episode + 1), 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._step += 1
        info = {"height": np.float32(self._episode), "text": "words"}
        if self._step == 3:
            info["is_success"] = bool(self._episode % 2)
        return np.full(1, self._step, np.float32), 1.0, self._step == 3, False, info


def doubled() -> Any:
    """The same with statistics of Gymnasium below a wrapper that doubles rewards."""
    return TransformReward(RecordEpisodeStatistics(Informative()), lambda reward: 2 * float(reward))


def vector(num_envs: int, mode: str = "NextStep") -> SyncVectorEnv:
    return SyncVectorEnv([doubled] * num_envs, autoreset_mode=AutoresetMode(mode))


def game() -> Any:
    from pettingzoo import ParallelEnv

    class Game(ParallelEnv):
        possible_agents = ("a", "b")
        metadata: dict[str, Any] = {}

        def __init__(self) -> None:
            self._inner = Informative()

        def observation_space(self, agent: str) -> Any:
            return self._inner.observation_space

        def action_space(self, agent: str) -> Any:
            return self._inner.action_space

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            self.agents = list(self.possible_agents)
            observation, _ = self._inner.reset()
            return dict.fromkeys(self.agents, observation), {agent: {} for agent in self.agents}

        def step(self, actions: Any) -> Any:
            present = self.agents
            observation, reward, ended, _, info = self._inner.step(0)
            self.agents = [] if ended else present
            infos = {agent: {**info, "height": info["height"] + (agent == "b")} for agent in present}
            each = [dict.fromkeys(present, value) for value in (observation, reward, ended, False)]
            return *each, infos

    return Game()
