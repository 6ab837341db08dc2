"""Normalizers in training: which statistics, when they change, where they travel, and what never reaches them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from support.trajectories import random_trajectory
from torch import nn

from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.training.normalizers import Normalizers
from srl.algorithms.training.ranks import Ranks
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.api.trainer import Trainer, Trajectory
from srl.base.tree import Array
from srl.networks.parameters import FlatParameters
from srl.networks.wrappers import NormalizedActorCritic, normalized_leaves

FOUR, ACTION = Box((4,)), Discrete(2)
MIXED = Dict(
    {
        "camera": Box((2, 36, 36), "uint8"),
        "a": Box((3,)),
        "b": Dict({"x": Box((2, 2), "float64"), "mask": Box((2,), "int8", 0.0, 1.0)}),
    }
)
BOTH = PPOConfig(normalize_observation=True, normalize_return="popart", num_minibatches=4)


def batches_of(config: PPOConfig, trainer: Trainer, number: int, space: Space = FOUR) -> list[Trajectory]:
    """Observations far from 0 and of another size, which a network alone would not digest."""
    batches = [random_trajectory(config, space, ACTION, trainer, rows=17, lanes=16, seed=i) for i in range(number)]
    for batch in batches:
        if isinstance(space, Box):
            batch.observation = np.asarray(batch.observation) * np.float32(0.1) + np.arange(4, dtype=np.float32) * 100
    return batches


def test_numbers_are_normalized_but_images_flags_and_choices_are_not() -> None:
    assert normalized_leaves(MIXED) == {"a": 3, "b/x": 4}
    assert normalized_leaves(Box((2, 3))) == {"": 6}
    assert normalized_leaves(ACTION) == {}
    assert normalized_leaves(Box((84, 84, 3), "float32", 0.0, 255.0)) == {}
    counts = Dict({"ram": Box((128,), "uint8", 0.0, 255.0), "gold": Box((2,), "int32", 0.0, 10_000.0)})
    assert normalized_leaves(counts) == {"gold": 2, "ram": 128}
    assert normalized_leaves(counts, integers=False) == {}


def test_integers_are_normalized_to_mean_0_and_deviation_1() -> None:
    """Not as fractions of their bounds beside that."""
    space = Box((2,), "uint8", 0.0, 255.0)
    config = PPOConfig(normalize_observation=True, epochs=1, num_minibatches=1)
    trainer = config.build_trainer(space, ACTION, 0)
    batch = random_trajectory(config, space, ACTION, trainer, rows=9, lanes=8, seed=0)
    trainer.step(batch, 0.0)
    network, _ = config.build_network(space, ACTION, 0)
    FlatParameters(network, gradients=False).load(torch.from_numpy(trainer.parameters()))
    assert isinstance(network, NormalizedActorCritic)
    assert network.observation_normalizer is not None
    encoded = network.get_submodule("network.encoder")
    seen = torch.from_numpy(acted_on([batch]).astype(np.uint8))
    features = encoded(network.observation_normalizer(seen))
    torch.testing.assert_close(features.mean(0), torch.zeros(2), atol=1e-5, rtol=0.0)
    torch.testing.assert_close(features.std(0, correction=0), torch.ones(2), atol=1e-3, rtol=0.0)


def acted_on(batches: list[Trajectory]) -> Array:
    rows = [np.asarray(batch.observation)[:-1][batch.acting[:-1]] for batch in batches]
    return np.concatenate(rows).astype(np.float64)


def test_statistics_cover_all_observations_with_a_decision() -> None:
    trainer = BOTH.build_trainer(Box((4,)), ACTION, 0)
    batches = batches_of(BOTH, trainer, 3)
    for batch in batches:
        assert not trainer.step(batch, 0.0).skipped
    seen = acted_on(batches)
    count, mean, squares = trainer.state()["observation_moments"]
    assert (count == len(seen)).all()
    np.testing.assert_allclose(mean, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(squares / count, seen.var(0), rtol=1e-9)
    # The end of the flat vector: mean and scale of observations, then of values.
    tail = trainer.parameters()[-10:]
    np.testing.assert_allclose(tail[:4], seen.mean(0), rtol=1e-6)
    np.testing.assert_allclose(tail[4:8], 1.0 / seen.std(0), rtol=1e-4)
    np.testing.assert_allclose(
        tail[8:], [trainer.state()["return_moments"][1, 0], return_deviation(trainer)], rtol=1e-6
    )


def return_deviation(trainer: Trainer) -> float:
    count, _, squares = trainer.state()["return_moments"][:, 0]
    return math.sqrt(squares / count + 1e-8)


def test_parts_of_a_tree_have_separate_statistics() -> None:
    config = PPOConfig(normalize_observation=True, epochs=1, num_minibatches=1)
    trainer = config.build_trainer(MIXED, ACTION, 0)
    batch = random_trajectory(config, MIXED, ACTION, trainer, rows=3, lanes=4, seed=0)
    trainer.step(batch, 0.0)
    observation = batch.observation
    assert isinstance(observation, dict)
    flat = np.concatenate([observation["a"], observation["b"]["x"].reshape(3, 4, 4)], 2)[:-1][batch.acting[:-1]]
    state = trainer.state()
    means = np.concatenate([state[f"observation_moments/{path}"][1] for path in ("a", "b/x")])
    np.testing.assert_allclose(means, flat.mean(0), rtol=1e-6)


def test_rows_of_entities_share_the_statistics_of_their_columns() -> None:
    space = Dict({"own": Box((2,)), "things": Box((3, 4))})
    config = PPOConfig(
        normalize_observation=True, epochs=1, num_minibatches=1, entities=("things",), entity_size=8, hidden_sizes=(8,)
    )
    trainer = config.build_trainer(space, ACTION, 0)
    batch = random_trajectory(config, space, ACTION, trainer, rows=3, lanes=4, seed=0)
    trainer.step(batch, 0.0)
    observation = batch.observation
    assert isinstance(observation, dict)
    things = observation["things"][:-1][batch.acting[:-1]]  # [N, 3, 4]
    np.testing.assert_allclose(
        trainer.state()["observation_moments/things"][1], things.mean((0, 1)), rtol=1e-5, atol=1e-7
    )


@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["observation", "reward", "value"])
def test_a_number_that_is_not_finite_reaches_neither_weights_nor_statistics(where: str, what: float) -> None:
    trainer = BOTH.build_trainer(Box((4,)), ACTION, 0)
    good, poisoned = batches_of(BOTH, trainer, 2)
    trainer.step(good, 0.0)
    before = {name: array.copy() for name, array in trainer.state().items() if name != "counters"}
    array = {"observation": poisoned.observation, "reward": poisoned.reward, "value": poisoned.decision["value"]}[where]
    t, lane = np.argwhere(poisoned.acting[:-1])[40]
    np.asarray(array)[t, lane] = what
    assert trainer.step(poisoned, 0.0).skipped
    for name, part in before.items():
        assert trainer.state()[name].tobytes() == part.tobytes(), name


def test_observations_without_a_decision_are_not_counted() -> None:
    trainers = [BOTH.build_trainer(Box((4,)), ACTION, 0) for _ in range(2)]
    (batch,) = batches_of(BOTH, trainers[0], 1)
    trainers[0].step(batch, 0.0)
    idle = ~batch.acting
    idle[-1] = True
    np.asarray(batch.observation)[idle] = np.nan
    trainers[1].step(batch, 0.0)
    for name, array in trainers[0].state().items():
        assert trainers[1].state()[name].tobytes() == array.tobytes(), name


def test_neither_gradients_nor_the_optimizer_change_statistics() -> None:
    plain, trainer = (config.build_trainer(Box((4,)), ACTION, 0) for config in (PPOConfig(), BOTH))
    assert len(trainer.state()["exp_avg"]) == len(plain.parameters())
    assert len(trainer.parameters()) == len(plain.parameters()) + 4 + 4 + 1 + 1


def test_acting_does_not_change_statistics() -> None:
    trainer = BOTH.build_trainer(Box((4,)), ACTION, 0)
    policy = BOTH.build_policy(Box((4,)), ACTION, 0)
    policy.load(trainer.parameters(), 0)
    observation = np.full((8, 4), 50.0, np.float32)
    values = [policy.act(observation, None, np.zeros(8, bool))["value"] for _ in range(3)]
    np.testing.assert_array_equal(values[0], values[2])


OWN = """
import torch
from srl.networks.network import Network

class Own(Network):
    def __init__(self, inputs):
        super().__init__()
        self.policy, self.value = torch.nn.Linear(inputs, 2), torch.nn.Linear(inputs, 1)

    def forward(self, observation):
        return self.policy(observation), self.value(observation)[:, 0]

class WithHead(Own):
    def value_head(self):
        return self.value.weight, self.value.bias

def build(observation, action): return WithHead(4)
def hidden(observation, action): return Own(4)
"""


@pytest.mark.parametrize("kind", ["stacked", "shared", "own"])
def test_popart_changes_the_scale_and_keeps_every_value(kind: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    network_option = f"{tmp_path}/own.py:build" if kind == "own" else ""
    space = Box((2, 36, 36), "uint8") if kind == "shared" else Box((4,))
    network, _ = PPOConfig(normalize_return="popart", network=network_option).build_network(space, ACTION, 0)
    FlatParameters(network, gradients=True)
    normalizers = Normalizers(network, "popart")
    assert normalizers.returns is not None
    rng = np.random.default_rng(0)
    observation = torch.from_numpy(rng.random((8, *space.shape)).astype(np.float32) * 100).to(
        torch.uint8 if kind == "shared" else torch.float32
    )
    before = network(observation)[1].detach()
    for scale in (1e3, 1.0):
        normalizers.returns.fold(scale * (5.0 + rng.standard_normal(100)), Ranks())
        torch.testing.assert_close(network(observation)[1].detach(), before, rtol=1e-4, atol=1e-3)
    assert normalizers.deviation > 1e3


def test_popart_refuses_a_network_without_a_value_head(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    config = PPOConfig(normalize_return="popart", network=f"{tmp_path}/own.py:hidden")
    with pytest.raises(ValueError, match="Own has no method `value_head`"):
        config.check(Box((4,)), ACTION)


@pytest.mark.parametrize("normalize_return", ["running", "popart"])
def test_values_of_any_size_are_learned(normalize_return: str) -> None:
    """Every episode is one step and pays 10,000 or 12,000, as the observation says."""

    def value_of(config: PPOConfig) -> Array:
        observation, rng = Box((1,)), np.random.default_rng(0)
        trainer, policy = config.build_trainer(observation, ACTION, 0), config.build_policy(observation, ACTION, 0)
        true = np.ones((9, 16), bool)
        for version in range(30):
            policy.load(trainer.parameters(), version)
            sign = rng.choice([-1.0, 1.0], (9, 16)).astype(np.float32)
            decisions = [policy.act(sign[t][:, None], None, true[t]) for t in range(9)]
            decision = {key: np.stack([np.asarray(each[key]) for each in decisions]) for key in decisions[0]}
            reward = 11_000.0 + 1_000.0 * sign
            batch = Trajectory(sign[..., None], decision, reward, true, ~true, true, true, true.astype(np.int32))
            assert not trainer.step(batch, 0.0).skipped
        policy.load(trainer.parameters(), 99)
        return np.asarray(policy.act(np.array([[-1.0], [1.0]], np.float32), None, true[0, :2])["value"])

    options = {"learning_rate": 3e-3, "learning_rate_schedule": "constant", "hidden_sizes": (16,)}
    found = value_of(PPOConfig(normalize_return=normalize_return, **options))  # type: ignore[arg-type]
    np.testing.assert_allclose(found, [10_000, 12_000], rtol=0.01)
    assert (value_of(PPOConfig(**options)) < 1000).all()  # type: ignore[arg-type]


def test_a_network_within_normalizers_keeps_its_gradient() -> None:
    """By hand (`StackedPass`) and by autograd through the whole module."""
    from srl.networks.backpropagation import build_pass

    network, _ = BOTH.build_network(Box((4,)), ACTION, 3)
    flat = FlatParameters(network, gradients=True)
    tail = flat.values[len(flat.trainable) :]
    tail.copy_(torch.rand(len(tail)) + 0.5)
    network_pass = build_pass(network, flat.gradients)
    observation, gradients = torch.randn(7, 4), (torch.randn(7, 2), torch.randn(7))
    outputs = network_pass.forward(observation)
    network_pass.backward(*gradients)
    by_hand = flat.gradients.clone()
    flat.gradients.zero_()
    assert isinstance(network, nn.Module)
    wanted = network(observation)
    torch.autograd.backward(wanted, gradients)
    torch.testing.assert_close(outputs, tuple(output.detach() for output in wanted))
    torch.testing.assert_close(by_hand, flat.gradients)
