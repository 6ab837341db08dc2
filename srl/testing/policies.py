"""A policy whose decisions a test can verify."""

from __future__ import annotations

import numpy as np

from srl.api.policy import Decision, Policy
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

    def load(self, parameters: Array, version: int) -> None:
        self.parameters = parameters.copy()
        self.version = version

    def state(self) -> State:
        return {"generator": generator_state(self._generator)}

    def restore(self, state: State) -> None:
        restore_generator(self._generator, state["generator"])
