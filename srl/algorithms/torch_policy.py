"""A policy that runs an actor-critic network in torch."""

from __future__ import annotations

import threading

import torch
from torch import nn

from srl.algorithms.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision
from srl.base.tree import Array, Tree, map_tree
from srl.networks.distributions import Distribution
from srl.networks.flat import FlatParameters
from srl.networks.passes import build_pass


class TorchPolicy:
    """Decides with `action`, `log_prob` and `value`; has no memory. Box actions are not clipped: the adapter does."""

    def __init__(self, network: nn.Module, distribution: Distribution, seed: int, device: str = "cpu") -> None:
        self.version = -1
        self._distribution = distribution
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._pass = build_pass(network, self._flat.gradients)
        self._generator = torch.Generator(self._device).manual_seed(seed)
        # The network's buffers and the generator serve one call at a time; the way back from the device is outside.
        self._computing = threading.Lock()

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode():
            inputs = map_tree(lambda array: move(array, self._device), observation)
            with self._computing:
                parameters, value = self._pass.forward(inputs)
                if greedy:
                    action = self._distribution.mode(parameters)
                else:
                    action = self._distribution.sample(parameters, self._generator)
                log_prob = self._distribution.log_prob(parameters, action)
        return {"action": fetch(action).numpy(), "log_prob": fetch(log_prob).numpy(), "value": fetch(value).numpy()}

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self.version = version
