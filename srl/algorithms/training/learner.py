"""The part of a trainer that makes gradient steps: network, device, optimizer, normalizers and ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.algorithms.training.normalizers import Normalizers
from srl.algorithms.training.ranks import NotFiniteError, Ranks, backend_for
from srl.api.trainer import TrainerGroup
from srl.base.tree import Array
from srl.networks.backpropagation import build_pass
from srl.networks.parameters import FlatParameters


class FlatAdam:
    """Adam (Kingma & Ba 2015) on one flat vector. It calls torch's fused kernel directly: `torch.optim.Adam` adds 30 us
    per step, as much as a layer of a small network, and keeps its state in a dictionary."""

    def __init__(self, values: Tensor, eps: float = 1e-8, weight_decay: float = 0.0) -> None:
        self.values = values  # [P], updated in place
        self.exp_avg = torch.zeros_like(values)
        self.exp_avg_sq = torch.zeros_like(values)
        self.num_steps = torch.zeros((), device=values.device)
        self._state: tuple[list[Tensor], ...] = ([self.exp_avg], [self.exp_avg_sq], [], [self.num_steps])
        self._constants: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": eps, "weight_decay": weight_decay}
        self._constants |= {"amsgrad": False, "maximize": False}

    def step(self, gradients: Tensor, learning_rate: float) -> None:
        self.num_steps += 1.0
        torch._fused_adam_([self.values], [gradients], *self._state, lr=learning_rate, **self._constants)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that a step changes, including the `parameters`."""
        state = {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq, "num_steps": self.num_steps}
        return {"parameters": self.values, **state}


class Learner:
    """Everything that an update changes, so that the update can be rolled back. `kept` holds further arrays of the
    state, which the caller changes in place and which are not rolled back."""

    def __init__(self, network: nn.Module, config: ActorCriticConfig, kept: Mapping[str, Array]) -> None:
        self._config = config
        self._network = network.train()
        self._kept = kept
        self.ranks = Ranks()
        self._move_to(resolve_device(config.device))

    def _move_to(self, device: torch.device) -> None:
        """Rebuild everything that holds tensors on a device; optimizer and normalizers start from scratch."""
        self.device = device
        self.flat = FlatParameters(place(self._network, device), gradients=True)
        self.network_pass = build_pass(self._network, self.flat.gradients)
        self._adam = FlatAdam(self.flat.trainable, self._config.adam_eps, self._config.weight_decay)
        self.normalizers = Normalizers(self._network, self._config.normalize_return)
        # The parameters include normalizer statistics, which Adam does not change.
        self._tensors = {**self._adam.tensors(), "parameters": self.flat.values}
        self._statistics = self.normalizers.state()
        self._changing = [*self._tensors.values(), *map(torch.from_numpy, self._statistics.values())]
        self._backup = [tensor.clone() for tensor in self._changing]

    def reconfigure(self, config: ActorCriticConfig) -> None:
        self._config = config

    def back_up(self) -> None:
        for backup, tensor in zip(self._backup, self._changing, strict=True):
            backup.copy_(tensor)

    def roll_back(self) -> None:
        for backup, tensor in zip(self._backup, self._changing, strict=True):
            tensor.copy_(backup)

    def descend(self, learning_rate: float) -> float:
        """Take one Adam step with the clipped gradient summed over all ranks. Returns the norm before clipping."""
        gradients = self.flat.gradients
        self.ranks.add(gradients)
        norm = float(fetch(torch.linalg.vector_norm(gradients)))
        if not math.isfinite(norm):
            raise NotFiniteError  # raised on all ranks, which have the same gradient
        if norm > self._config.max_grad_norm:
            gradients.mul_(self._config.max_grad_norm / norm)
        self._adam.step(gradients, learning_rate)
        return norm

    def parameters(self) -> Array:
        return fetch(self.flat.values).numpy()

    def state(self) -> dict[str, Array]:
        tensors = {name: fetch(tensor).numpy() for name, tensor in self._tensors.items()}
        return {**tensors, **self._statistics, **self._kept}

    def restore(self, state: Mapping[str, Array]) -> None:
        arrays = {**self._statistics, **self._kept}
        expected = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        expected |= {name: array.shape for name, array in arrays.items()}
        found = {name: np.shape(array) for name, array in state.items()}
        if expected != found:
            raise ValueError(f"the state belongs to another network or algorithm: expected {expected}, found {found}")
        for name, tensor in self._tensors.items():
            tensor.copy_(move(np.asarray(state[name]), self.device, wait=True))
        for name, array in arrays.items():
            array[...] = state[name]

    def join(self, group: TrainerGroup) -> None:
        devices = [resolve_device(self._config.device, rank) for rank in range(group.size)]
        if devices[group.rank] != self.device:
            # The rank, which determines the GPU, is known only now.
            state = {name: array.copy() for name, array in self.state().items()}
            self._move_to(devices[group.rank])
            self.restore(state)
        self.ranks.join(group, backend_for(devices))
        self.ranks.copy_first((*self._changing, *map(torch.from_numpy, self._kept.values())))
