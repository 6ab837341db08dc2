"""A two-agent game with known values. `srl.testing.probe_environments` imports it on demand, because it needs
PettingZoo."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv


class TurnBased(AECEnv[str, Any, int]):  # type: ignore[misc]
    """A game in which the agents take turns."""

    def _begin(self) -> None:
        """Reset all agents and give the first one the turn."""
        self.agents = list(self.possible_agents)
        self.moves = dict.fromkeys(self.agents, 0)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]


class TurnBonus(TurnBased):
    """Two agents take two turns each. Action 1 gives the agent reward 1, which arrives while the other agent moves.

    Each agent observes -1 in its first turn and 1 in its second. The best action is 1; the values are 1 + discount and
    1.
    """

    metadata = {"name": "turn_bonus", "is_parallelizable": False}

    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["agent_0", "agent_1"]
        self.render_mode = None

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self._begin()

    def observe(self, agent: str) -> Any:
        return np.array([-1.0 if self.moves[agent] == 0 else 1.0], np.float32)

    def step(self, action: Any) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[mover] = 0.0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.rewards[mover] = float(action == 1)
        self.moves[mover] += 1
        self._accumulate_rewards()
        self.agent_selection = self.possible_agents[1 - self.possible_agents.index(mover)]
        if min(self.moves.values()) == 2:
            self.terminations = dict.fromkeys(self.agents, True)
            self._deads_step_first()
