"""A policy that runs an actor-critic network in torch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from srl.api.policy import Decision
from srl.base.tree import Array, Tree, map_tree
from srl.networks.distributions import Distribution
from srl.networks.flat import FlatParameters
from srl.networks.passes import build_pass


def to_tensor(array: Array) -> Tensor:
    """Shares the array's memory, but for a read-only array: torch has no such thing."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


class TorchPolicy:
    """Decides with `action`, `log_prob` and `value`; has no memory. Box actions are not clipped: the adapter does."""

    def __init__(self, network: nn.Module, distribution: Distribution, seed: int) -> None:
        self.version = -1
        self._distribution = distribution
        self._flat = FlatParameters(network.eval(), gradients=False)
        self._pass = build_pass(network, self._flat.gradients)
        self._generator = torch.Generator().manual_seed(seed)

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode():
            parameters, value = self._pass.forward(map_tree(to_tensor, observation))
            if greedy:
                action = self._distribution.mode(parameters)
            else:
                action = self._distribution.sample(parameters, self._generator)
            log_prob = self._distribution.log_prob(parameters, action)
        return {"action": action.numpy(), "log_prob": log_prob.numpy(), "value": value.numpy()}

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(to_tensor(parameters))
        self.version = version
