"""CQL: its loss by hand, against a slow reference and finite differences, and the values that it converges to."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.offline.config import CQLConfig
from srl.algorithms.offline.losses import choice_gap, sampled_gap
from srl.algorithms.offpolicy.trainer import Minibatch
from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete

SMALL: dict[str, Any] = {"hidden_sizes": (16,), "batch_size": 16, "learning_rate": 0.01, "device": "cpu"}
SEEN, REACH = Box((4,)), Box((2,), low=(-1.0, 0.0), high=(1.0, 4.0))


def test_gaps_by_hand() -> None:
    values = torch.tensor([[[0.0, math.log(3.0)]]])
    assert float(choice_gap(values, torch.tensor([[1.0]]))) == pytest.approx(math.log(4.0) - 1.0)
    # A constant value c over [-1, 1]: the logarithm of the integral is c + log 2, whatever the samples.
    constant, density = torch.full((1, 1, 3), 0.7), torch.full((1, 3), math.log(0.5))
    assert float(sampled_gap(constant, density, torch.tensor([[0.2]]))) == pytest.approx(0.5 + math.log(2.0))


def test_the_integral_does_not_depend_on_where_actions_are_drawn() -> None:
    """Half of the actions are uniform in [-1, 1], half have the density (1 + a) / 2; the value is a."""
    draws = torch.rand(2, 50_000, generator=torch.Generator().manual_seed(0))
    uniform, skewed = 2.0 * draws[0] - 1.0, 2.0 * draws[1].sqrt() - 1.0
    for sample, density in ((uniform, torch.full_like(uniform, 0.5)), (skewed, 0.5 * (1.0 + skewed))):
        found = sampled_gap(sample[None, None], density.log()[None], torch.zeros(1, 1))
        assert float(found) == pytest.approx(math.log(math.e - 1.0 / math.e), abs=0.02)


def test_gradients_equal_finite_differences() -> None:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()

    assert torch.autograd.gradcheck(choice_gap, (random(2, 3, 4), random(2, 3)))
    density = random(3, 4).detach()
    assert torch.autograd.gradcheck(
        lambda values, taken: sampled_gap(values, density, taken), (random(2, 3, 4), random(2, 3))
    )


def test_the_loss_of_real_valued_actions_equals_a_slow_reference() -> None:
    trainer: Any = CQLConfig(**SMALL, num_samples=3, conservative_weight=2.0).build_trainer(SEEN, REACH, 0)
    rng = np.random.default_rng(0)
    seen = torch.tensor(rng.standard_normal((5, 4)), dtype=torch.float32)
    action = torch.tensor(rng.uniform(-1.0, 1.0, (5, 2)), dtype=torch.float32)
    weight = torch.tensor([1.0, 0.5, 1.0, 0.2, 1.0])
    batch = Minibatch(seen, action, torch.zeros(5), torch.zeros(5), seen, weight)
    with torch.no_grad():
        trainer.generator.manual_seed(7)
        taken = trainer.critics(seen, action)
        loss, metrics = trainer.critic_regularizer(batch, taken)
        trainer.generator.manual_seed(7)
        own = trainer.sample(seen.repeat_interleave(3, 0))
    uniform = torch.empty(15, 2).uniform_(-1.0, 1.0, generator=trainer.generator)
    gaps = np.zeros((2, 5))
    for b in range(5):
        total = np.zeros(2)
        for m in range(3 * b, 3 * b + 3):
            for one, density in ((own.action[m], float(own.log_prob[m].exp())), (uniform[m], 0.25)):
                total += np.exp(trainer.critics(seen[b : b + 1], one[None])[:, 0].detach().numpy()) / density / 6
        gaps[:, b] = np.log(total) - taken[:, b].numpy()
    assert float(metrics["conservative_gap"]) == pytest.approx(gaps.mean(), rel=1e-4)
    assert float(loss) == pytest.approx(2.0 * (gaps * weight.numpy()).mean(1).sum(), rel=1e-4)


def recorded(action: Any, reward: Any, steps: int = 100) -> TransitionBatch:
    """Return minibatches of decisions in the same observation, each of which ends its episode."""

    def tiled(array: Any, dtype: Any = np.float32) -> np.ndarray:
        return np.broadcast_to(np.asarray(array, dtype), (steps, *np.shape(array))).copy()

    seen, zeros, ones = (tiled(array) for array in (np.ones((16, 1)), np.zeros(16), np.ones(16)))
    kind = np.int64 if np.ndim(action) == 1 else np.float32
    return TransitionBatch(seen, {"action": tiled(action, kind)}, tiled(reward), zeros, seen, ones, steps)


@pytest.mark.parametrize(("weight", "value"), [(0.0, 1.0), (1.0, 0.5206)])
def test_values_shrink_to_the_minimum_of_the_loss(weight: float, value: float) -> None:
    """Rewards are -1 and 1, equally often. By symmetry, values are -q and q, and the loss of q is least where
    weight * (sigmoid(2 q) - 1/2) = (1 - q) / 2."""
    config = CQLConfig(**SMALL, conservative_weight=weight, learning_rate_schedule="linear")
    assert weight * (1.0 / (1.0 + math.exp(-2.0 * value)) - 0.5) == pytest.approx((1.0 - value) / 2.0, abs=1e-3)
    trainer: Any = config.build_trainer(Box((1,)), Discrete(2), 0)
    action = np.array([0, 1] * 8)
    for update in range(8):
        trainer.step(recorded(action, 2.0 * action - 1.0), update / 8)
    found = trainer.critics(torch.ones(1, 1), None).detach().numpy()
    assert np.allclose(found, [-value, value], atol=0.01)


def test_actions_that_are_not_recorded_get_low_values() -> None:
    """Only actions below 0 are recorded, and their reward is their number: the critics of SAC expect more above 0."""
    action = np.linspace(-1.0, -0.1, 16)[:, None]
    found = {}
    for weight in (0.0, 5.0):
        config = CQLConfig(**SMALL, conservative_weight=weight)
        trainer: Any = config.build_trainer(Box((1,)), Box((1,), low=-1.0, high=1.0), 0)
        for _ in range(4):
            trainer.step(recorded(action, action[:, 0]), 0.0)
        inside, outside = (trainer.critics(torch.ones(1, 1), torch.tensor([[a]])).mean().item() for a in (-0.2, 0.9))
        found[weight] = outside - inside
    assert found[0.0] > 0.3
    assert found[5.0] < -0.3


def test_choices_that_a_mask_forbids_do_not_count() -> None:
    space = Dict({"seen": Box((1,)), "action_mask": MultiDiscrete((2, 2, 2))})
    trainer: Any = CQLConfig(**SMALL, conservative_weight=1.0).build_trainer(space, Discrete(3), 0)
    seen = {"seen": torch.ones(1, 1), "action_mask": torch.tensor([[1, 0, 1]])}
    batch = Minibatch(seen, torch.tensor([0]), torch.zeros(1), torch.zeros(1), seen, torch.ones(1))
    values = trainer.critics(seen, None).detach()
    loss, _ = trainer.critic_regularizer(batch, values[:, :, 0])
    expected = values[:, 0, [0, 2]].exp().sum(1).log() - values[:, 0, 0]
    assert float(loss.detach()) == pytest.approx(float(expected.sum()), rel=1e-5)


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="conservative_weight"):
        CQLConfig(conservative_weight=-1.0)
    with pytest.raises(ValueError, match="num_samples"):
        CQLConfig(num_samples=0)
    with pytest.raises(ValueError, match="cql needs the action space to be a Box"):
        CQLConfig().check(SEEN, MultiDiscrete((2, 2)))
