"""Games with action masks in their infos; a forbidden action raises. They can render frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

NUM_CHOICES = 4
LENGTH = 6


def frame(t: int) -> Any:
    return np.full((16, 24, 3), 40 * t, np.uint8)


class TogetherInfos(ParallelEnv):
    """Agent i may choose `(t + i) % 4` only. Agent `free` has no mask; `last` leaves one step before the others."""

    metadata = {"name": "together_infos", "render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None, forgets: bool = False) -> None:
        self.render_mode, self.forgets = render_mode, forgets
        self.possible_agents = ["first", "last", "free"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(NUM_CHOICES)

    def allowed(self, agent: str) -> int:
        return (self.t + self.possible_agents.index(agent)) % NUM_CHOICES

    def _infos(self) -> dict[str, Any]:
        masked = [agent for agent in self.agents if agent != "free" and not (self.forgets and self.t == 2)]
        return {agent: {"action_mask": np.eye(NUM_CHOICES, dtype=np.int8)[self.allowed(agent)]} for agent in masked}

    def _seen(self, agents: list[str]) -> dict[str, Any]:
        return {agent: np.array([self.t], np.float32) for agent in agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.agents = 0, list(self.possible_agents)
        return self._seen(self.agents), self._infos()

    def step(self, actions: dict[str, Any]) -> Any:
        for agent, action in actions.items():
            if agent != "free" and action != self.allowed(agent):
                raise RuntimeError(f"{agent} may not choose {action} at {self.t}")
        self.t += 1
        here = list(self.agents)
        ends = {agent: self.t >= LENGTH - (agent == "last") for agent in here}
        self.agents = [agent for agent in here if not ends[agent]]
        return self._seen(here), dict.fromkeys(here, 1.0), ends, dict.fromkeys(here, False), self._infos()

    def render(self) -> Any:
        return frame(self.t)


class InTurnInfos(AECEnv):
    """Two agents take turns; only the info of the acting agent has a mask, which allows `t % 4`."""

    metadata = {"name": "in_turn_infos", "render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode
        self.possible_agents = ["one", "two"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(NUM_CHOICES)

    def observe(self, agent: str) -> Any:
        return np.array([self.t], np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.t, self.agents = 0, list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self._give_turn()

    def _give_turn(self) -> None:
        self.agent_selection = self.possible_agents[self.t % 2]
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.infos[self.agent_selection] = {"action_mask": np.eye(NUM_CHOICES, dtype=np.int8)[self.t % NUM_CHOICES]}

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        if action != self.t % NUM_CHOICES:
            raise RuntimeError(f"{self.agent_selection} may not choose {action} at {self.t}")
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.rewards = {agent: float(agent == self.agent_selection) for agent in self.agents}
        self.t += 1
        self.terminations = dict.fromkeys(self.agents, self.t >= LENGTH)
        self._give_turn()
        self._accumulate_rewards()

    def render(self) -> Any:
        return frame(self.t)
