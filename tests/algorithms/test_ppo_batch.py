"""How a batch becomes minibatches: which rows, how many parts, which weights and statistics."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from srl.algorithms.ppo.batch import PPOBatch
from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.estimates import estimate
from srl.algorithms.training.devices import CPU
from srl.algorithms.training.ranks import Ranks
from srl.api.trainer import Trajectory
from srl.base.tree import Tree


def numbered_trajectory(rows: int, lanes: int, acting: np.ndarray) -> Trajectory:
    """The observation, the action and the log-probability of a row are its own number."""
    number = np.arange(rows * lanes, dtype=np.float32).reshape(rows, lanes)
    none = np.zeros((rows, lanes), bool)
    decision: dict[str, Tree] = {"action": number.astype(np.int64), "log_prob": -number, "value": np.zeros_like(number)}
    return Trajectory(number[..., None], decision, number, ~none, none, acting, none, none.astype(np.int32))


def batch_of(trajectory: Trajectory, config: PPOConfig) -> PPOBatch:
    return PPOBatch(trajectory, estimate(trajectory, config, None), config, Ranks(), CPU)


@pytest.mark.parametrize("num_minibatches", [1, 3, 4])
def test_every_acting_row_comes_once_in_nearly_equal_parts(num_minibatches: int) -> None:
    rng = np.random.default_rng(0)
    acting = rng.random((6, 5)) < 0.7
    acting[-1] = True  # the bootstrap row is never a sample
    config = PPOConfig(num_minibatches=num_minibatches, normalize_advantage="none")
    batch = batch_of(numbered_trajectory(6, 5, acting), config)
    parts = list(batch.minibatches(rng))
    assert len(parts) == num_minibatches
    sizes = [len(minibatch.advantage) for _, minibatch, _ in parts]
    assert max(sizes) - min(sizes) <= 1
    assert [weight for _, _, weight in parts] == [1.0 / size for size in sizes]
    seen = np.concatenate([minibatch.action.numpy() for _, minibatch, _ in parts])
    assert sorted(seen) == list(np.flatnonzero(acting[:-1]))
    assert list(seen) != sorted(seen)
    for observation, minibatch, _ in parts:
        # Everything of a row stays together; all terminate, so reward = advantage = target.
        for column in (observation[:, 0], -minibatch.log_prob, minibatch.advantage, minibatch.target):
            np.testing.assert_array_equal(np.asarray(column), minibatch.action.numpy())


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_targets_are_lambda_returns(gae_lambda: float) -> None:
    gamma, rng = 0.9, np.random.default_rng(0)
    plain = numbered_trajectory(6, 5, np.ones((6, 5), bool))
    value = rng.normal(size=(6, 5)).astype(np.float32)
    trajectory = dataclasses.replace(
        plain, decision={**plain.decision, "value": value}, terminated=np.zeros((6, 5), bool)
    )
    target = estimate(trajectory, PPOConfig(gamma=gamma, gae_lambda=gae_lambda), None).target
    expected = value[-1]
    for row in range(4, -1, -1):
        mixed = (1.0 - gae_lambda) * value[row + 1] + gae_lambda * expected
        expected = trajectory.reward[row] + gamma * mixed
        np.testing.assert_allclose(target[row], expected, rtol=1e-5)


def test_advantages_can_be_normalized_per_minibatch() -> None:
    trajectory = numbered_trajectory(6, 5, np.ones((6, 5), bool))
    batch = batch_of(trajectory, PPOConfig(num_minibatches=3, normalize_advantage="minibatch"))
    for _, minibatch, _ in batch.minibatches(np.random.default_rng(0)):
        number = minibatch.action.numpy().astype(float)
        np.testing.assert_allclose(minibatch.advantage, (number - number.mean()) / number.std(), rtol=1e-5)


def test_advantages_are_normalized_over_the_whole_batch() -> None:
    trajectory = numbered_trajectory(6, 5, np.ones((6, 5), bool))
    batch = batch_of(trajectory, PPOConfig(num_minibatches=5))
    advantage = np.concatenate(
        [np.asarray(part.advantage) for _, part, _ in batch.minibatches(np.random.default_rng(0))]
    )
    assert advantage.mean() == pytest.approx(0.0, abs=1e-6)
    assert advantage.std() == pytest.approx(1.0, rel=1e-5)
    assert batch.num_samples == 25
    assert batch.explained_variance == pytest.approx(0.0, abs=1e-6)  # values are all zero
