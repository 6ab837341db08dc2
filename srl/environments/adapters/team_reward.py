"""Team rewards: agents with the same policy share their rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srl.api.lanes import Lanes, LanesConfig, TimeStep
from srl.base.tree import Tree
from srl.environments.adapters.wrapped_lanes import WrappedLanes


@dataclass(frozen=True)
class TeamRewardConfig(LanesConfig):
    """An environment in which all agents in a group of teams receive the group's mean reward at each step."""

    inner: LanesConfig
    groups: tuple[tuple[int, ...], ...]
    """Each group: the indices of the teams that share a reward."""

    def environment_name(self) -> str:
        return self.inner.environment_name()

    def named_code(self) -> tuple[str, ...]:
        return ()

    def episode_limit(self) -> int | None:
        return self.inner.episode_limit()

    def build(self, num_copies: int) -> TeamRewardLanes:
        return TeamRewardLanes(self.inner.build(num_copies), self.groups)

    def build_rendered(self) -> TeamRewardLanes:
        return TeamRewardLanes(self.inner.build_rendered(), self.groups)


class TeamRewardLanes(WrappedLanes):
    def __init__(self, inner: Lanes, groups: tuple[tuple[int, ...], ...]) -> None:
        super().__init__(inner)
        self._groups = groups
        self.spec = inner.spec

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        return self.inner.reset(seed)

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        time_steps = self.inner.step(actions)
        for members in self._groups:
            rewards = np.concatenate([time_steps[team].reward.reshape(-1, self.spec.num_copies) for team in members])
            mean = rewards.mean(0)  # [copies]
            for team in members:
                time_steps[team].reward = np.tile(mean, len(self.spec.teams[team].agents))
        return time_steps
