"""PettingZoo's parallel environments, in which all living agents act at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from srl.base.tree import Array
from srl.environments.pettingzoo.rows import AgentFault, Rows, action_of


class ParallelGame:
    """One copy. A dead agent's lane is idle until the copy's other agents have ended; agents may join late."""

    def __init__(self, copy: int, rows: Sequence[Rows]) -> None:
        self._copy = copy
        self._rows = rows
        self._alive: list[int] = []  # teams
        self._ended: set[int] = set()

    @property
    def finished(self) -> bool:
        return not self._alive

    def start(self, environment: Any, seed: int) -> None:
        self._alive = []
        self._ended = set()
        observations, infos = environment.reset(seed=seed)
        self._join(environment, observations, infos)
        if not self._alive:
            raise AgentFault("no agent is present after reset")

    def advance(self, environment: Any, actions: Sequence[Array]) -> None:
        acted, self._alive = self._alive, []
        chosen = {self._rows[team].agent: action_of(actions[team], self._copy) for team in acted}
        observations, rewards, terminations, truncations, infos = environment.step(chosen)
        present = set(environment.agents)
        for team in acted:
            rows = self._rows[team]
            agent = rows.agent
            terminated, truncated = bool(terminations.get(agent)), bool(truncations.get(agent))
            if terminated or truncated or agent not in present:
                # An agent that left without terminating counts as truncated: its future value need not be zero.
                truncated = truncated or not terminated
                observation, reward, info = observations.get(agent), rewards.get(agent, 0.0), infos.get(agent, {})
                rows.end(self._copy, observation, reward, terminated, truncated, info)
                self._ended.add(team)
                continue
            if agent not in observations or agent not in rewards:
                raise AgentFault(f"agent {agent!r} is alive but received no observation or no reward")
            rows.turn(self._copy, observations[agent], rewards[agent], infos.get(agent, {}))
            self._alive.append(team)
        if len(present) > len(self._alive):
            self._join(environment, observations, infos)

    def state(self) -> Any:
        return [self._alive, sorted(self._ended)]

    def restore(self, state: Any) -> None:
        self._alive, ended = state
        self._ended = set(ended)

    def _join(self, environment: Any, observations: Any, infos: Any) -> None:
        present = set(environment.agents)
        for team, rows in enumerate(self._rows):
            if rows.agent not in present or team in self._alive or team in self._ended:
                continue
            if rows.agent not in observations:
                raise AgentFault(f"agent {rows.agent!r} joined but received no observation")
            rows.open(self._copy, observations[rows.agent], infos.get(rows.agent, {}))
            self._alive.append(team)
