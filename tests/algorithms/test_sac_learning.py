"""SAC, TD3 and DDPG learn problems with known solutions from synthetic transitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from srl.algorithms.sac.config import DDPGConfig, ReplayActorCriticConfig, SACConfig, TD3Config
from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Box, Discrete, Space

SMALL: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "batch_size": 64,
    "learning_rate": 6e-3,
    "tau": 0.05,
    "device": "cpu",
}
CONFIGS = [
    SACConfig(**SMALL, initial_temperature=0.1),
    SACConfig(**SMALL, initial_temperature=0.1, num_critics=4, target_critics=2, critic_layer_norm=True),
    TD3Config(**SMALL),
    DDPGConfig(**SMALL),
]
SEEN, PUSH = Box((1,)), Box((1,), low=-2.0, high=2.0)


def transitions(seen: Any, action: Any, reward: Any, after: Any, discount: float) -> TransitionBatch:
    shape = reward.shape
    return TransitionBatch(
        seen.astype(np.float32),
        {"action": action},
        reward.astype(np.float32),
        np.full(shape, discount, np.float32),
        after.astype(np.float32),
        np.ones(shape, np.float32),
        reward.size,
    )


def greedy(config: ReplayActorCriticConfig, action: Space, parameters: Any, seen: Any) -> Any:
    policy = config.build_policy(SEEN, action, 0)
    policy.load(parameters, 0)
    return np.asarray(policy.act(seen.astype(np.float32), None, np.zeros(len(seen), bool), greedy=True)["action"])


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.title}-{config.num_critics}")
def test_a_linear_quadratic_regulator_is_solved(config: ReplayActorCriticConfig) -> None:
    """x' = x + a and reward -(x^2 + a^2) with discount 0.9: the best action is -K x, with P from the Riccati equation
    P = 1 + 0.9 P - (0.9 P)^2 / (1 + 0.9 P) and K = 0.9 P / (1 + 0.9 P)."""
    p = 1.0
    for _ in range(100):
        p = 1.0 + 0.9 * p - (0.9 * p) ** 2 / (1.0 + 0.9 * p)
    gain = 0.9 * p / (1.0 + 0.9 * p)
    trainer, rng = config.build_trainer(SEEN, PUSH, 0), np.random.default_rng(0)
    for _ in range(20):
        seen = rng.uniform(-1.0, 1.0, (20, 64, 1))
        action = rng.uniform(-2.0, 2.0, (20, 64, 1)).astype(np.float32)
        reward = -(seen**2 + action**2)[..., 0]
        trainer.step(transitions(seen, action, reward, np.clip(seen + action, -1.0, 1.0), 0.9), 0.0)
    seen = np.array([[-0.8], [-0.4], [0.4], [0.8]])
    np.testing.assert_allclose(greedy(config, PUSH, trainer.parameters(), seen), -gain * seen, atol=0.2)


def test_sac_learns_which_choice_is_best_for_each_observation() -> None:
    config = SACConfig(**SMALL, initial_temperature=0.1)
    trainer, rng = config.build_trainer(SEEN, Discrete(3), 0), np.random.default_rng(0)
    for _ in range(15):
        seen, action = rng.choice([-1.0, 0.0, 1.0], (20, 64, 1)), rng.integers(0, 3, (20, 64))
        reward = (action - 1 == seen[..., 0]).astype(np.float32)
        trainer.step(transitions(seen, action, reward, seen, 0.0), 0.0)
    assert greedy(config, Discrete(3), trainer.parameters(), np.array([[-1.0], [0.0], [1.0]])).tolist() == [0, 1, 2]


def test_the_entropy_of_the_policy_reaches_its_target() -> None:
    config = SACConfig(**SMALL, target_entropy=-0.5, initial_temperature=0.3)
    trainer, rng = config.build_trainer(SEEN, PUSH, 0), np.random.default_rng(0)
    for _ in range(40):
        seen, action = rng.uniform(-1.0, 1.0, (10, 64, 1)), rng.uniform(-2.0, 2.0, (10, 64, 1)).astype(np.float32)
        reward = -(action[..., 0] ** 2)
        metrics = trainer.step(transitions(seen, action, reward, seen, 0.0), 0.0).metrics
    assert metrics["entropy"] == pytest.approx(-0.5, abs=0.2)
