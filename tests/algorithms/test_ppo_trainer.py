"""The PPO trainer: exact restarts, refused updates, which rows count, and that it learns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.trajectories import random_trajectory

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.trainer import PPOTrainer
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.api.trainer import Trainer, Trajectory

OBSERVATION = Box((4,))
METRICS = {
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "learning_rate",
}


DEFAULT, TWO_ARMS = PPOConfig(learning_rate=3e-4, num_minibatches=4), Discrete(2)


def make(config: PPOConfig = DEFAULT, action: Space = TWO_ARMS, seed: int = 1) -> tuple[Trainer, Trajectory]:
    trainer = config.build_trainer(OBSERVATION, action, seed)
    return trainer, random_trajectory(config, OBSERVATION, action, trainer, rows=17, lanes=16, seed=2)


def state_bytes(trainer: Trainer) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in trainer.state().items()}


def test_a_step_reports_its_metrics_and_moves_the_parameters() -> None:
    trainer, batch = make()
    assert isinstance(trainer, Trainer)
    before = trainer.parameters().copy()
    result = trainer.step(batch, 0.25)
    assert not result.skipped
    assert result.num_decisions == batch.num_decisions
    assert set(result.metrics) == METRICS
    assert result.metrics["learning_rate"] == pytest.approx(0.75 * 3e-4)
    assert trainer.parameters().dtype == np.float32
    assert (trainer.parameters() != before).mean() > 0.9


class OnlyCritic(PPOTrainer):
    """A trainer whose loss has no terms of the policy."""

    def loss_gradient(self, parameters: Any, *others: Any) -> Any:
        _, of_value, samples = super().loss_gradient(parameters, *others)
        return torch.zeros_like(parameters), of_value, samples


def test_a_variant_may_change_the_loss() -> None:
    config = dataclasses.replace(DEFAULT, towers="separate")
    _, batch = make(config)
    trainer = OnlyCritic(config, *config.build_network(OBSERVATION, TWO_ARMS, 1), 1)
    policy = config.build_policy(OBSERVATION, TWO_ARMS, 1)
    decisions: list[Any] = []
    for version in range(2):
        policy.load(trainer.parameters(), version)
        decisions.append(policy.act(np.asarray(batch.observation)[0], None, np.ones(16, bool), greedy=True))
        trainer.step(batch, 0.0)
    assert np.array_equal(decisions[0]["log_prob"], decisions[1]["log_prob"]), "the policy is the same"
    assert not np.allclose(decisions[0]["value"], decisions[1]["value"])


def test_a_large_gradient_is_scaled_to_the_largest_norm() -> None:
    trainer, batch = make(dataclasses.replace(DEFAULT, max_grad_norm=1e-3, epochs=1, num_minibatches=1))
    assert trainer.step(batch, 0.0).metrics["grad_norm"] > 1e-2, "the norm before scaling"
    assert np.linalg.norm(trainer.state()["exp_avg"]) == pytest.approx(0.1 * 1e-3, rel=1e-4), "Adam saw the scaled one"


def test_the_same_seed_and_batches_give_the_same_bits() -> None:
    states = []
    for _ in range(2):
        trainer, batch = make()
        for _ in range(3):
            trainer.step(batch, 0.0)
        states.append(state_bytes(trainer))
    assert states[0] == states[1]


@pytest.mark.parametrize("action", [Discrete(3), Box((2,)), MultiDiscrete((2, 3))], ids=str)
def test_a_restored_trainer_goes_on_bit_by_bit(action: Space) -> None:
    trainer, batch = make(action=action)
    trainer.step(batch, 0.0)
    saved = {name: array.copy() for name, array in trainer.state().items()}
    trainer.step(batch, 0.1)
    trainer.step(batch, 0.2)
    other = DEFAULT.build_trainer(OBSERVATION, action, seed=77)
    other.restore(saved)
    other.step(batch, 0.1)
    other.step(batch, 0.2)
    assert state_bytes(other) == state_bytes(trainer)
    assert {name: array.shape for name, array in saved.items()} == {n: a.shape for n, a in trainer.state().items()}


def test_a_state_of_another_network_is_refused() -> None:
    trainer, _ = make()
    other = PPOConfig(hidden_sizes=(8,)).build_trainer(OBSERVATION, Discrete(2), 0)
    with pytest.raises(ValueError, match="another network"):
        trainer.restore(other.state())


@pytest.mark.parametrize("where", ["reward", "observation", "value", "log_prob"])
@pytest.mark.parametrize("what", [np.nan, np.inf])
def test_a_number_that_is_not_finite_never_reaches_the_weights(where: str, what: float) -> None:
    trainer, batch = make()
    trainer.step(batch, 0.0)
    before = {name: array.copy() for name, array in trainer.state().items()}
    poisoned = {"reward": batch.reward, "observation": batch.observation, **batch.decision}
    array = np.asarray(poisoned[where])
    t, lane = np.argwhere(batch.acting[:-1])[40]
    # A log-probability of +inf makes a ratio of 0, a harmless sample.
    kept, array[t, lane] = array[t, lane].copy(), -what if where == "log_prob" else what
    if where == "log_prob":
        batch.reward[t, lane] = -50.0
    result = trainer.step(batch, 0.0)
    assert result.skipped
    for name in ("parameters", "exp_avg", "exp_avg_sq", "num_steps"):
        assert trainer.state()[name].tobytes() == before[name].tobytes(), name
    array[t, lane] = kept
    assert not trainer.step(batch, 0.0).skipped
    assert np.isfinite(trainer.parameters()).all()


def test_only_rows_in_which_a_lane_acted_are_learned_from() -> None:
    trainer, batch = make()
    garbled = dataclasses.replace(batch, observation=np.array(batch.observation), reward=batch.reward.copy())
    idle = ~batch.acting
    idle[-1] = True
    assert idle[:-1].any()
    np.asarray(garbled.observation)[idle] = 1e6
    garbled.reward[idle] = 1e6
    other, _ = make()
    trainer.step(batch, 0.0)
    other.step(garbled, 0.0)
    assert state_bytes(other) == state_bytes(trainer)


@pytest.mark.parametrize(("num_acting", "steps"), [(0, 0), (2, 2), (5, 3)])
def test_few_rows_make_few_steps(num_acting: int, steps: int) -> None:
    trainer, batch = make(PPOConfig(epochs=1, num_minibatches=3))
    acting = np.zeros_like(batch.acting)
    acting[0, :num_acting] = True
    result = trainer.step(dataclasses.replace(batch, acting=acting), 0.0)
    assert not result.skipped
    assert trainer.state()["num_steps"] == steps
    assert np.isfinite(trainer.parameters()).all()


def test_dict_observations_are_trained_on() -> None:
    observation = Dict({"a": Box((3,)), "b": Discrete(2)})
    config = PPOConfig()
    trainer = config.build_trainer(observation, Discrete(2), 0)
    batch = random_trajectory(config, observation, Discrete(2), trainer, rows=9, lanes=8, seed=0)
    assert not trainer.step(batch, 0.0).skipped


def test_images_are_trained_on() -> None:
    observation, config = Box((2, 36, 36), "uint8"), PPOConfig(epochs=1, num_minibatches=2)
    trainer = config.build_trainer(observation, Discrete(2), 0)
    batch = random_trajectory(config, observation, Discrete(2), trainer, rows=3, lanes=4, seed=0)
    before = trainer.parameters().copy()
    assert not trainer.step(batch, 0.0).skipped
    assert (trainer.parameters() != before).mean() > 0.5


@pytest.mark.parametrize("action", [Discrete(2), Box((1,))], ids=str)
def test_a_contextual_bandit_is_solved(action: Space) -> None:
    """The sign of the observation says which of two arms (or which side) pays."""
    config = PPOConfig(
        learning_rate=1e-2, learning_rate_schedule="constant", entropy_coefficient=0.0, hidden_sizes=(16,)
    )
    observation, rng = Box((1,)), np.random.default_rng(0)
    trainer, policy = config.build_trainer(observation, action, 0), config.build_policy(observation, action, 0)
    mean_rewards = []
    for version in range(40):
        policy.load(trainer.parameters(), version)
        sign = rng.choice([-1.0, 1.0], (9, 32)).astype(np.float32)
        true = np.ones((9, 32), bool)
        decisions = [policy.act(sign[t][:, None], None, true[t]) for t in range(9)]
        decision = {key: np.stack([np.asarray(each[key]) for each in decisions]) for key in decisions[0]}
        arm = decision["action"][..., 0] > 0 if isinstance(action, Box) else decision["action"] == 1
        reward = (arm == (sign > 0)).astype(np.float32)
        mean_rewards.append(reward.mean())
        trainer.step(Trajectory(sign[..., None], decision, reward, true, ~true, true, true, true.astype(np.int32)), 0.0)
    assert mean_rewards[0] < 0.7
    assert np.mean(mean_rewards[-5:]) > 0.95


@pytest.mark.parametrize(
    "options", [{"epochs": 0}, {"num_minibatches": 0}, {"gamma": 1.5}, {"learning_rate": -1.0}, {"clip": float("nan")}]
)
def test_impossible_options_are_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        PPOConfig(**options)  # type: ignore[arg-type]


FRAGILE = """
import torch

class Fragile(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.calls = torch.nn.Linear(4, 3), 0

    def forward(self, observation):
        self.calls += 1
        if self.calls == 4:
            raise ConnectionError("gone")
        return self.linear(observation)[:, :2], self.linear(observation)[:, 2]

def build(observation, action): return Fragile()
"""


def test_an_interrupted_update_is_rolled_back(tmp_path: Path) -> None:
    """As when another rank dies in the middle of it: after the check of the network and two minibatches."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    config = PPOConfig(network=f"{tmp_path}/fragile.py:build")
    trainer, (_, batch) = config.build_trainer(OBSERVATION, TWO_ARMS, 1), make()
    before = state_bytes(trainer)
    with pytest.raises(ConnectionError):
        trainer.step(batch, 0.0)
    assert state_bytes(trainer) == before
    assert not trainer.step(batch, 0.0).skipped
    assert trainer.state()["num_steps"] == config.epochs * config.num_minibatches


STEEP = """
import torch

class Steep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, observation):
        outputs = self.linear(observation)
        return outputs[:, :2], (outputs[:, 2] * 0.0).abs().sqrt()

def build(observation, action): return Steep()
"""


def test_an_infinite_gradient_of_a_finite_loss_is_refused(tmp_path: Path) -> None:
    """The square root at 0; one minibatch, so that no later loss betrays it."""
    (tmp_path / "steep.py").write_text(STEEP)
    config = PPOConfig(network=f"{tmp_path}/steep.py:build", epochs=1, num_minibatches=1)
    trainer, (_, batch) = config.build_trainer(OBSERVATION, TWO_ARMS, 1), make()
    before = trainer.parameters().copy()
    assert trainer.step(batch, 0.0).skipped
    assert trainer.parameters().tobytes() == before.tobytes()


def test_every_update_shuffles_differently() -> None:
    config = PPOConfig(epochs=1)
    trainer, batch = make(config)
    start = {name: array.copy() for name, array in trainer.state().items()}
    trainer.step(batch, 0.0)
    assert trainer.state()["counters"].tolist() == [1, 1]
    once = trainer.parameters().copy()
    trainer.restore({**start, "counters": np.array([1, 1])})
    trainer.step(batch, 0.0)
    assert (trainer.parameters() != once).any()
