"""Drivers for parallel and turn-based PettingZoo environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from srl.testing.env_checks.driver import AgentResult, Caller, StepResult, act, unpack_reset, unpack_step
from srl.testing.env_checks.gymnasium_driver import finish
from srl.testing.env_checks.values import check_spaces


class _AgentsProbe:
    """Base class that keeps each agent's spaces and draws random actions that action masks allow."""

    keeps_observations = True
    limit: int | None = None

    def __init__(self, environment: Any, call: Caller) -> None:
        self._environment, self._call, self._findings = environment, call, call.findings
        self._spaces: dict[str, tuple[Any, Any]] = {}

    def check_spaces(self) -> None:
        agents = getattr(self._environment, "possible_agents", None)
        if not agents:
            fix = "set self.possible_agents in __init__: the number of lanes depends on it"
            expected = "`possible_agents` to list all agents that may ever take part"
            self._findings.stop(expected, "it is missing or empty", fix)
        for agent in agents:
            observation, action = self._of(agent, "observation_space"), self._of(agent, "action_space")
            if self._environment.action_space(agent) is not action:
                expected = f"action_space({agent!r}) to return the same object at every call"
                fix = "create the spaces once, or use functools.cache; otherwise the seed of a space is lost"
                self._findings.warning(expected, "a new object", fix)
            check_spaces(self._findings, observation, action, f" of {agent}")
            self._spaces[str(agent)] = observation, action

    def _of(self, agent: Any, role: str) -> Any:
        try:
            return getattr(self._environment, role)(agent)
        except Exception as error:
            fix = f"implement the method {role}"
            self._findings.stop(f"{role}({agent!r}) to return a space", f"{error!r}", fix, error)

    def spaces_of(self, agent: str) -> tuple[Any, Any]:
        if agent not in self._spaces:
            expected = "only agents of `possible_agents` to appear"
            self._findings.stop(expected, f"{agent!r}", "add it to `possible_agents`")
        return self._spaces[agent]

    def seed_actions(self, seed: int) -> None:
        for index, (_, action) in enumerate(self._spaces.values()):
            action.seed(seed + index)

    def finish(self) -> None:
        finish(self._environment, self._call)

    def _choose(self, agent: Any, observation: Any, info: Any) -> Any:
        _, space = self.spaces_of(str(agent))
        for source in (observation, info):
            if isinstance(source, Mapping) and "action_mask" in source:
                return space.sample(np.asarray(source["action_mask"], np.int8))
        return space.sample()

    def _check_agents(self) -> None:
        if not self._environment.agents:
            self._findings.stop("reset to fill `agents`", "`agents` is empty", "set self.agents in reset")


class ParallelProbe(_AgentsProbe):
    def __init__(self, environment: Any, call: Caller) -> None:
        super().__init__(environment, call)
        self._alive: list[Any] = []
        self._gone: set[Any] = set()
        self._last: tuple[Mapping[Any, Any], Mapping[Any, Any]] = ({}, {})  # observations, infos

    def reset(self, seed: int | None) -> StepResult:
        result = self._call("reset(seed=...)", self._environment.reset, seed=seed)
        observations = unpack_reset(self._findings, result)
        self._last = observations, result[1]
        self._alive, self._gone = list(self._environment.agents), set()
        self._check_agents()
        return StepResult(
            {str(agent): AgentResult(self._given(observations, agent, "observation")) for agent in self._alive}
        )

    def step(self) -> StepResult:
        observations, infos = self._last
        actions = {agent: self._choose(agent, observations[agent], infos.get(agent)) for agent in self._alive}
        result = unpack_step(self._findings, act(self._call, self._environment.step, actions))
        names = ("observation", "reward", "terminated", "truncated")
        for name, given in zip((*names, "info"), result, strict=True):
            if not isinstance(given, Mapping):
                expected = f"step to return a dictionary {{agent: {name}}}"
                self._findings.stop(expected, type(given).__name__, "return {agent: ...}")
        self._last = result[0], result[4]
        agents: dict[str, AgentResult] = {}
        for agent in actions:
            values = [self._given(part, agent, name) for part, name in zip(result, names, strict=False)]
            agents[str(agent)] = AgentResult(*values)
            self._check_leaving(agent, agents[str(agent)].ended)
        self._gone |= {agent for agent in actions if agents[str(agent)].ended}
        self._alive = [agent for agent in self._environment.agents if agent not in self._gone]
        for agent in self._alive:
            if agent not in actions:
                agents[str(agent)] = AgentResult(self._given(result[0], agent, "observation"))
        return StepResult(agents, ended=not self._alive)

    def _check_leaving(self, agent: Any, ended: bool) -> None:
        if ended and agent in self._environment.agents:
            fix = "remove the agent in the same step"
            self._findings.error("agents that ended to leave `agents`", f"{agent!r} is still in it", fix)
        if not ended and agent not in self._environment.agents:
            expected = "agents to leave `agents` only when terminated or truncated"
            self._findings.error(expected, f"{agent!r} left", "set terminated or truncated")

    def _given(self, part: Mapping[Any, Any], agent: Any, name: str) -> Any:
        if not isinstance(part, Mapping) or agent not in part:
            expected = f"a value of {name} for every agent that acts or acted"
            self._findings.stop(expected, f"none for {agent!r}", "return it, also at the end")
        return part[agent]


class TurnProbe(_AgentsProbe):
    """A turn-based environment. Each result holds the agent whose turn is next, even after step(None)."""

    def __init__(self, environment: Any, call: Caller) -> None:
        super().__init__(environment, call)
        self._next = AgentResult(None)
        self._info: Any = None

    def reset(self, seed: int | None) -> StepResult:
        self._call("reset(seed=...)", self._environment.reset, seed=seed)
        self._check_agents()
        row = self._receive()
        return StepResult({agent: AgentResult(result.observation) for agent, result in row.agents.items()})

    def step(self) -> StepResult:
        environment, agent = self._environment, self._environment.agent_selection
        if not self._next.ended:
            act(self._call, environment.step, self._choose(agent, self._next.observation, self._info))
            return self._receive()
        self._call("step(None) of an agent that ended", environment.step, None)
        if agent in environment.agents:
            expected = "step(None) to remove an agent that ended from `agents`"
            fix = "call self._was_dead_step(action) at the start of step"
            self._findings.stop(expected, f"{agent!r} is still in it", fix)
        return self._receive()

    def _receive(self) -> StepResult:
        environment = self._environment
        if not environment.agents:
            return StepResult(ended=True)
        observation, reward, terminated, truncated, self._info = self._call("last()", environment.last)
        self._next = AgentResult(observation, reward, terminated, truncated)
        return StepResult({str(environment.agent_selection): self._next})
