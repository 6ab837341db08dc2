"""A policy that takes no time or a fixed time, and a trainer that does not learn, to benchmark everything else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Space, array_spec
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.tree import Array, Tree, TreeSpec
from srl.environments.random_actions import random_actions

TABLE = 64  # number of action batches drawn in advance


@dataclass(frozen=True)
class RandomConfig(AlgorithmConfig):
    """Random actions, drawn in advance so that only the cost of the other components is measured."""

    seconds: float = 0.0
    """Inference time that does not use this machine's cores, like that of a busy or remote accelerator."""

    def check(self, observation: Space, action: Space) -> None:
        """Accept all spaces."""

    def decision_spec(self, observation: Space, action: Space) -> dict[str, TreeSpec]:
        return {"action": array_spec(action)}

    def build_policy(self, observation: Space, action: Space, seed: int) -> RandomPolicy:
        return RandomPolicy(action, seed, self.seconds)

    def build_trainer(self, observation: Space, action: Space, seed: int) -> IdleTrainer:
        return IdleTrainer()


class RandomPolicy(Policy):
    def __init__(self, action: Space, seed: int, seconds: float) -> None:
        self._space = action
        self._seconds = seconds
        self._generator = np.random.default_rng(seed)
        self._tables: dict[int, list[Tree]] = {}  # number of lanes -> actions
        self._turn = 0

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        if self._seconds:
            time.sleep(self._seconds)
        num_lanes = len(first)
        if num_lanes not in self._tables:
            self._tables[num_lanes] = [random_actions(self._space, num_lanes, self._generator) for _ in range(TABLE)]
        self._turn = (self._turn + 1) % TABLE
        return {"action": self._tables[num_lanes][self._turn]}

    def load(self, parameters: Array, version: int) -> None:
        self.version = version


class IdleTrainer(Trainer):
    """A trainer that consumes batches without learning."""

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        return TrainResult(num_decisions=batch.num_decisions)

    def parameters(self) -> Array:
        return np.zeros(1, np.float32)

    def state(self) -> Mapping[str, Array]:
        return {"parameters": self.parameters()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Do nothing: there is no state to restore."""

    def join(self, group: TrainerGroup) -> None:
        """Do nothing: there are no gradients to share."""
