"""An algorithm that counts updates instead of learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Policy
from srl.api.spaces import Space
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.tree import Array, TreeSpec
from srl.testing.policies import DECISION_SPEC, MEMORY_SPEC, CountingPolicy


class CountingTrainer(Trainer):
    """A trainer whose only parameter is the number of updates that were applied."""

    def __init__(self, skip: tuple[int, ...] = ()) -> None:
        self._skip = skip
        self._counters = np.zeros(2, np.int64)  # updates seen, updates applied
        self.rewards: list[float] = []
        """Sum of the rewards of each batch."""
        self.progress: list[float] = []

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        skipped = int(self._counters[0]) in self._skip
        self._counters += (1, not skipped)
        self.rewards.append(float(batch.reward[:-1].sum()))
        self.progress.append(progress)
        return TrainResult(batch.num_decisions, {"applied": float(self._counters[1])}, skipped)

    def parameters(self) -> Array:
        return self._counters[1:].astype(np.float32)

    def state(self) -> Mapping[str, Array]:
        return {"parameters": self.parameters(), "counters": self._counters}

    def restore(self, state: Mapping[str, Array]) -> None:
        self._counters[...] = state["counters"]

    def join(self, group: TrainerGroup) -> None:
        """Data-parallel ranks are ignored: each counts its own updates."""


@dataclass(frozen=True)
class CountingConfig(AlgorithmConfig):
    skip: tuple[int, ...] = ()
    """Numbers of the updates to skip, as if their gradient were not finite."""
    memory: bool = False
    """Whether the policy has recurrent memory, which counts the decisions of each episode."""

    def check(self, observation: Space, action: Space) -> None:
        """Accept every space."""

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return MEMORY_SPEC if self.memory else DECISION_SPEC

    def build_policy(self, observation: Space, action: Space, seed: int) -> Policy:
        return CountingPolicy(seed, self.memory)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return CountingTrainer(self.skip)
