"""A policy that takes the action with the highest Q value, and random actions with probability epsilon."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.dqn.noisy import noisy_layers
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.memory.recurrent import reset_state
from srl.networks.parameters import FlatParameters


class QPolicy(Policy):
    """Epsilon-greedy policy of a Q network. The network's parameters include epsilon. Lanes at position u explore with
    the probability epsilon^(1 + spread * u). With noisy layers, each decision draws new noise; greedy decisions have
    none. A network with a memory adds `state` to the decisions. With `tells_values`, decisions have `value` and
    `action_value`, from which replay computes priorities. The network has the attributes of a `QNetwork`.
    """

    def __init__(
        self,
        network: Any,
        is_discrete: bool,
        spread: float,
        seed: int,
        device: str = "cpu",
        tells_values: bool = False,
    ) -> None:
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._network = network
        self._noisy = noisy_layers(network)
        self._is_discrete = is_discrete
        self._state_size = network.state_size
        self._spread = spread
        self._tells_values = tells_values
        self._epsilon = 1.0
        self._generator = torch.Generator(self._device).manual_seed(seed)
        self._computing = threading.Lock()  # guards the noise and the generator

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        return self._decide(observation, state, first, greedy, self._epsilon ** (1.0 + self._spread))

    def explore(self, observation: Tree, state: Tree | None, first: Array, position: Array) -> Decision:
        epsilon = move(np.power(self._epsilon, 1.0 + self._spread * position[:, None]), self._device)
        return self._decide(observation, state, first, False, epsilon)

    def _decide(
        self, observation: Tree, state: Tree | None, first: Array, greedy: bool, epsilon: float | Tensor
    ) -> Decision:
        """Return decisions. `epsilon`: one number or one per row [B, 1]."""
        with torch.inference_mode(), self._computing:
            inputs = map_tree(lambda array: move(array, self._device), observation)
            allowed = self._network.split(inputs)[1]
            is_random = not greedy and self._epsilon >= 1.0
            memory, values = None, None
            if self._state_size or self._tells_values or not is_random:
                choice, values, memory = self._best(inputs, state, first, greedy)
                best = choice
            if is_random:
                choice = self._random(len(first), allowed)
            elif not greedy and self._epsilon > 0.0:
                choice = self._explore(choice, epsilon, allowed)
            action = choice[:, 0] if self._is_discrete else choice
            decision = {"action": fetch(action).numpy()}
            if self._tells_values:
                assert values is not None
                decision["value"] = fetch(self._mean_of(values, best)).numpy()
                decision["action_value"] = fetch(self._mean_of(values, choice)).numpy()
        return decision if memory is None else {**decision, "state": fetch(memory).numpy()}

    def _mean_of(self, values: Tensor, choice: Tensor) -> Tensor:
        """Return the values [B] of choices [B, branches], the mean over the branches."""
        parts = torch.split(values, list(self._network.nvec), dim=1)
        return torch.stack(
            [part.gather(1, own[:, None])[:, 0] for part, own in zip(parts, choice.T, strict=True)]
        ).mean(0)

    def _best(
        self, inputs: Tree, state: Tree | None, first: Array, greedy: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the best choice of each branch, [B, branches], all values [B, n], and the memory after it."""
        for layer in self._noisy:
            layer.silence() if greedy else layer.resample(self._generator)
        values, _, memory = self._run(inputs, state, first)
        parts = torch.split(values, list(self._network.nvec), dim=1)
        return torch.stack([part.max(1).indices for part in parts], dim=1), values, memory

    def _run(self, inputs: Tree, state: Tree | None, first: Array) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return Q values [B, n], the value of the best choices [B] and the memory after them."""
        if not self._state_size:
            return *self._network(inputs), None
        if state is None:
            memory = torch.zeros(len(first), self._state_size, device=self._device)
        else:
            memory = reset_state(move(np.asarray(state), self._device), move(first, self._device))
        result: tuple[Tensor, Tensor, Tensor] = self._network(inputs, memory)
        return result

    def value(self, observation: Tree, state: Tree | None, first: Array) -> Array:
        with torch.inference_mode(), self._computing:
            for layer in self._noisy:
                layer.silence()
            inputs = map_tree(lambda array: move(array, self._device), observation)
            return fetch(self._run(inputs, state, first)[1]).numpy()

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
