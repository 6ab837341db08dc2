"""The policy of each agent: the action with the highest Q value, or a random one with probability epsilon."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.qmix.network import AgentNetwork
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.memory.recurrent import reset_state
from srl.networks.parameters import FlatParameters


class AgentPolicy(Policy):
    """Epsilon-greedy policy. Each agent acts on its own observations and memory; the mixer is not needed."""

    def __init__(self, network: AgentNetwork, is_discrete: bool, seed: int, device: str = "cpu") -> None:
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._network = network
        self._nvec = list(network.nvec)
        self._is_discrete = is_discrete
        self._epsilon = 1.0
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._computing = threading.Lock()  # guards the generator

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode(), self._computing:
            inputs = map_tree(lambda array: move(array, self._device), observation)
            # The memory must advance even if all actions are random.
            values, _, *memory = self._network(inputs, *self._memory(state, first))
            choice = self._highest(values)
            if not greedy and self._epsilon > 0.0:
                choice = self._explore(choice, self._network.split(inputs)[1])
            action = choice[:, 0] if self._is_discrete else choice
        decision: dict[str, Tree] = {"action": fetch(action).numpy()}
        return {**decision, "state": fetch(memory[0]).numpy()} if memory else decision

    def _memory(self, state: Tree | None, first: Array) -> tuple[Tensor, ...]:
        """Return the memory [B, S] before this row; nothing if the network has none."""
        size = self._network.state_size
        if not size:
            return ()
        if state is None:
            return (torch.zeros(len(first), size, device=self._device),)
        return (reset_state(move(np.asarray(state), self._device), move(first, self._device)),)

    def _highest(self, scores: Tensor) -> Tensor:
        """Return the choice with the highest score in each branch, [B, branches], of scores [B, n]."""
        return torch.stack([part.max(1).indices for part in torch.split(scores, self._nvec, dim=1)], dim=1)

    def _explore(self, choice: Tensor, allowed: Tensor | None) -> Tensor:
        """Replace rows by random choices that the mask allows, with probability epsilon."""
        num_rows = len(choice)
        chance = torch.rand(num_rows, 1, device=self._device, generator=self._generator)
        noise = torch.rand(num_rows, sum(self._nvec), device=self._device, generator=self._generator)
        if allowed is not None:
            noise.masked_fill_(~allowed, -1.0)
        return torch.where(chance < self._epsilon, self._highest(noise), choice)

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self._epsilon = float(fetch(self._network.epsilon))
        self.version = version

    def state(self) -> State:
        return {"generator": self._generator.get_state().numpy().copy()}

    def restore(self, state: State) -> None:
        self._generator.set_state(torch.from_numpy(state["generator"].copy()))
