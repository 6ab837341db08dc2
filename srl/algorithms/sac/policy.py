"""The policy of SAC, TD3 and DDPG: its decisions hold only the action."""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from srl.algorithms.sac.exploration import NoisyActions
from srl.algorithms.sac.networks import inner_actor
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.api.policy import Decision, Policy
from srl.base.state import State
from srl.base.tree import Array, Tree, map_tree
from srl.networks.distributions.distribution import Distribution
from srl.networks.distributions.squashed_gaussian import SquashedGaussian
from srl.networks.network import Network
from srl.networks.parameters import FlatParameters


class ReplayPolicy(Policy):
    """Policy that samples from the actor's distribution or, in the warm-up, acts uniformly at random."""

    def __init__(
        self, network: Network, distribution: Distribution | NoisyActions, seed: int, device: str = "cpu"
    ) -> None:
        self._distribution = distribution
        self._device = resolve_device(device)
        self._flat = FlatParameters(place(network.eval(), self._device), gradients=False)
        self._network = network
        self._uniform = 0.0
        self._generator = torch.Generator(self._device).manual_seed(seed)
        # Guards the generator and the parameters; not held while results are copied back from the device.
        self._computing = threading.Lock()

    def act(self, observation: Tree, state: Tree | None, first: Array, *, greedy: bool = False) -> Decision:
        with torch.inference_mode():
            inputs = map_tree(lambda array: move(array, self._device), observation)
            with self._computing:
                parameters = self._network(inputs)[0]
                if greedy:
                    action = self._distribution.mode(parameters)
                else:
                    action = self._explore(parameters)
        return {"action": fetch(action).numpy()}

    def _explore(self, parameters: Tensor) -> Tensor:
        if self._uniform == 0.0:
            sampled: Tensor = self._distribution.sample(parameters, self._generator)
            return sampled
        random = self._random(parameters)
        if self._uniform == 1.0:
            return random
        sampled = self._distribution.sample(parameters, self._generator)
        rows = (len(parameters), *(1,) * (random.dim() - 1))
        chosen = torch.rand(rows, generator=self._generator, device=self._device) < self._uniform
        return torch.where(chosen, random, sampled)

    def _random(self, parameters: Tensor) -> Tensor:
        """Return uniformly random actions: of the allowed choices, or between the bounds."""
        distribution = self._distribution
        if isinstance(distribution, (SquashedGaussian, NoisyActions)):
            unit = torch.empty(len(parameters), distribution.action_size, device=self._device)
            unit.uniform_(-1.0, 1.0, generator=self._generator)
            return distribution.scaling.to_native(unit).reshape(-1, *distribution.shape)
        # Masked choices have a logit so low that they stay forbidden.
        flat = torch.where(parameters > -1e8, 0.0, parameters)
        chosen: Tensor = distribution.sample(flat, self._generator)
        return chosen

    def load(self, parameters: Array, version: int) -> None:
        self._flat.load(move(parameters, self._device, wait=True))
        self._uniform = inner_actor(self._network).uniform
        self.version = version

    def state(self) -> State:
        return {"generator": self._generator.get_state().numpy().copy()}

    def restore(self, state: State) -> None:
        self._generator.set_state(torch.from_numpy(state["generator"].copy()))
