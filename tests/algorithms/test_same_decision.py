"""The decision that an actor made and the one that a trainer looks back at are the same: probability and value."""

from __future__ import annotations

import numpy as np
import pytest
from support.algorithm_kinds import KINDS
from support.trajectories import random_trajectory
from support.trees import leaf

from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.ppo.batch import PPOBatch
from srl.algorithms.ppo.estimates import estimate, evaluate_current
from srl.algorithms.ppo.loss import ppo_gradient
from srl.algorithms.ppo.trainer import PPOTrainer
from srl.algorithms.training.devices import CPU
from srl.algorithms.training.ranks import Ranks
from srl.api.spaces import Space


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_training_computes_the_log_prob_and_value_of_acting(kind: tuple[ActorCriticConfig, Space, Space]) -> None:
    """After an update, so that normalizers have statistics; sample by sample, as the loss sees them."""
    trainer = kind[0].build_trainer(*kind[1:], 3)
    assert isinstance(trainer, PPOTrainer)
    assert not trainer.step(random_trajectory(*kind, trainer, rows=9, lanes=6, seed=4), 0.0).skipped
    batch = random_trajectory(*kind, trainer, rows=12, lanes=5, seed=5)
    learner, config, distribution = trainer._learner, trainer.config, trainer.distribution
    samples = PPOBatch(batch, estimate(batch, config, None), config, Ranks(), CPU)
    coefficients = trainer._coefficients(0.0)._replace(value_clip=None)
    for observation, minibatch, weight in samples.minibatches(np.random.default_rng(0)):
        outputs = learner.network_pass.forward(observation)
        log_ratio = ppo_gradient(distribution, *outputs, minibatch, coefficients, weight)[2].log_ratio
        np.testing.assert_allclose(log_ratio.numpy(), 0.0, atol=1e-5)
    # The bootstrap row, too, as corrections for old data evaluate it.
    current = evaluate_current(learner.network_pass, distribution, batch, CPU, num_parts=2)
    np.testing.assert_allclose(current.log_prob, leaf(batch.decision, "log_prob"), rtol=0, atol=1e-5)
    np.testing.assert_allclose(current.value, leaf(batch.decision, "value"), rtol=1e-5, atol=1e-5)
