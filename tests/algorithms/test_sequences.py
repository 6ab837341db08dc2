"""Networks with a memory: chunks of a batch, and the same log-probabilities in training as when they were decided."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.trajectories import random_trajectory

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.estimates import evaluate_current
from srl.algorithms.ppo.sequences import Chunks, whole_lanes
from srl.algorithms.training.devices import CPU
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.api.trainer import Trajectory
from srl.base.tree import Array
from srl.networks.backpropagation import build_pass
from srl.networks.parameters import FlatParameters

OWN = """
import torch
from srl.networks.network import Network

class Own(Network):
    state_size = 3

    def __init__(self, num_actions):
        super().__init__()
        self.cell = torch.nn.GRUCell(4, 3)
        self.policy, self.value = torch.nn.Linear(3, num_actions), torch.nn.Linear(3, 1)

    def forward(self, observation, state):
        state = self.cell(observation, state)
        return self.policy(state), self.value(state)[:, 0], state

    def value_head(self):
        return self.value.weight, self.value.bias

class Forgetful(Own):
    state_size = 5

def build(observation, action): return Own(action.n)
def forgetful(observation, action): return Forgetful(action.n)
"""


def played(config: PPOConfig, observation: Space, rows: int, lanes: int) -> tuple[Trajectory, Array]:
    """A batch of `rows` rows and the bootstrap row, and the parameters of its policy."""
    trainer = config.build_trainer(observation, Discrete(3), 0)
    batch = random_trajectory(config, observation, Discrete(3), trainer, rows + 1, lanes, seed=0)
    assert batch.first.any()
    assert not batch.acting.all()
    return batch, trainer.parameters().copy()


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


@pytest.mark.parametrize(("length", "burn_in"), [(12, 0), (4, 0), (5, 0), (4, 3), (5, 20), (1, 1), (100, 0)])
@pytest.mark.parametrize("kind", ["gru", "lstm", "separate", "own"])
def test_log_probabilities_in_training_equal_those_of_inference(own: str, kind: str, length: int, burn_in: int) -> None:
    options: dict[str, dict[str, Any]] = {
        "gru": {"memory": "gru"},
        "lstm": {"memory": "lstm"},
        "separate": {"memory": "gru", "towers": "separate"},
        "own": {"network": f"{own}:build"},
    }
    config = PPOConfig(**options[kind], memory_size=8)
    observation: Space = Box((4,)) if kind != "separate" else Dict({"part": Box((4,))})
    batch, parameters = played(config, observation, rows=12, lanes=5)
    network, distribution = config.build_network(observation, Discrete(3), 7)
    flat = FlatParameters(network, gradients=True)
    flat.load(torch.from_numpy(parameters))
    chunks = Chunks(batch, length, burn_in, CPU)
    network_pass = build_pass(network, flat.gradients)
    wanted = np.asarray(batch.decision["log_prob"])[:-1][batch.acting[:-1]]
    actions = torch.from_numpy(np.asarray(batch.decision["action"])[:-1][batch.acting[:-1]])
    values = np.asarray(batch.decision["value"])[:-1][batch.acting[:-1]]
    taken: list[int] = []
    for part in np.array_split(np.random.default_rng(1).permutation(len(chunks)), 3):
        sequence, samples = chunks.take(part)
        found, value = network_pass.forward(sequence)
        log_prob = distribution.log_prob(found, actions[samples])
        np.testing.assert_allclose(log_prob.numpy(), wanted[samples], rtol=0, atol=1e-5)
        np.testing.assert_allclose(value.numpy(), values[samples], rtol=0, atol=1e-5)
        taken += samples.tolist()
    assert sorted(taken) == list(range(len(wanted)))  # every sample once


def test_whole_lanes_include_the_bootstrap_row() -> None:
    config = PPOConfig(memory="gru", memory_size=8)
    batch, parameters = played(config, Box((4,)), rows=6, lanes=4)
    network, _ = config.build_network(Box((4,)), Discrete(3), 7)
    flat = FlatParameters(network, gradients=True)
    flat.load(torch.from_numpy(parameters))
    _, value = build_pass(network, flat.gradients).forward(whole_lanes(batch, slice(1, 3), CPU))
    wanted = np.asarray(batch.decision["value"])[:, 1:3]
    np.testing.assert_allclose(value.numpy().reshape(7, 2), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("num_minibatches", [1, 4, 100])
def test_an_update_learns_from_every_sample_whatever_the_number_of_minibatches(num_minibatches: int) -> None:
    config = PPOConfig(memory="lstm", memory_size=8, chunk=4, num_minibatches=num_minibatches, epochs=2)
    batch, _ = played(config, Box((4,)), rows=12, lanes=5)
    trainer = config.build_trainer(Box((4,)), Discrete(3), 0)
    before = trainer.parameters().copy()
    result = trainer.step(batch, 0.0)
    assert result.num_decisions == batch.num_decisions
    assert not result.skipped
    assert abs(result.metrics["approx_kl"]) < 0.1
    assert (trainer.parameters() != before).any()


def test_a_network_whose_state_has_the_wrong_size_is_named(own: str) -> None:
    with pytest.raises(ValueError, match=r"forgetful.*state"):
        PPOConfig(network=f"{own}:forgetful").check(Box((4,)), Discrete(3))


def test_a_policy_without_a_state_starts_with_an_empty_memory() -> None:
    config = PPOConfig(memory="gru", memory_size=8)
    policy = config.build_policy(Box((4,)), Discrete(3), 0)
    observation, never = np.ones((2, 4), np.float32), np.zeros(2, bool)
    empty = policy.act(observation, None, never)
    again = policy.act(observation, empty["state"], np.array([True, False]))
    np.testing.assert_array_equal(np.asarray(again["state"])[0], np.asarray(empty["state"])[0])
    assert (np.asarray(again["state"])[1] != np.asarray(empty["state"])[1]).any()


@pytest.mark.parametrize("correction", ["none", "vtrace"])
@pytest.mark.parametrize("network", ["gru", "own"])
def test_normalizers_and_corrections_work_with_a_memory(own: str, network: str, correction: Any) -> None:
    config = PPOConfig(
        memory="gru" if network == "gru" else "none",
        network=f"{own}:build" if network == "own" else "",
        memory_size=8,
        chunk=6,
        epochs=1,
        num_minibatches=1,
        normalize_observation=True,
        normalize_return="popart",
        normalize_advantage="minibatch",
        correction=correction,
    )
    batch, _ = played(config, Box((4,)), rows=12, lanes=5)
    trainer = config.build_trainer(Box((4,)), Discrete(3), 0)
    metrics = trainer.step(batch, 0.0).metrics
    assert abs(metrics["approx_kl"]) < 1e-6  # before its first step the policy is the one that decided
    count, mean, _ = trainer.state()["observation_moments"]
    assert (count == batch.num_decisions).all()
    np.testing.assert_allclose(mean, np.asarray(batch.observation)[:-1][batch.acting[:-1]].mean(0), atol=1e-6)


def test_a_batch_is_reevaluated_lane_by_lane() -> None:
    config = PPOConfig(memory="lstm", memory_size=8)
    batch, parameters = played(config, Box((4,)), rows=6, lanes=5)
    network, distribution = config.build_network(Box((4,)), Discrete(3), 7)
    flat = FlatParameters(network, gradients=True)
    flat.load(torch.from_numpy(parameters))
    current = evaluate_current(build_pass(network, flat.gradients), distribution, batch, CPU, num_parts=2)
    np.testing.assert_allclose(current.value, np.asarray(batch.decision["value"]), rtol=0, atol=1e-5)
    np.testing.assert_allclose(current.log_prob, np.asarray(batch.decision["log_prob"]), rtol=0, atol=1e-5)
