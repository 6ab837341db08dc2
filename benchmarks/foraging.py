"""Games of a team whose Gymnasium environment has one space, observation and reward per agent, as PettingZoo
environments: level-based foraging (`pip install lbforaging`), RWARE.

    srl train pettingzoo:benchmarks/foraging.py:make --algo qmix --algo.joint-reward sum --steps 2000000

The agents' rewards add up to at most 1 per episode; `srl eval` reports the mean over the agents, a half of it for two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv


class TeamGame(ParallelEnv[str, Any, int]):
    """`agent_0`, `agent_1`, ... are the items of the Tuple spaces of `environment`. All end together."""

    metadata = {"name": "team_game", "render_modes": []}

    def __init__(self, environment: gymnasium.Env[Any, Any]) -> None:
        self.environment = environment
        self.render_mode = None
        spaces: Any = environment.unwrapped
        self.possible_agents = [f"agent_{i}" for i in range(len(spaces.action_space))]
        self.agents: list[str] = []
        self._observation_spaces = dict(zip(self.possible_agents, spaces.observation_space, strict=True))
        self._action_spaces = dict(zip(self.possible_agents, spaces.action_space, strict=True))

    def observation_space(self, agent: str) -> Any:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        observations, _ = self.environment.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._named(observations), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        chosen = [int(actions[agent]) for agent in self.possible_agents]
        observations, rewards, terminated, truncated, _ = self.environment.step(chosen)
        ends = [dict.fromkeys(self.possible_agents, bool(np.all(end))) for end in (terminated, truncated)]
        if np.all(terminated) or np.all(truncated):
            self.agents = []
        named = {agent: float(reward) for agent, reward in zip(self.possible_agents, np.ravel(rewards), strict=True)}
        return self._named(observations), named, *ends, {agent: {} for agent in self.possible_agents}

    def _named(self, observations: Any) -> dict[str, Any]:
        named = zip(self.possible_agents, observations, strict=True)
        return {agent: np.asarray(seen, self._observation_spaces[agent].dtype) for agent, seen in named}


def make(game: str = "lbforaging:Foraging-8x8-2p-2f-coop-v3") -> TeamGame:
    return TeamGame(gymnasium.make(game, disable_env_checker=True))
