"""The previous action and reward in observations, for policies with a memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from srl.api.lanes import GoalFunctions, Lanes, LanesConfig, LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Box, Dict, Space, array_spec
from srl.base.state import State, part, under
from srl.base.tree import Array, Tree, from_leaves, leaves, map_tree
from srl.environments.adapters.wrapped_lanes import WrappedLanes
from srl.environments.conversion import (
    OBSERVATION,
    PREVIOUS_ACTION,
    PREVIOUS_REWARD,
    previous_action,
    previous_action_space,
)


@dataclass(frozen=True)
class PreviousStepConfig(LanesConfig):
    """An environment whose observations have the keys `previous_action` and `previous_reward`. An observation that is
    not a Dict becomes the key `observation`."""

    inner: LanesConfig

    def environment_name(self) -> str:
        return self.inner.environment_name()

    def named_code(self) -> tuple[str, ...]:
        return ()

    def episode_limit(self) -> int | None:
        return self.inner.episode_limit()

    def goal_functions(self) -> GoalFunctions:
        return self.inner.goal_functions()

    def build(self, num_copies: int) -> PreviousStepLanes:
        return PreviousStepLanes(self.inner.build(num_copies))

    def build_rendered(self) -> PreviousStepLanes:
        return PreviousStepLanes(self.inner.build_rendered())


class PreviousStepLanes(WrappedLanes):
    """Lanes that repeat each lane's last action and reward in the next observation. Both are zeros in the first
    observation of an episode. A lane that does not act keeps its last action."""

    def __init__(self, inner: Lanes) -> None:
        super().__init__(inner)
        self.spec = with_previous_step(inner.spec)
        counts = [inner.spec.num_lanes(index) for index in range(len(inner.spec.teams))]
        self._actions = [_nothing(team, count) for team, count in zip(inner.spec.teams, counts, strict=True)]
        self._acting = [np.zeros(count, bool) for count in counts]

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        return self._completed(self.inner.reset(seed))

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        for own, acting, team, action in zip(self._actions, self._acting, self.inner.spec.teams, actions, strict=True):
            _put(own, previous_action(team.action, action), acting)
        return self._completed(self.inner.step(actions))

    def _completed(self, time_steps: tuple[TimeStep, ...]) -> tuple[TimeStep, ...]:
        teams = self.inner.spec.teams
        for own, acting, team, time_step in zip(self._actions, self._acting, teams, time_steps, strict=True):
            begins = time_step.first if time_step.failed is None else time_step.first | time_step.failed
            for _, array in leaves(own):
                array[begins] = 0
            acting[:] = time_step.acting
            reward = np.where(begins, np.float32(0.0), time_step.reward).astype(np.float32)
            parts = parts_of(team.observation, time_step.observation)
            time_step.observation = {**parts, PREVIOUS_ACTION: map_tree(np.copy, own), PREVIOUS_REWARD: reward}
        return time_steps

    def state(self) -> State:
        own = {
            f"{index}/{path}": array
            for index, actions in enumerate(self._actions)
            for path, array in leaves({PREVIOUS_ACTION: actions, "acting": self._acting[index]})
        }
        return {**under("inner", self.inner.state()), **under("previous", own)}

    def restore(self, state: State) -> None:
        self.inner.restore(part(state, "inner"))
        for index, acting in enumerate(self._acting):
            own: Any = from_leaves(part(part(state, "previous"), str(index)))
            _put(self._actions[index], own[PREVIOUS_ACTION], np.ones(len(acting), bool))
            acting[:] = own["acting"]


def with_previous_step(spec: LaneSpec) -> LaneSpec:
    """Return the spec of such lanes. Raises ValueError if an observation already has one of the keys."""
    return replace(spec, teams=tuple(map(_extended, spec.teams)))


def _extended(team: TeamSpec) -> TeamSpec:
    seen = team.observation
    parts = parts_of(seen, seen.items if isinstance(seen, Dict) and not seen.is_tuple else seen)
    if taken := {PREVIOUS_ACTION, PREVIOUS_REWARD} & parts.keys():
        raise ValueError(
            f"agent {team.agents[0]!r}: the observation already has a key {min(taken)!r}; leave out --previous-step"
        )
    own = {PREVIOUS_ACTION: previous_action_space(team.action), PREVIOUS_REWARD: Box((), "float32")}
    return replace(team, observation=Dict({**parts, **own}))


def parts_of(space: Space, value: Any) -> dict[str, Any]:
    """Return the parts of an observation, or of its space, beside which the previous step is."""
    return dict(value) if isinstance(space, Dict) and not space.is_tuple else {OBSERVATION: value}


def _nothing(team: TeamSpec, num_lanes: int) -> Tree:
    nothing: Tree = map_tree(lambda leaf: leaf.empty(num_lanes), array_spec(previous_action_space(team.action)))
    return nothing


def _put(target: Any, values: Any, lanes: Array) -> None:
    if isinstance(target, Mapping):
        for name, part_of in target.items():
            _put(part_of, values[name], lanes)
    else:
        target[lanes] = values[lanes]
