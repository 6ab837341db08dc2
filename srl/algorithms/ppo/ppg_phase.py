"""PPG's auxiliary phase: the policy's layers learn to predict values, while a penalty preserves the policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.batch import PPOBatch, learn_minibatch, mean_metrics
from srl.algorithms.ppo.estimates import Estimates, evaluate_current
from srl.algorithms.ppo.loss import Coefficients, Samples, ppo_gradient
from srl.algorithms.training.learner import Learner
from srl.api.trainer import Trajectory
from srl.base.state import State, part, under
from srl.base.tree import Array, from_leaves, leaves, map_tree
from srl.networks.distributions.distribution import Distribution
from srl.networks.network import Network


def auxiliary_coefficients(config: PPGConfig, deviation: float) -> Coefficients:
    """Return the loss coefficients for a phase, given the standard deviation of the returns. Advantages are 0."""
    return Coefficients(
        clip=None, value=config.value_coefficient / deviation**2, entropy=0.0, kl=config.clone_coefficient
    )


class AuxiliaryPhase:
    """The auxiliary phase, with copies of the batches and value targets for the next one. The copies are not committed,
    because they would dominate the size of a commit: after a trainer dies or the number of ranks changes, the next
    phase has fewer batches. They are saved only for single-threaded runs, which can be resumed exactly."""

    def __init__(self, config: PPGConfig, network: Network, distribution: Distribution) -> None:
        self._config = replace(config, normalize_advantage="none", value_clip=None)
        self._distribution = distribution
        self._network = network
        self._kept: list[tuple[Trajectory, Array]] = []  # batches, targets [T, B]
        network.detach_value(True)

    def keep(self, batch: Trajectory, target: Array) -> None:
        """Keep a copy of a batch, whose arrays are reused."""
        parts = {name: map_tree(np.copy, value) for name, value in vars(batch).items() if value is not None}
        self._kept.append((Trajectory(**parts), target))

    def clear(self) -> None:
        self._kept.clear()

    def state(self) -> State:
        """Return the batches since the last phase."""
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
        """Return whether a phase follows this update; `update` counts from 0."""
        return (update + 1) % self._config.auxiliary_every == 0 and bool(self._kept)

    def run(
        self, learner: Learner, learning_rate: float, update: int, shuffle: np.random.Generator
    ) -> dict[str, float]:
        """Minimize eq. 4 of Cobbe et al. 2021 with one network: half the squared error of the value, plus the
        divergence from the policy at the start of the phase. The divergence is estimated from the actions taken, as in
        PPO's loss. Returns metrics."""
        deviation = learner.normalizers.deviation
        coefficients = auxiliary_coefficients(self._config, deviation)
        batches = [self._samples(batch, target, learner) for batch, target in self._kept]
        self.clear()
        order = np.random.default_rng(update)  # order of the batches, the same on all ranks
        seen: list[Samples] = []
        gradient = partial(ppo_gradient, self._distribution)
        self._network.detach_value(False)
        try:
            for _ in range(self._config.auxiliary_epochs):
                seen = []  # metrics cover the last pass only
                for i in order.permutation(len(batches)):
                    for part in batches[i].minibatches(shuffle):
                        seen.append(learn_minibatch(learner, gradient, coefficients, *part))
                        learner.descend(learning_rate)
        finally:
            self._network.detach_value(True)
        num_samples = sum(batch.num_samples for batch in batches)
        means = mean_metrics(seen, coefficients, learner.ranks, max(num_samples, 1))
        return {"auxiliary_kl": means["approx_kl"], "auxiliary_value_loss": means["value_loss"] / deviation**2}

    def _samples(self, batch: Trajectory, target: Array, learner: Learner) -> PPOBatch:
        """Return a kept batch with the current policy's log-probabilities and zero advantages."""
        fresh = evaluate_current(
            learner.network_pass, self._distribution, batch, learner.device, self._config.num_minibatches
        )
        estimates = Estimates(fresh.log_prob[:-1], fresh.value[:-1], np.zeros_like(target), target)
        return PPOBatch(batch, estimates, self._config, learner.ranks, learner.device)
