"""A policy that takes the action with the highest Q value, and random actions with probability epsilon."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from srl.algorithms.dqn.network import QNetwork
from srl.algorithms.dqn.noisy import noisy_layers
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.parameters import FlatParameters


class QPolicy(Policy):
    """Epsilon-greedy policy of a Q network. The network's parameters include epsilon. With noisy layers, each decision
    draws new noise; greedy decisions have none."""

    def __init__(self, network: QNetwork, is_discrete: bool, seed: int, device: str = "cpu") -> None:
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._network = network
        self._noisy = noisy_layers(network)
        self._is_discrete = is_discrete
        self._epsilon = 1.0
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._computing = threading.Lock()  # guards the noise and the generator

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode(), self._computing:
            inputs = map_tree(lambda array: move(array, self._device), observation)
            allowed = self._network.split(inputs)[1]
            if greedy or self._epsilon < 1.0:
                choice = self._best(inputs, greedy)
            else:
                choice = self._random(len(first), allowed)
            if not greedy and 0.0 < self._epsilon < 1.0:
                choice = self._explore(choice, self._epsilon, allowed)
            action = choice[:, 0] if self._is_discrete else choice
        return {"action": fetch(action).numpy()}

    def _best(self, inputs: Tree, greedy: bool) -> Tensor:
        """Return the best choice of each branch, [B, branches]."""
        for layer in self._noisy:
            layer.silence() if greedy else layer.resample(self._generator)
        values = self._network(inputs)[0]
        parts = torch.split(values, list(self._network.nvec), dim=1)
        return torch.stack([part.max(1).indices for part in parts], dim=1)

    def _random(self, num_rows: int, allowed: Tensor | None) -> Tensor:
        """Draw choices [B, branches] uniformly from those that the mask allows."""
        nvec = self._network.nvec
        noise = torch.rand(num_rows, sum(nvec), device=self._device, generator=self._generator)
        if allowed is not None:
            noise.masked_fill_(~allowed, -1.0)
        return torch.stack([part.max(1).indices for part in torch.split(noise, list(nvec), dim=1)], dim=1)

    def _explore(self, choice: Tensor, epsilon: float | Tensor, allowed: Tensor | None) -> Tensor:
        """Replace rows by random choices with probability `epsilon`, one number or one per row [B, 1]."""
        num_rows = len(choice)
        chosen = torch.rand(num_rows, 1, device=self._device, generator=self._generator) < epsilon
        return torch.where(chosen, self._random(num_rows, allowed), choice)

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self._epsilon = float(fetch(self._network.epsilon))
        self.version = version

    def state(self) -> State:
        return {"generator": self._generator.get_state().numpy().copy()}

    def restore(self, state: State) -> None:
        self._generator.set_state(torch.from_numpy(state["generator"].copy()))
