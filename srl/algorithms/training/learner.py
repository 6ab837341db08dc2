"""What a gradient step needs: a network on its device, its optimizer, its normalizers, and the other ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.training.adam import FlatAdam
from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.algorithms.training.finite import NotFiniteError
from srl.algorithms.training.normalizers import Normalizers
from srl.algorithms.training.ranks import Ranks, backend_for
from srl.api.trainer import TrainerGroup
from srl.base.tree import Array
from srl.networks.flat import FlatParameters
from srl.networks.passes import build_pass


class Learner:
    """All that an update changes is here, so that an update which must not be applied can be taken back.

    `kept` are further arrays that belong to the state: they are changed in place, and not taken back.
    """

    def __init__(self, network: nn.Module, config: ActorCriticConfig, kept: Mapping[str, Array]) -> None:
        self._config = config
        self._network = network.train()
        self._kept = kept
        self.ranks = Ranks()
        self._settle(resolve_device(config.device))

    def _settle(self, device: torch.device) -> None:
        """Build all that holds tensors on a device; optimizer and normalizers start anew."""
        self.device = device
        self.flat = FlatParameters(place(self._network, device), gradients=True)
        self.network_pass = build_pass(self._network, self.flat.gradients)
        self._adam = FlatAdam(self.flat.trainable, self._config.adam_eps, self._config.weight_decay)
        self.normalizers = Normalizers(self._network, self._config.normalize_return)
        _, *moments = self._adam.tensors()
        self._tensors: dict[str, Tensor] = {
            "parameters": self.flat.values,
            **dict(zip(("exp_avg", "exp_avg_sq", "num_steps"), moments, strict=True)),
        }
        self._statistics = self.normalizers.state()
        self._backup = [tensor.clone() for tensor in self._tensors.values()]
        self._statistics_backup = [array.copy() for array in self._statistics.values()]

    def back_up(self) -> None:
        for backup, tensor in zip(self._backup, self._tensors.values(), strict=True):
            backup.copy_(tensor)
        for kept, array in zip(self._statistics_backup, self._statistics.values(), strict=True):
            kept[...] = array

    def roll_back(self) -> None:
        for backup, tensor in zip(self._backup, self._tensors.values(), strict=True):
            tensor.copy_(backup)
        for kept, array in zip(self._statistics_backup, self._statistics.values(), strict=True):
            array[...] = kept

    def descend(self, learning_rate: float) -> float:
        """One step of Adam on the gradient of all ranks, its norm clipped; returns the norm before the clip."""
        gradients = self.flat.gradients
        self.ranks.add(gradients)
        norm = float(fetch(torch.linalg.vector_norm(gradients)))
        if not math.isfinite(norm):
            raise NotFiniteError  # on all ranks: they have the same gradient
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
        wanted = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        wanted |= {name: array.shape for name, array in arrays.items()}
        found = {name: np.shape(array) for name, array in state.items()}
        if wanted != found:
            raise ValueError(f"this state is of another network or algorithm: wanted {wanted}, found {found}")
        for name, tensor in self._tensors.items():
            tensor.copy_(move(np.asarray(state[name]), self.device, wait=True))
        for name, array in arrays.items():
            array[...] = state[name]

    def join(self, group: TrainerGroup) -> None:
        devices = [resolve_device(self._config.device, rank) for rank in range(group.size)]
        if devices[group.rank] != self.device:
            # Only now do we know our rank: it may have a GPU of its own.
            state = {name: array.copy() for name, array in self.state().items()}
            self._settle(devices[group.rank])
            self.restore(state)
        self.ranks.join(group, backend_for(devices))
        arrays = [torch.from_numpy(array) for array in (*self._statistics.values(), *self._kept.values())]
        self.ranks.copy_first((*self._tensors.values(), *arrays))
