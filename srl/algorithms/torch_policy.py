"""A policy that runs an actor-critic network in torch."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.backpropagation import build_pass
from srl.networks.distributions.distribution import Distribution
from srl.networks.memory.recurrent import reset_state
from srl.networks.network import as_network
from srl.networks.parameters import FlatParameters


class TorchPolicy(Policy):
    """Policy that runs an actor-critic. Its decisions have `action`, `log_prob` and `value`, and `state` if the network
    has a memory. Box actions are not clipped; the environment adapter does that."""

    def __init__(self, network: nn.Module, distribution: Distribution, seed: int, device: str = "cpu") -> None:
        self._distribution = distribution
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._pass = build_pass(network, self._flat.gradients)
        self._network = network
        self._state_size = as_network(network).state_size
        self._generator = torch.Generator(self._device).manual_seed(seed)
        # Guards the network's buffers and the generator; not held while results are copied back from the device.
        self._computing = threading.Lock()

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode():
            inputs = map_tree(lambda array: move(array, self._device), observation)
            memory = self._memory(state, first) if self._state_size else None
            with self._computing:
                if memory is None:
                    parameters, value = self._pass.forward(inputs)
                else:
                    parameters, value, memory = self._network(inputs, memory)
                if greedy:
                    action = self._distribution.mode(parameters)
                else:
                    action = self._distribution.sample(parameters, self._generator)
                log_prob = self._distribution.log_prob(parameters, action)
        decision: dict[str, Tree] = {
            "action": map_tree(lambda tensor: fetch(tensor).numpy(), action),
            "log_prob": fetch(log_prob).numpy(),
            "value": fetch(value).numpy(),
        }
        return decision if memory is None else {**decision, "state": fetch(memory).numpy()}

    def _memory(self, state: Tree | None, first: Array) -> Tensor:
        """Return the memory [B, S] before this row."""
        if state is None:
            return torch.zeros(len(first), self._state_size, device=self._device)
        return reset_state(move(np.asarray(state), self._device), move(first, self._device))

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self.version = version

    def state(self) -> State:
        return {"generator": self._generator.get_state().numpy().copy()}

    def restore(self, state: State) -> None:
        self._generator.set_state(torch.from_numpy(state["generator"].copy()))
