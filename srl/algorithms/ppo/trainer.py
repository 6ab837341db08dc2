"""The PPO trainer: a few gradient steps per batch, on one flat vector of parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from srl.algorithms.actor_critic import scheduled
from srl.algorithms.ppo.batch import PPOBatch, learn_minibatch, mean_metrics
from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.estimates import estimate, evaluate_current
from srl.algorithms.ppo.loss import Coefficients, Minibatch, Samples, ppo_gradient
from srl.algorithms.ppo.ppg_phase import AuxiliaryPhase
from srl.algorithms.training.devices import fetch
from srl.algorithms.training.learner import Learner
from srl.algorithms.training.ranks import NotFiniteError
from srl.api.trainer import Trainer, TrainerGroup, TrainResult, Trajectory
from srl.base.state import State
from srl.base.tree import Array
from srl.networks.distributions.distribution import Distribution
from srl.networks.network import Network

KL_MARGIN = 1.5  # tolerated ratio of the KL divergence to its target


class PPOTrainer(Trainer):
    """Trainer for PPO and its presets or, with a `phase`, for PPG. A variant with another loss overrides
    `loss_gradient`."""

    def __init__(
        self,
        config: PPOConfig,
        network: Network,
        distribution: Distribution,
        seed: int,
        phase: AuxiliaryPhase | None = None,
    ) -> None:
        self.config = config
        self._phase = phase
        self.distribution = distribution
        self._counters = np.array([seed, 0], np.int64)  # shuffle seed, number of updates
        self._kl_coefficient = np.array([config.kl_coefficient])
        kept = {"counters": self._counters}
        if config.adapt_kl is not None:
            kept["kl_coefficient"] = self._kl_coefficient
        self._learner = Learner(network, config, kept)

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        self._learner.back_up()
        self._num_samples = 0
        metrics: dict[str, float] | None = None
        try:
            metrics = self._update(batch, progress)
        except NotFiniteError:
            self._learner.roll_back()
        except BaseException:
            # For example, a rank was lost: do not keep a partial update.
            self._learner.roll_back()
            raise
        self._counters[1] += 1
        return TrainResult(num_decisions=self._num_samples, metrics=metrics or {}, skipped=metrics is None)

    def _update(self, batch: Trajectory, progress: float) -> dict[str, float]:
        config, learner = self.config, self._learner
        normalizers = learner.normalizers
        # Non-finite numbers are detected below, so suppress warnings here.
        with np.errstate(all="ignore"):
            samples = self._samples(batch)
            self._num_samples = samples.num_samples
            if normalizers.returns is not None:
                normalizers.returns.fold(samples.target, learner.ranks)
        learning_rate = scheduled(
            config.learning_rate_schedule, config.learning_rate, config.learning_rate_final, progress
        )
        if samples.num_samples == 0:
            return {"learning_rate": learning_rate}
        shuffle = np.random.Generator(np.random.Philox(key=self._shuffle_key(), counter=[0, 0, 0, self._counters[1]]))
        metrics = self._descend(samples, self._coefficients(progress), learning_rate, shuffle)
        if config.adapt_kl is not None:  # before the normalizers change
            metrics["kl_coefficient"] = float(self._kl_coefficient[0])
            metrics["kl_after"] = self._divergence_after(samples, shuffle)
        if normalizers.observations is not None:
            with np.errstate(all="ignore"):
                normalizers.observations.fold(batch, learner.ranks)
        if self._phase is not None:
            self._phase.keep(batch, samples.all_targets)
            if self._phase.is_due(int(self._counters[1])):
                metrics |= self._phase.run(learner, learning_rate, int(self._counters[1]), shuffle)
        if config.adapt_kl is not None:
            self._adapt(metrics["kl_after"] / config.adapt_kl)
        return {**metrics, "learning_rate": learning_rate}

    def _samples(self, batch: Trajectory) -> PPOBatch:
        config, learner = self.config, self._learner
        current = None
        if config.correction != "none":
            parts = config.num_minibatches
            current = evaluate_current(learner.network_pass, self.distribution, batch, learner.device, parts)
        return PPOBatch(batch, estimate(batch, config, current), config, learner.ranks, learner.device)

    def _coefficients(self, progress: float) -> Coefficients:
        config, deviation = self.config, self._learner.normalizers.deviation
        clip = scheduled(config.clip_schedule, config.clip, config.clip_final, progress)
        return Coefficients(
            clip=clip if config.surrogate == "clip" else None,
            # Values and their errors are on the scale of the rewards, but the loss is on the scale of the network.
            value=config.value_coefficient / deviation**2,
            entropy=scheduled(config.entropy_schedule, config.entropy_coefficient, config.entropy_final, progress),
            kl=float(self._kl_coefficient[0]),
            dual_clip=config.dual_clip,
            value_clip=None if config.value_clip is None else config.value_clip * deviation,
        )

    def _descend(
        self, samples: PPOBatch, coefficients: Coefficients, learning_rate: float, shuffle: np.random.Generator
    ) -> dict[str, float]:
        """Make all gradient steps of an update. Returns metrics."""
        learner, target_kl = self._learner, self.config.target_kl
        seen: list[Samples] = []
        num_seen = 0.0
        grad_norms: list[float] = []
        passes = (samples.minibatches(shuffle) for _ in range(self.config.epochs))
        for observation, minibatch, weight in chain.from_iterable(passes):
            seen.append(learn_minibatch(learner, self.loss_gradient, coefficients, observation, minibatch, weight))
            num_seen += 1.0 / weight
            if target_kl is not None and self._divergence(seen[-1], weight) > KL_MARGIN * target_kl:
                break
            grad_norms.append(learner.descend(learning_rate))
        metrics = mean_metrics(seen, coefficients, learner.ranks, round(num_seen))
        metrics["value_loss"] /= learner.normalizers.deviation**2
        if target_kl is not None:
            metrics["passes"] = num_seen / samples.num_samples
        return {
            **metrics,
            "explained_variance": samples.explained_variance,
            "grad_norm": sum(grad_norms) / max(len(grad_norms), 1),
        }

    def loss_gradient(
        self, parameters: Tensor, value: Tensor, minibatch: Minibatch, coefficients: Coefficients, weight: float
    ) -> tuple[Tensor, Tensor, Samples]:
        """Return the gradients of the loss of a minibatch with respect to the network's outputs, `parameters` of the
        action distribution [B, n] and `value` [B], and the terms that metrics are computed from. The loss is a sum over
        samples times `weight`, 1 / number of samples of all ranks."""
        return ppo_gradient(self.distribution, parameters, value, minibatch, coefficients, weight)

    def _shuffle_key(self) -> list[int]:
        return [int(self._counters[0]), self._learner.ranks.rank]

    def _divergence(self, samples: Samples, weight: float) -> float:
        """Estimate KL(old, new) on a minibatch, over all ranks."""
        log_ratio = fetch(samples.log_ratio).double()
        mean = (log_ratio.expm1() - log_ratio).sum(0, keepdim=True).mul_(weight)
        self._learner.ranks.add(mean)
        return float(mean)

    def _divergence_after(self, samples: PPOBatch, shuffle: np.random.Generator) -> float:
        """Estimate KL(old, new) on the whole batch after all gradient steps, with one more pass."""
        total = torch.zeros(1, dtype=torch.float64)
        for observation, minibatch, _ in samples.minibatches(shuffle):
            if len(minibatch.advantage) == 0:
                continue
            with torch.no_grad():
                parameters, _ = self._learner.network_pass.forward(observation)
            log_prob = self.distribution.evaluate(parameters, minibatch.action).log_prob
            log_ratio = fetch(log_prob - minibatch.log_prob).double()
            total += (log_ratio.expm1() - log_ratio).sum()
        self._learner.ranks.add(total)
        divergence = float(total) / samples.num_samples
        if not math.isfinite(divergence):
            raise NotFiniteError
        return divergence

    def _adapt(self, relative_kl: float) -> None:
        """Adapt the KL penalty to keep the final divergence near its target (Schulman et al. 2017, section 4)."""
        if relative_kl > KL_MARGIN:
            self._kl_coefficient *= 2.0
        elif relative_kl < 1.0 / KL_MARGIN:
            self._kl_coefficient *= 0.5

    def parameters(self) -> Array:
        return self._learner.parameters()

    def state(self) -> Mapping[str, Array]:
        return self._learner.state()

    def restore(self, state: Mapping[str, Array]) -> None:
        self._learner.restore(state)
        self._clear_phase()

    def uncommitted_state(self) -> State:
        return {} if self._phase is None else self._phase.state()

    def restore_uncommitted(self, state: State) -> None:
        if self._phase is not None:
            self._phase.restore(state)

    def join(self, group: TrainerGroup) -> None:
        self._learner.join(group)
        self._clear_phase()

    def reconfigure(self, config: PPOConfig) -> None:
        self.config = config
        self._learner.reconfigure(config)

    def lowest(self, number: int) -> int:
        return self._learner.ranks.lowest(number)

    def _clear_phase(self) -> None:
        if self._phase is not None:
            self._phase.clear()
