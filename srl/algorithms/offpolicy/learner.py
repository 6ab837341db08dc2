"""Gradient steps of several networks, each with its own optimizer, and their target networks."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.training.devices import fetch, move, place, resolve_device
from srl.algorithms.training.learner import FlatAdam
from srl.algorithms.training.ranks import NotFiniteError, Ranks, backend_for
from srl.api.trainer import TrainerGroup
from srl.base.tree import Array
from srl.networks.parameters import FlatParameters


class ModuleLearner:
    """Everything that an update of several networks changes, so that it can be rolled back.

    `modules` are the networks that learn, by name; the first one is what policies load. `targets` are the names of
    those that have a target network. `kept` holds further arrays of the state, which the caller changes in place.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        targets: tuple[str, ...],
        device: str,
        adam_eps: float,
        kept: Mapping[str, Array],
    ) -> None:
        self._modules = {name: module.train() for name, module in modules.items()}
        self._target_names = targets
        self._wanted_device = device
        self._adam_eps = adam_eps
        self._kept = kept
        self.ranks = Ranks()
        self._move_to(resolve_device(device))

    def _move_to(self, device: torch.device) -> None:
        self.device = device
        self.flat = {
            name: FlatParameters(place(module, device), gradients=True) for name, module in self._modules.items()
        }
        self.targets = {name: copy.deepcopy(self._modules[name]) for name in self._target_names}
        self.flat_targets = {name: FlatParameters(target, gradients=False) for name, target in self.targets.items()}
        self.adam = {name: FlatAdam(flat.trainable, self._adam_eps) for name, flat in self.flat.items()}
        first = next(iter(self._modules))
        tensors: dict[str, Tensor] = {}
        for name, flat in self.flat.items():
            own = {**self.adam[name].tensors(), "parameters": flat.values}
            tensors |= {key if name == first else f"{name}/{key}": tensor for key, tensor in own.items()}
        tensors |= {f"target/{name}": flat.values for name, flat in self.flat_targets.items()}
        self._tensors = tensors
        self._backup = {name: tensor.clone() for name, tensor in tensors.items()}
        self._parameters = self.flat[first].values

    def networks(self) -> list[nn.Module]:
        """Return all networks, including target networks."""
        return [*self._modules.values(), *self.targets.values()]

    def back_up(self) -> None:
        for name, tensor in self._tensors.items():
            self._backup[name].copy_(tensor)

    def roll_back(self) -> None:
        for name, tensor in self._tensors.items():
            tensor.copy_(self._backup[name])

    def descend(self, name: str, learning_rate: float, max_norm: float | None = None) -> None:
        """Take one Adam step with the mean gradient of all ranks, and clear the gradient. With `max_norm`, a larger
        gradient is scaled down to it."""
        gradients = self.flat[name].gradients
        if self.ranks.size > 1:
            self.ranks.add(gradients)
            gradients.div_(self.ranks.size)
        if max_norm is not None:
            norm = torch.linalg.vector_norm(gradients)
            gradients.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
        self.adam[name].step(gradients, learning_rate)
        gradients.zero_()

    def check_finite(self) -> None:
        """Raise NotFiniteError if a parameter is not finite; all ranks have the same parameters."""
        for flat in self.flat.values():
            if not math.isfinite(float(fetch(flat.values.sum()))):
                raise NotFiniteError

    def follow(self, name: str, tau: float) -> None:
        """Move a target network towards its network by a share `tau`; 1 copies it."""
        target, source = self.flat_targets[name].values, self.flat[name].trainable
        if tau == 1.0:
            target[: len(source)].copy_(source)
        else:
            target[: len(source)].lerp_(source, tau)
        self.copy_constants()

    def copy_constants(self) -> None:
        """Copy what has no gradient, such as statistics of observations, to the target networks."""
        for name, target in self.flat_targets.items():
            size = len(self.flat[name].trainable)
            target.values[size:].copy_(self.flat[name].values[size:])

    def parameters(self) -> Array:
        return fetch(self._parameters).numpy()

    def state(self) -> dict[str, Array]:
        return {**{name: fetch(tensor).numpy() for name, tensor in self._tensors.items()}, **self._kept}

    def restore(self, state: Mapping[str, Array]) -> None:
        expected = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}
        expected |= {name: array.shape for name, array in self._kept.items()}
        found = {name: np.shape(array) for name, array in state.items()}
        if expected != found:
            raise ValueError(f"the state belongs to another network or algorithm: expected {expected}, found {found}")
        for name, tensor in self._tensors.items():
            tensor.copy_(move(np.asarray(state[name]), self.device, wait=True))
        for name, array in self._kept.items():
            array[...] = state[name]

    def join(self, group: TrainerGroup) -> None:
        devices = [resolve_device(self._wanted_device, rank) for rank in range(group.size)]
        if devices[group.rank] != self.device:
            state = {name: array.copy() for name, array in self.state().items()}
            self._move_to(devices[group.rank])
            self.restore(state)
        self.ranks.join(group, backend_for(devices))
        self.ranks.copy_first((*self._tensors.values(), *map(torch.from_numpy, self._kept.values())))
