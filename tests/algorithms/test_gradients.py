"""A trainer's gradient is that of the loss it reports: every algorithm, head and network against finite differences in
double precision, from the batch to the weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support.algorithm_kinds import KINDS
from support.trajectories import random_trajectory
from torch import Tensor, nn

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.batch import PPOBatch
from srl.algorithms.ppo.estimates import Estimates, estimate, evaluate_current
from srl.algorithms.ppo.loss import METRICS, Coefficients, Minibatch, Samples, ppo_gradient, ppo_metrics
from srl.algorithms.ppo.ppg_phase import auxiliary_coefficients
from srl.algorithms.ppo.trainer import PPOTrainer
from srl.algorithms.training.devices import CPU
from srl.algorithms.training.ranks import Ranks
from srl.api.spaces import Space
from srl.base.tree import map_tree
from srl.networks.backpropagation import Pass, build_pass
from srl.networks.distributions.distribution import Distribution
from srl.networks.memory.recurrent import Sequence


class Loss(NamedTuple):
    """That of one minibatch, as a function of the network's weights."""

    network_pass: Pass
    distribution: Distribution
    observation: Any
    minibatch: Minibatch
    coefficients: Coefficients
    weight: float

    def gradient(self) -> tuple[Tensor, Tensor, Samples]:
        outputs = self.network_pass.forward(self.observation)
        return ppo_gradient(self.distribution, *outputs, self.minibatch, self.coefficients, self.weight)

    def reported(self) -> float:
        """Loss computed from the reported metrics."""
        c, sums = self.coefficients, ppo_metrics(self.gradient()[2], self.coefficients) * self.weight
        means = dict(zip(METRICS, sums.tolist(), strict=True))
        penalties = c.kl * means["approx_kl"] - c.entropy * means["entropy"]
        return float(means["policy_loss"] + penalties + c.value * means["value_loss"])


def double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def in_double(network: nn.Module) -> Tensor:
    """The network's flat gradient, as `FlatParameters` makes it for float32."""
    weights = [weight for weight in network.double().parameters() if weight.requires_grad]
    gradients = torch.zeros(sum(weight.numel() for weight in weights), dtype=torch.float64)
    for weight, part in zip(weights, gradients.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = part.view_as(weight)
    return gradients


def loss_of(config: ActorCriticConfig, observation: Space, action: Space) -> tuple[nn.Module, Loss]:
    """The network and the loss on one batch, in double precision. One update before sets the statistics and makes the
    batch old."""
    trainer = config.build_trainer(observation, action, 0)
    assert isinstance(trainer, PPOTrainer)
    batch = random_trajectory(config, observation, action, trainer, rows=9, lanes=6, seed=1)
    assert not trainer.step(batch, 0.0).skipped
    learner, ppo = trainer._learner, trainer.config
    network, distribution = learner._network, trainer.distribution
    current = evaluate_current(learner.network_pass, distribution, batch, CPU, num_parts=1)
    if isinstance(config, PPGConfig):
        assert trainer._phase is not None
        trainer._phase._network.detach_value(False)
        target = estimate(batch, ppo, None).target
        estimates = Estimates(current.log_prob[:-1], current.value[:-1], np.zeros_like(target), target)
        coefficients = auxiliary_coefficients(config, learner.normalizers.deviation)
    else:
        estimates = estimate(batch, ppo, None if ppo.correction == "none" else current)
        coefficients = trainer._coefficients(0.0)
    ((seen, minibatch, weight),) = PPOBatch(batch, estimates, ppo, Ranks(), CPU).minibatches(np.random.default_rng(0))
    if isinstance(seen, Sequence):
        seen = seen._replace(observation=map_tree(double, seen.observation), state=double(seen.state))
    else:
        seen = map_tree(double, seen)
    gradients = in_double(network)
    loss = Loss(
        build_pass(network, gradients),
        distribution,
        seen,
        Minibatch._make(None if part is None else double(part) for part in minibatch),
        coefficients,
        weight,
    )
    return network, loss


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_gradient_of_every_loss_equals_finite_differences(
    kind: tuple[ActorCriticConfig, Space, Space], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, loss = loss_of(*kind)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # encoders convert to float32
    generator, step = torch.Generator().manual_seed(0), 1e-5
    with torch.no_grad():
        for weight in network.parameters():  # no ratio, value or unit stays exactly where it was
            weight.add_(0.02 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    parameters, value, _ = loss.gradient()
    loss.network_pass.backward(parameters, value)
    moving = 0
    for name, weight in network.named_parameters():
        if weight.grad is None:
            continue
        direction = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
        found = float((weight.grad * direction).sum())
        around = []
        for sign in (1.0, -1.0):
            weight.data.add_(direction, alpha=sign * step)
            around.append(loss.reported())
            weight.data.sub_(direction, alpha=sign * step)
        assert found == pytest.approx((around[0] - around[1]) / (2.0 * step), rel=1e-5, abs=1e-8), name
        moving += found != 0.0
    assert moving >= 3
