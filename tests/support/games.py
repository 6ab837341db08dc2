"""Small PettingZoo environments with known answers, named as `pettingzoo:support.games:TurnGame`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from srl.base.state import pack, unpack
from srl.base.tree import Array
from srl.testing.environments import SEED_MODULUS
from srl.testing.probe_games import TurnBased

FAULTS = ("raise", "raise_in_reset", "nan", "nan_reward", "shape")


def _break(fault: str, t: int, observation: Array, reward: float) -> tuple[Array, float]:
    """Return the values that the first agent receives when the fault occurs."""
    match fault:
        case "nan":
            return np.full_like(observation, np.nan), reward
        case "nan_reward":
            return observation, float("nan")
        case "shape":
            return np.zeros(7, np.float32), reward
        case _:
            raise RuntimeError(f"failed on purpose at step {t}")


class DyingTeam(ParallelEnv[str, Array, int]):
    """Agent i (`agent_0`, ...) ends at step ``deaths[i]``; the episode ends with the last agent. The observation is
    (seed % 1,000,000, episode, t, i). The step that leads to `t` has reward ``t + 100 * i``. A `fault` (one of
    `FAULTS`) occurs at step `fault_after` of every episode.
    """

    metadata = {"name": "dying_team", "render_modes": []}

    def __init__(
        self, deaths: tuple[int, ...] = (2, 4), truncate: bool = False, fault: str = "", fault_after: int = 1
    ) -> None:
        self.render_mode = None
        self.possible_agents = [f"agent_{i}" for i in range(len(deaths))]
        self.agents: list[str] = []
        self.deaths = tuple(deaths)
        self.truncate = truncate
        self.fault = fault
        self.fault_after = fault_after
        self.seed = -1
        self.episode = -1
        self.t = 0
        box = spaces.Box(-1.0, SEED_MODULUS, (4,), np.float32)
        self._observation_spaces = dict.fromkeys(self.possible_agents, box)
        self._action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Box:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, dict[str, Any]]]:
        if self.fault == "raise_in_reset":
            raise RuntimeError("failed on purpose in reset")
        if seed is not None:
            self.seed = seed % SEED_MODULUS
        self.episode = self.episode + 1 if seed is None else 0
        self.t = 0
        self.agents = list(self.possible_agents)
        return {agent: self._observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(
        self, actions: Mapping[str, int]
    ) -> tuple[
        dict[str, Array], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
    ]:  # observations, rewards, terminations, truncations, infos
        if sorted(actions) != sorted(self.agents):
            raise ValueError(f"actions for {sorted(actions)}, but {sorted(self.agents)} are alive")
        self.t += 1
        acted = list(self.agents)
        observations = {agent: self._observe(agent) for agent in acted}
        rewards = {agent: self.t + 100.0 * self.possible_agents.index(agent) for agent in acted}
        if self.fault and self.t == self.fault_after:
            observations[acted[0]], rewards[acted[0]] = _break(
                self.fault, self.t, observations[acted[0]], rewards[acted[0]]
            )
        ended = {agent: self.t >= self.deaths[self.possible_agents.index(agent)] for agent in acted}
        self.agents = [agent for agent in acted if not ended[agent]]
        terminations = {agent: ended[agent] and not self.truncate for agent in acted}
        truncations = {agent: ended[agent] and self.truncate for agent in acted}
        return observations, rewards, terminations, truncations, {agent: {} for agent in acted}

    def save_state(self) -> dict[str, Array]:
        return {"counters": pack([self.seed, self.episode, self.t, self.agents])}

    def restore_state(self, state: Mapping[str, Array]) -> None:
        self.seed, self.episode, self.t, self.agents = unpack(state["counters"])

    def _observe(self, agent: str) -> Array:
        return np.array([self.seed, self.episode, self.t, self.possible_agents.index(agent)], np.float32)


CHANGING = (
    *("agents", "moves", "rewards", "_cumulative_rewards", "terminations", "truncations", "infos"),
    *("agent_selection", "_skip_agent_selection"),
)
"""Attributes that an AEC environment changes from step to step."""


class TurnGame(TurnBased):
    """Agents (`agent_0`, ...) take turns, with `length` moves in total. A move gives reward 1 to the mover and 10 to
    the others. The observation is (seed % 1,000,000, episode, moves made, i). Agent i ends early after its
    ``deaths[i]``-th own move (0: never). With `mask`, observations are dictionaries with an `action_mask` that allows
    only the action ``moves made % 2``; any other action raises an error. A `fault` (one of `FAULTS`) occurs at move
    `fault_after` of every episode.
    """

    metadata = {"name": "turn_game", "render_modes": []}

    def __init__(
        self,
        num_agents: int = 2,
        length: int = 5,
        deaths: tuple[int, ...] = (),
        truncate: bool = False,
        mask: bool = False,
        fault: str = "",
        fault_after: int = 1,
    ) -> None:
        super().__init__()
        self.render_mode = None
        self.possible_agents = [f"agent_{i}" for i in range(num_agents)]
        self.agents: list[str] = []
        self.length = length
        self.deaths = tuple(deaths) or (0,) * num_agents
        self.truncate = truncate
        self.mask = mask
        self.fault = fault
        self.fault_after = fault_after
        self.seed = -1
        self.episode = -1
        self.t = 0
        board: spaces.Space[Any] = spaces.Box(-1.0, SEED_MODULUS, (4,), np.float32)
        if mask:
            board = spaces.Dict({"observation": board, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
        self._observation_spaces = dict.fromkeys(self.possible_agents, board)
        self._action_spaces = {agent: spaces.Discrete(2) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Discrete:
        return self._action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        if self.fault == "raise_in_reset":
            raise RuntimeError("failed on purpose in reset")
        if seed is not None:
            self.seed = seed % SEED_MODULUS
        self.episode = self.episode + 1 if seed is None else 0
        self.t = 0
        self._begin()

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        if self.mask and action != self.t % 2:
            raise ValueError(f"action {action} of {mover} is masked; only {self.t % 2} is allowed")
        if self.fault == "raise" and self.t + 1 == self.fault_after:
            raise RuntimeError(f"failed on purpose at step {self.fault_after}")
        self._cumulative_rewards[mover] = 0.0
        self.t += 1
        self.moves[mover] += 1
        nan = self.fault == "nan_reward" and self.t == self.fault_after
        self.rewards = {agent: float("nan") if nan else 1.0 if agent == mover else 10.0 for agent in self.agents}
        self._accumulate_rewards()
        ends = self.truncations if self.truncate else self.terminations
        if self.deaths[self.possible_agents.index(mover)] == self.moves[mover]:
            ends[mover] = True
        if self.t >= self.length:
            ends.update(dict.fromkeys(self.agents, True))
        self.agent_selection = self._after(mover)
        self._deads_step_first()

    def observe(self, agent: str) -> Any:
        board = np.array([self.seed, self.episode, self.t, self.possible_agents.index(agent)], np.float32)
        if self.fault in ("nan", "shape") and self.t == self.fault_after:
            board, _ = _break(self.fault, self.t, board, 0.0)
        if not self.mask:
            return board
        mask = np.zeros(2, np.int8)
        if agent == self.agent_selection:
            mask[self.t % 2] = 1
        return {"observation": board, "action_mask": mask}

    def save_state(self) -> dict[str, Array]:
        return {"attributes": pack({name: vars(self).get(name) for name in (*CHANGING, "seed", "episode", "t")})}

    def restore_state(self, state: Mapping[str, Array]) -> None:
        for name, value in unpack(state["attributes"]).items():
            setattr(self, name, value)

    def _after(self, mover: str) -> str:
        """Return the next living agent in turn, or the mover if no other is alive."""
        order = self.possible_agents
        start = order.index(mover)
        for offset in range(1, len(order) + 1):
            agent = order[(start + offset) % len(order)]
            if agent in self.agents and not (self.terminations[agent] or self.truncations[agent]):
                return agent
        return mover
