"""Games of two agents with known values. `srl.testing.probe_environments` imports them on demand, because they need
PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from srl.base.tree import Array


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


class TwoStep(ParallelEnv[str, Any, int]):  # type: ignore[misc]
    """The two-step game of Rashid et al. 2018 (section 5). In the first step, the action of `agent_0` chooses a game;
    in the second, both agents receive its payoff. Both observe the state as a one-hot vector.

    Game A pays 7 for every pair of actions, game B pays 8 if both agents choose 1, 0 if both choose 0, and 1 otherwise.
    The best return is 8. An agent's values of game B depend on what the other one does; their sum cannot represent the
    payoffs, and the best fit is below 7, so that agents that learn it choose game A.
    """

    metadata = {"name": "two_step", "render_modes": []}
    PAYOFF = np.array([[[7.0, 7.0], [7.0, 7.0]], [[0.0, 1.0], [1.0, 8.0]]])

    def __init__(self) -> None:
        self.render_mode = None
        self.possible_agents = ["agent_0", "agent_1"]
        self.agents: list[str] = []
        self.place = 0  # 0: the first step; 1 and 2: games A and B
        self.state_space = spaces.Box(0.0, 1.0, (3,), np.float32)

    def observation_space(self, agent: str) -> Any:
        return self.state_space

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Array], dict[str, Any]]:
        self.agents, self.place = list(self.possible_agents), 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
        agents, chosen = list(self.agents), tuple(int(actions[agent]) for agent in self.possible_agents)
        ended = self.place > 0
        reward = float(self.PAYOFF[self.place - 1][chosen]) if ended else 0.0
        self.place = self.place if ended else 1 + chosen[0]
        result = self._observations(), dict.fromkeys(agents, reward), dict.fromkeys(agents, ended)
        self.agents = [] if ended else agents
        return *result, dict.fromkeys(agents, False), {agent: {} for agent in agents}

    def state(self) -> Array:
        state: Array = np.eye(3, dtype=np.float32)[self.place]
        return state

    def save_state(self) -> dict[str, Array]:
        return {"place": np.array([self.place, len(self.agents)])}

    def restore_state(self, state: Mapping[str, Array]) -> None:
        self.place, present = state["place"].tolist()
        self.agents = self.possible_agents[:present]

    def _observations(self) -> dict[str, Array]:
        return {agent: self.state() for agent in self.agents}
