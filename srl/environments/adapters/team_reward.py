"""Team rewards: agents that share a policy share what they earn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from srl.api.lanes import Arrival, Lanes, LanesConfig, ResumableLanes, called
from srl.base.state import NotResumable, State
from srl.base.tree import Tree


@dataclass(frozen=True)
class TeamRewardConfig:
    """Every agent of a group of teams gets the mean of what they all earn at each step."""

    inner: LanesConfig
    groups: tuple[tuple[int, ...], ...]
    """Numbers of the teams that share."""

    @property
    def name(self) -> str:
        return called(self.inner)

    def build(self, num_copies: int) -> TeamRewardLanes:
        return TeamRewardLanes(self.inner.build(num_copies), self.groups)

    def build_filmed(self) -> TeamRewardLanes:
        """For `srl record`: with a picture if the inner lanes have one."""
        build = getattr(self.inner, "build_filmed", None)
        return TeamRewardLanes(self.inner.build(1) if build is None else build(), self.groups)


class TeamRewardLanes:
    def __init__(self, inner: Lanes, groups: tuple[tuple[int, ...], ...]) -> None:
        self._inner = inner
        self._groups = groups
        self.spec = inner.spec
        if hasattr(inner, "render"):
            self.render = inner.render

    def reset(self, seed: int) -> tuple[Arrival, ...]:
        return self._inner.reset(seed)

    def step(self, actions: tuple[Tree, ...]) -> tuple[Arrival, ...]:
        arrivals = self._inner.step(actions)
        for members in self._groups:
            rewards = np.concatenate([arrivals[team].reward.reshape(-1, self.spec.num_copies) for team in members])
            mean = rewards.mean(0)  # [copies]
            for team in members:
                arrivals[team].reward = np.tile(mean, len(self.spec.teams[team].agents))
        return arrivals

    def state(self) -> State:
        return self._resumable().state()

    def restore(self, state: State) -> None:
        self._resumable().restore(state)

    def _resumable(self) -> ResumableLanes:
        if not isinstance(self._inner, ResumableLanes):
            raise NotResumable(f"{type(self._inner).__name__} has no `state` and `restore`")
        return self._inner

    def close(self) -> None:
        self._inner.close()
