"""The trainer of algorithms that learn from replayed transitions: the loop over the minibatches of an update."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.actor_critic import scheduled
from srl.algorithms.offpolicy.config import OffPolicyConfig
from srl.algorithms.offpolicy.learner import ModuleLearner
from srl.algorithms.offpolicy.normalization import NewObservations
from srl.algorithms.training.devices import fetch, move
from srl.algorithms.training.ranks import NotFiniteError
from srl.api.dataflow import SequenceBatch, TransitionBatch
from srl.api.trainer import Trainer, TrainerGroup, TrainResult
from srl.base.tree import Array, map_tree


class Minibatch(NamedTuple):
    """Tensors of one gradient step, each [B, ...], on the trainer's device."""

    observation: Any
    action: Any
    reward: Tensor
    discount: Tensor
    next_observation: Any
    weight: Tensor


class TransitionTrainer(Trainer):
    """Base class. Subclasses build the `learner` and implement `gradient_step`, `minibatch` if they do not learn from
    transitions, and `explore` if their policies need to know the progress of the run."""

    learner: ModuleLearner
    observations: NewObservations | None = None

    def __init__(self, config: OffPolicyConfig, seed: int) -> None:
        self.config: Any = config
        self.counters = np.array([seed, 0], np.int64)  # seed, number of gradient steps; in the learner's `kept` arrays

    @abstractmethod
    def gradient_step(self, batch: Any, learning_rate: float) -> tuple[dict[str, Tensor], Tensor]:
        """Learn from one minibatch. Return metrics as scalar tensors and absolute errors [B] for the priorities."""

    def explore(self, progress: float, learning: bool) -> None:
        """Write what exploration depends on into the parameters of the policy. `learning`: the warm-up has ended."""

    @property
    def num_steps(self) -> int:
        """Number of gradient steps so far."""
        return int(self.counters[1])

    def step(self, batch: TransitionBatch | SequenceBatch, progress: float) -> TrainResult:
        learner, ranks = self.learner, self.learner.ranks
        new = torch.tensor([float(batch.num_decisions)], dtype=torch.float64)
        ranks.add(new)
        if batch.num_steps == 0:
            try:
                self._observe(batch)
            except NotFiniteError:
                return TrainResult(int(new), skipped=True)
            self.explore(progress, learning=self.num_steps > 0)  # a resumed run refills its replay with what it knows
            return TrainResult(int(new))
        batch, config = self._on_one_scale(batch), self.config
        rate = scheduled(config.learning_rate_schedule, config.learning_rate, config.learning_rate_final, progress)
        learner.back_up()
        before = self.num_steps
        try:
            if before == 0:  # the first gradient step needs statistics, also of data that is recorded
                self._observe(batch)
            metrics, errors = self._gradient_steps(batch, rate)
            learner.check_finite()
            if before > 0:
                self._observe(batch)
        except NotFiniteError:
            learner.roll_back()
            self.counters[1] = before
            return TrainResult(int(new), skipped=True)
        except BaseException:
            # For example, a rank was lost: do not keep a partial update.
            learner.roll_back()
            self.counters[1] = before
            raise
        self.explore(progress, learning=True)
        metrics |= {"learning_rate": rate, "gradient_steps": float(self.num_steps)}
        return TrainResult(int(new), metrics, priorities=errors)

    def _on_one_scale(self, batch: Any) -> Any:
        """Return the batch with importance weights that are divided by their maximum over all ranks, not over this one:
        then the mean gradient of all ranks is that of one trainer with all minibatches."""
        ranks = self.learner.ranks
        if ranks.size == 1 or batch.largest_weight is None:
            return batch
        own = torch.from_numpy(batch.largest_weight.copy())
        largest = own.clone()
        ranks.highest(largest)
        scale = (own / largest).numpy().astype(np.float32)[:, None]
        return replace(batch, weight=batch.weight * scale)

    def _observe(self, batch: Any) -> None:
        """Add the new observations to the statistics, after an update but the first: one that is skipped changes
        nothing."""
        if self.observations is not None:
            self.observations.fold(batch.new, self.learner.networks(), self.learner.ranks)

    def _gradient_steps(self, batch: Any, rate: float) -> tuple[dict[str, float], Array]:
        found: list[dict[str, Tensor]] = []
        errors = np.empty_like(batch.weight)
        device = self.learner.device
        for k in range(batch.num_steps):
            own = self.minibatch(batch, k, device)
            self.counters[1] += 1
            metrics, error = self.gradient_step(own, rate)
            found.append(metrics)
            errors[k] = fetch(error.detach()).numpy()
        names = dict.fromkeys(name for one in found for name in one)
        means = {}
        for name in names:
            values = torch.stack([one[name].detach() for one in found if name in one])
            means[name] = float(fetch(values.mean()))
        return means, errors

    def minibatch(self, batch: Any, k: int, device: torch.device) -> Any:
        """Return the tensors of gradient step `k`, for `gradient_step`. Default: a `Minibatch` of transitions."""

        def pick(array: Array) -> Tensor:
            return move(array[k], device)

        return Minibatch(
            map_tree(pick, batch.observation),
            map_tree(pick, batch.decision["action"]),
            pick(batch.reward),
            pick(batch.discount),
            map_tree(pick, batch.next_observation),
            pick(batch.weight),
        )

    def parameters(self) -> Array:
        return self.learner.parameters()

    def state(self) -> Mapping[str, Array]:
        return self.learner.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        self.learner.restore(state)

    def join(self, group: TrainerGroup) -> None:
        self.learner.join(group)

    def lowest(self, number: int) -> int:
        return self.learner.ranks.lowest(number)

    def reconfigure(self, config: OffPolicyConfig) -> None:
        self.config = config
