"""An algorithm that counts updates instead of learning, with a policy whose decisions a test can verify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Decision, Policy
from srl.api.spaces import Space
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.seeding import generator, generator_state, restore_generator
from srl.base.state import State
from srl.base.tree import Array, ArraySpec, Tree, TreeSpec, leaves

NUM_ACTIONS = 2
DECISION_SPEC: dict[str, TreeSpec] = {"action": ArraySpec((), "int64"), "value": ArraySpec((), "float32")}
MEMORY_SPEC: dict[str, TreeSpec] = {**DECISION_SPEC, "state": ArraySpec((2,), "float32")}


class CountingPolicy(Policy):
    """Draws random actions. `value` is the sum of the lane's observation plus the first parameter.

    With `memory`, each lane's recurrent state is its number of decisions in the episode and its last value.
    """

    def __init__(self, seed: int = 0, memory: bool = False) -> None:
        self.memory = memory
        self.parameters = np.zeros(1, np.float32)
        self.batches: list[int] = []
        """Batch size of each call of `act` so far."""
        self._generator = generator(seed, "counting")

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        num_lanes = len(first)
        self.batches.append(num_lanes)
        total = np.zeros(num_lanes, np.float32)
        for _, leaf in leaves(observation):
            total += leaf.reshape(num_lanes, -1).sum(axis=1, dtype=np.float32)
        action = np.zeros(num_lanes, np.int64) if greedy else self._generator.integers(NUM_ACTIONS, size=num_lanes)
        value = total + self.parameters[0]
        if not self.memory:
            return {"action": action, "value": value}
        before = np.zeros(num_lanes, np.float32) if state is None else np.where(first, 0, np.asarray(state)[:, 0])
        return {"action": action, "value": value, "state": np.stack((before + 1, value), 1).astype(np.float32)}

    def explore(self, observation: Tree, state: Tree | None, first: Array, position: Array) -> Decision:
        """The value is the position of the lane."""
        return {**self.act(observation, state, first), "value": position.astype(np.float32)}

    def load(self, parameters: Array, version: int) -> None:
        self.parameters = parameters.copy()
        self.version = version

    def state(self) -> State:
        return {"generator": generator_state(self._generator)}

    def restore(self, state: State) -> None:
        restore_generator(self._generator, state["generator"])


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
