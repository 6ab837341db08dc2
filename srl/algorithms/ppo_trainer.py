"""The PPO trainer: one batch in, a few clipped gradient steps on one flat vector of parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from srl.algorithms.adam import FlatAdam
from srl.algorithms.devices import fetch, move, place, resolve_device
from srl.algorithms.group import Ranks, backend_for
from srl.algorithms.ppo import PPOConfig
from srl.algorithms.ppo_batch import PPOBatch
from srl.algorithms.ppo_loss import METRICS, Minibatch, Samples, ppo_gradient, ppo_metrics
from srl.api.trainer import TrainerGroup, TrainResult, Trajectory
from srl.base.tree import Array
from srl.networks.distributions import Distribution
from srl.networks.flat import FlatParameters
from srl.networks.passes import build_pass


class NotFiniteError(ArithmeticError):
    """A loss or gradient is not finite."""


class PPOTrainer:
    def __init__(self, config: PPOConfig, network: nn.Module, distribution: Distribution, seed: int) -> None:
        self._config = config
        self._distribution = distribution
        self._network = network.train()
        self._counters = np.array([seed, 0], np.int64)  # seed of the shuffles, updates done
        self._ranks = Ranks()
        self._settle(resolve_device(config.device))

    def _settle(self, device: torch.device) -> None:
        """Build all that holds tensors on a device; Adam starts anew."""
        self._device = device
        self._flat = FlatParameters(place(self._network, device), gradients=True)
        self._pass = build_pass(self._network, self._flat.gradients)
        self._adam = FlatAdam(self._flat.values, self._config.adam_eps)
        self._backup = [tensor.clone() for tensor in self._adam.tensors()]

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        for backup, tensor in zip(self._backup, self._adam.tensors(), strict=True):
            backup.copy_(tensor)
        try:
            # Numbers that are not finite are found further on, not warned about on the way.
            with np.errstate(all="ignore"):
                samples = PPOBatch(batch, self._config, self._ranks, self._device)
            metrics = self._update(samples, progress)
        except NotFiniteError:
            self._roll_back()
            metrics = None
        except BaseException:
            # A lost rank, say: no half an update.
            self._roll_back()
            raise
        self._counters[1] += 1
        return TrainResult(num_decisions=samples.num_samples, metrics=metrics or {}, skipped=metrics is None)

    def _roll_back(self) -> None:
        for backup, tensor in zip(self._backup, self._adam.tensors(), strict=True):
            tensor.copy_(backup)

    def _update(self, samples: PPOBatch, progress: float) -> dict[str, float]:
        config = self._config
        learning_rate = config.learning_rate * (1.0 - progress) if config.anneal else config.learning_rate
        if samples.num_samples == 0:
            return {"learning_rate": learning_rate}
        seen: list[Samples] = []
        grad_norms: list[float] = []
        shuffle = np.random.Generator(np.random.Philox(key=self._shuffle_key(), counter=[0, 0, 0, self._counters[1]]))
        for _ in range(config.epochs):
            for observation, minibatch, weight in samples.minibatches(shuffle):
                seen.append(self._accumulate(observation, minibatch, weight))
                grad_norms.append(self._descend(learning_rate))
        # In float64, which not every device has: on the CPU.
        sums = ppo_metrics(Samples(*(fetch(torch.cat(column)) for column in zip(*seen, strict=True))), config.clip)
        self._ranks.add(sums)
        means = (sums / (samples.num_samples * config.epochs)).tolist()
        if not all(map(math.isfinite, means)):
            raise NotFiniteError
        return {
            **dict(zip(METRICS, means, strict=True)),
            "explained_variance": samples.explained_variance,
            "grad_norm": sum(grad_norms) / len(grad_norms),
            "learning_rate": learning_rate,
        }

    def _shuffle_key(self) -> list[int]:
        return [int(self._counters[0]), self._ranks.rank]

    def _accumulate(self, observation: Any, minibatch: Minibatch, weight: float) -> Samples:
        """The gradient of one minibatch, into the flat gradient."""
        config = self._config
        if len(minibatch.advantage) == 0:
            # Fewer rows than minibatches: the other ranks have some, and wait for us.
            self._flat.gradients.zero_()
            return Samples(*[minibatch.advantage] * 4)
        parameters, value = self._pass.forward(observation)
        parameters_gradient, value_gradient, samples = ppo_gradient(
            self._distribution,
            parameters,
            value,
            minibatch,
            clip=config.clip,
            value_coefficient=config.value_coefficient,
            entropy_coefficient=config.entropy_coefficient,
            weight=weight,
        )
        self._pass.backward(parameters_gradient, value_gradient)
        return samples

    def _descend(self, learning_rate: float) -> float:
        """One step of Adam on the gradient of all ranks, its norm clipped; returns the norm before the clip."""
        gradients = self._flat.gradients
        self._ranks.add(gradients)
        norm = float(fetch(torch.linalg.vector_norm(gradients)))
        if not math.isfinite(norm):
            raise NotFiniteError  # on all ranks: they have the same gradient
        if norm > self._config.max_grad_norm:
            gradients.mul_(self._config.max_grad_norm / norm)
        self._adam.step(gradients, learning_rate)
        return norm

    def parameters(self) -> Array:
        return fetch(self._flat.values).numpy()

    def state(self) -> Mapping[str, Array]:
        return {**{name: fetch(tensor).numpy() for name, tensor in self._tensors().items()}, "counters": self._counters}

    def _tensors(self) -> dict[str, Tensor]:
        values, exp_avg, exp_avg_sq, num_steps = self._adam.tensors()
        return {"parameters": values, "exp_avg": exp_avg, "exp_avg_sq": exp_avg_sq, "num_steps": num_steps}

    def restore(self, state: Mapping[str, Array]) -> None:
        own = self._tensors()
        shapes = {**{name: tuple(tensor.shape) for name, tensor in own.items()}, "counters": self._counters.shape}
        found = {name: np.shape(array) for name, array in state.items()}
        if shapes != found:
            raise ValueError(f"this state is of another network or algorithm: wanted {shapes}, found {found}")
        for name, tensor in own.items():
            tensor.copy_(move(np.asarray(state[name]), self._device, wait=True))
        self._counters[...] = state["counters"]

    def join(self, group: TrainerGroup) -> None:
        devices = [resolve_device(self._config.device, rank) for rank in range(group.size)]
        if devices[group.rank] != self._device:
            # Only now do we know our rank: it may have a GPU of its own.
            state = self.state()
            self._settle(devices[group.rank])
            self.restore(state)
        self._ranks.join(group, backend_for(devices))
        self._ranks.copy_first((*self._adam.tensors(), torch.from_numpy(self._counters)))
