"""PPG's auxiliary phase: values are learned by the layers that decide, while the decisions are kept."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.batch import PPOBatch
from srl.algorithms.ppo.estimates import Estimates, evaluate_anew
from srl.algorithms.ppo.loss import METRICS, Coefficients, Minibatch, Samples, ppo_gradient, ppo_metrics
from srl.algorithms.training.devices import fetch
from srl.algorithms.training.finite import NotFiniteError
from srl.algorithms.training.learner import Learner
from srl.api.trainer import Trajectory
from srl.base.state import State, part, under
from srl.base.tree import Array, from_leaves, leaves, map_tree
from srl.networks.distributions.discrete import Distribution


def auxiliary_coefficients(config: PPGConfig, deviation: float) -> Coefficients:
    """Of the loss in a phase, in which advantages are 0. `deviation` is that of the returns."""
    return Coefficients(
        clip=None, value=config.value_coefficient / deviation**2, entropy=0.0, kl=config.clone_coefficient
    )


def detachable(network: nn.Module) -> list[Any]:
    """The parts of a network that can keep their values from the layers they share with the actor."""
    heads = [module for module in network.modules() if hasattr(module, "detach_value")]
    if not heads:
        raise ValueError(
            f"ppg needs a network whose values can be kept from the actor's layers, and {type(network).__name__} has "
            "no part with an attribute `detach_value`. While it is true, compute values from `features.detach()`: see "
            "docs/howto/policy.md"
        )
    return heads


class AuxiliaryPhase:
    """Keeps copies of batches with the targets of their values. They are not part of what is committed, of which they
    would be most: after a trainer's death, or with another number of ranks, the next phase has fewer batches. Where all
    that is under way is saved, in a run of one thread, so are they."""

    def __init__(self, config: PPGConfig, network: nn.Module, distribution: Distribution) -> None:
        self._config = replace(config, normalize_advantage="none", value_clip=None)
        self._distribution = distribution
        self._heads = detachable(network)
        self._kept: list[tuple[Trajectory, Array]] = []  # batches, targets [T, B]
        self._detach(True)

    def _detach(self, detached: bool) -> None:
        for head in self._heads:
            head.detach_value = detached

    def keep(self, batch: Trajectory, target: Array) -> None:
        """A trainer's arrays are reused: these are copies."""
        parts = {name: map_tree(np.copy, value) for name, value in vars(batch).items() if value is not None}
        self._kept.append((Trajectory(**parts), target))

    def forget(self) -> None:
        self._kept.clear()

    def state(self) -> State:
        """The batches since the last phase."""
        found: dict[str, Array] = {}
        for number, (batch, target) in enumerate(self._kept):
            parts = {name: value for name, value in vars(batch).items() if value is not None}
            found |= under(str(number), {"target": target, **{f"batch/{path}": leaf for path, leaf in leaves(parts)}})
        return found

    def restore(self, state: State) -> None:
        count = len({key.partition("/")[0] for key in state})
        saved = [part(state, str(number)) for number in range(count)]
        self._kept = [(Trajectory(**from_leaves(part(one, "batch"))), one["target"]) for one in saved]

    def is_due(self, update: int) -> bool:
        """`update` counts from 0."""
        return (update + 1) % self._config.auxiliary_every == 0 and bool(self._kept)

    def run(
        self, learner: Learner, learning_rate: float, update: int, shuffle: np.random.Generator
    ) -> dict[str, float]:
        """Cobbe et al. 2021, eq. 4 with one network: half the squared error of the value, plus the divergence from the
        policy as it is now. The latter is estimated from the actions that were taken, as in PPO's loss."""
        deviation = learner.normalizers.deviation
        coefficients = auxiliary_coefficients(self._config, deviation)
        batches = [self._samples(batch, target, learner) for batch, target in self._kept]
        self.forget()
        order = np.random.default_rng(update)  # of the batches: the same for all ranks
        seen: list[Samples] = []
        self._detach(False)
        try:
            for _ in range(self._config.auxiliary_epochs):
                seen = []  # figures are those of the last pass
                for i in order.permutation(len(batches)):
                    for observation, minibatch, weight in batches[i].minibatches(shuffle):
                        seen += self._accumulate(learner, observation, minibatch, coefficients, weight)
                        learner.descend(learning_rate)
        finally:
            self._detach(True)
        return self._figures(seen, coefficients, learner, sum(batch.num_samples for batch in batches), deviation)

    def _samples(self, batch: Trajectory, target: Array, learner: Learner) -> PPOBatch:
        """A kept batch whose log-probabilities are those of the present policy, and whose advantages are 0."""
        fresh = evaluate_anew(
            learner.network_pass, self._distribution, batch, learner.device, self._config.num_minibatches
        )
        estimates = Estimates(fresh.log_prob[:-1], fresh.value[:-1], np.zeros_like(target), target)
        return PPOBatch(batch, estimates, self._config, learner.ranks, learner.device)

    def _accumulate(
        self, learner: Learner, observation: Any, minibatch: Minibatch, coefficients: Coefficients, weight: float
    ) -> list[Samples]:
        if len(minibatch.advantage) == 0:
            learner.flat.gradients.zero_()  # the other ranks have some rows, and wait for us
            return []
        parameters, value = learner.network_pass.forward(observation)
        parameters_gradient, value_gradient, samples = ppo_gradient(
            self._distribution, parameters, value, minibatch, coefficients, weight
        )
        learner.network_pass.backward(parameters_gradient, value_gradient)
        return [samples]

    def _figures(
        self, seen: list[Samples], coefficients: Coefficients, learner: Learner, num_samples: int, deviation: float
    ) -> dict[str, float]:
        sums = torch.zeros(len(METRICS), dtype=torch.float64)
        if seen:
            columns = zip(*seen, strict=True)
            sums += ppo_metrics(Samples(*(fetch(torch.cat(column)) for column in columns)), coefficients)
        learner.ranks.add(sums)
        means = dict(zip(METRICS, (sums / max(num_samples, 1)).tolist(), strict=True))
        if not all(map(math.isfinite, means.values())):
            raise NotFiniteError
        return {"auxiliary_kl": means["approx_kl"], "auxiliary_value_loss": means["value_loss"] / deviation**2}
