"""Numbers of agents in their observations, so that agents that share a network can act differently."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Dict, Discrete
from srl.base.tree import Array, Tree
from srl.environments.adapters.wrapped_lanes import WrappedLanes
from srl.environments.conversion import OBSERVATION

AGENT_ID = "agent_id"


def with_agent_ids(lanes: Lanes) -> Lanes:
    """Return the lanes with the key `agent_id` in each observation: the number of the agent among all agents, in the
    order of the spec. An observation that is not a Dict becomes the key `observation`. A single agent needs no
    number."""
    return AgentIdLanes(lanes) if sum(len(team.agents) for team in lanes.spec.teams) > 1 else lanes


class AgentIdLanes(WrappedLanes):
    def __init__(self, inner: Lanes) -> None:
        super().__init__(inner)
        spec, ends = inner.spec, np.cumsum([0, *(len(team.agents) for team in inner.spec.teams)])
        self._ids = [np.repeat(np.arange(a, b), spec.num_copies) for a, b in pairwise(ends)]
        teams = tuple(_numbered(team, int(ends[-1])) for team in spec.teams)
        self.spec = LaneSpec(spec.environment, spec.num_copies, teams)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        return self._with_ids(self.inner.reset(seed))

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        return self._with_ids(self.inner.step(actions))

    def _with_ids(self, time_steps: tuple[TimeStep, ...]) -> tuple[TimeStep, ...]:
        for time_step, own in zip(time_steps, self._ids, strict=True):
            time_step.observation = _beside(time_step.observation, own)
        return time_steps


def _beside(observation: Tree, ids: Array) -> dict[str, Tree]:
    parts = {OBSERVATION: observation} if isinstance(observation, np.ndarray) else dict(observation)
    return {**parts, AGENT_ID: ids}


def _numbered(team: TeamSpec, num_agents: int) -> TeamSpec:
    seen = team.observation
    if isinstance(seen, Dict) and (seen.is_tuple or AGENT_ID in seen.items):
        found = "is a Tuple" if seen.is_tuple else f"already has a key {AGENT_ID!r}"
        raise ValueError(f"agent {team.agents[0]!r}: the observation {found}; use --no-algo.agent-id")
    parts = dict(seen.items) if isinstance(seen, Dict) else {OBSERVATION: seen}
    return replace(team, observation=Dict({**parts, AGENT_ID: Discrete(num_agents)}))
