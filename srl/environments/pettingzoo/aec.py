"""PettingZoo's AEC environments (agent environment cycle), in which agents take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from srl.base.tree import Array
from srl.environments.pettingzoo.rows import AgentFault, Rows, action_of


class TurnGame:
    """One copy, advanced by one turn per step: exactly one of its lanes acts at a time, until all have ended.

    A lane's episode starts at its first turn, so `first` is only set together with `acting`. Rewards from before that
    turn, which precede all actions of the agent, are delivered with its second row. If the game ends for an agent
    before its first turn, the agent has no episode and its lane stays idle.
    """

    def __init__(self, copy: int, rows: Sequence[Rows]) -> None:
        self._copy = copy
        self._rows = rows
        self._team_of = {one.agent: team for team, one in enumerate(rows)}
        self._turn: int | None = None  # the team that acts next
        self._carried: dict[int, float] = {}  # rewards from before the first turn, by team

    @property
    def finished(self) -> bool:
        return self._turn is None

    def start(self, environment: Any, seed: int) -> None:
        self._turn = None
        self._carried = {}
        environment.reset(seed=seed)
        self._receive(environment)
        if self._turn is None:
            raise AgentFault("no agent is alive after reset")

    def advance(self, environment: Any, actions: Sequence[Array]) -> None:
        turn, self._turn = self._turn, None
        if turn is None:
            raise AgentFault("the game has ended")
        try:
            environment.step(action_of(actions[turn], self._copy))
        except Exception as error:
            error.add_note(f"Agent {self._rows[turn].agent!r} was acting.")
            raise
        self._receive(environment)

    def state(self) -> Any:
        return [self._turn, list(self._carried.items())]

    def restore(self, state: Any) -> None:
        self._turn, carried = state
        self._carried = dict(carried)

    def _receive(self, environment: Any) -> None:
        """Step dead agents with None, as AEC requires, then write the row of the agent whose turn it is."""
        for _ in range(len(self._rows) + 1):
            if not environment.agents:
                return
            team = self._team_of[environment.agent_selection]
            observation, reward, terminated, truncated, info = environment.last()
            if not (terminated or truncated):
                self._take_turn(team, observation, reward, info)
                return
            if team in self._carried:
                rows = self._rows[team]
                earned = rows.number(reward) + self._carried.pop(team)
                rows.end(self._copy, observation, earned, bool(terminated), bool(truncated), info)
            environment.step(None)
        raise AgentFault(f"agent {environment.agent_selection!r} was stepped with None but is still in `agents`")

    def _take_turn(self, team: int, observation: Any, reward: Any, info: Any) -> None:
        rows = self._rows[team]
        earned = rows.number(reward)
        if team in self._carried:
            rows.turn(self._copy, observation, earned + self._carried[team], info)
            self._carried[team] = 0.0
        else:
            rows.open(self._copy, observation, info)
            self._carried[team] = earned
        self._turn = team
