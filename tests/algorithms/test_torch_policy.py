"""The policy: what it returns, from which generator, and that training sees the same numbers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from support.trajectories import random_trajectory
from support.trees import leaf

from srl.algorithms.ppo.config import PPOConfig
from srl.api.algorithm import AlgorithmConfig
from srl.api.policy import Policy
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space, array_spec
from srl.base.tree import ArraySpec, Tree, leaves, map_tree
from srl.networks.build import build_network, distribution_for
from srl.networks.options import NetworkOptions
from srl.networks.parameters import FlatParameters

PAIRS: list[tuple[Space, Space]] = [
    (Box((4,)), Discrete(2)),
    (Box((17,), "float64"), Box((6,))),
    (Discrete(5), MultiDiscrete((2, 3))),
    (Dict({"a": Box((2, 2)), "b": MultiDiscrete((2, 2))}), Box((2, 2), "float64")),
    (Box((4, 36, 36), "uint8"), Discrete(6)),
]


def zeros(observation: Space, rows: int) -> Tree:
    return map_tree(lambda spec: spec.empty(rows), array_spec(observation))


@pytest.mark.parametrize(("observation", "action"), PAIRS, ids=str)
def test_a_decision_has_the_arrays_of_its_spec(observation: Space, action: Space) -> None:
    config = PPOConfig()
    assert isinstance(config, AlgorithmConfig)
    config.check(observation, action)
    policy = config.build_policy(observation, action, 0)
    assert isinstance(policy, Policy)
    assert policy.version == -1
    specs = dict(leaves(config.decision_spec(observation, action)))
    for greedy in (False, True):
        decision = policy.act(zeros(observation, 3), None, np.ones(3, bool), greedy=greedy)
        found = {path: ArraySpec(leaf.shape[1:], leaf.dtype.name) for path, leaf in leaves(decision)}
        assert found == specs
        assert all(leaf.shape[0] == 3 and leaf.flags.writeable for _, leaf in leaves(decision))


@pytest.mark.parametrize(("observation", "action"), PAIRS, ids=str)
def test_normalizers_are_the_same_in_acting_and_training(observation: Space, action: Space) -> None:
    """After an update, whose statistics come to the policy with the parameters."""
    config = PPOConfig(epochs=1, num_minibatches=1, normalize_observation=True, normalize_return="popart")
    trainer = config.build_trainer(observation, action, 3)
    trainer.step(random_trajectory(config, observation, action, trainer, rows=9, lanes=8, seed=4), 0.0)
    batch = random_trajectory(config, observation, action, trainer, rows=9, lanes=8, seed=5)
    metrics = trainer.step(batch, 0.0).metrics
    assert abs(metrics["approx_kl"]) < 1e-5
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize(("observation", "action"), PAIRS, ids=str)
def test_training_recomputes_the_log_prob_and_value_of_acting(observation: Space, action: Space) -> None:
    config = PPOConfig()
    trainer = config.build_trainer(observation, action, 3)
    batch = random_trajectory(config, observation, action, trainer, rows=9, lanes=8, seed=5)
    distribution = distribution_for(action)
    network = build_network(observation, action, distribution, NetworkOptions(), seed=0)
    FlatParameters(network, gradients=False).load(torch.from_numpy(trainer.parameters()))
    merged = map_tree(lambda array: torch.from_numpy(array.reshape(-1, *array.shape[2:])), batch.observation)
    parameters, value = network(merged)
    actions = torch.from_numpy(batch.decision["action"])
    log_prob = distribution.evaluate(parameters, actions.reshape(72, *actions.shape[2:])).log_prob
    np.testing.assert_allclose(log_prob.detach(), leaf(batch.decision, "log_prob").reshape(-1), atol=1e-5)
    np.testing.assert_allclose(value.detach(), leaf(batch.decision, "value").reshape(-1), atol=1e-5)
    # The same through the trainer: before its first step nothing has moved, so there is no divergence.
    once = PPOConfig(epochs=1, num_minibatches=1).build_trainer(observation, action, 3)
    metrics = once.step(batch, 0.0).metrics
    assert abs(metrics["approx_kl"]) < 1e-5
    assert metrics["clip_fraction"] == 0.0


@pytest.mark.parametrize(("low", "high"), [(0.0, 100.0), (-0.01, 0.01)])
def test_an_untrained_policy_explores_between_the_bounds(low: float, high: float) -> None:
    space = Box((1,), low=low, high=high)
    policy = PPOConfig(initial_std=0.5).build_policy(Box((4,)), space, 0)
    action = np.asarray(policy.act(np.zeros((4000, 4), np.float32), None, np.ones(4000, bool))["action"])
    assert action.mean() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
    assert action.std() == pytest.approx(0.5 * (high - low) / 2, rel=0.1)


def test_draws_come_from_the_policys_own_seed() -> None:
    def draw(seed: int) -> bytes:
        policy = PPOConfig().build_policy(Box((4,)), Box((2,)), seed)
        policy.load(np.zeros_like(PPOConfig().build_trainer(Box((4,)), Box((2,)), 0).parameters()), 0)
        torch.rand(seed)
        return np.asarray(policy.act(np.zeros((8, 4), np.float32), None, np.ones(8, bool))["action"]).tobytes()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_decisions_are_new_arrays_and_inputs_may_be_read_only_or_overwritten() -> None:
    policy = PPOConfig().build_policy(Box((4,)), Box((2,)), 0)
    observation = np.ones((8, 4), np.float32)
    observation.flags.writeable = False
    before = policy.act(observation, None, np.ones(8, bool), greedy=True)
    kept = {key: np.array(value) for key, value in before.items()}
    policy.act(np.full((8, 4), 7, np.float32), None, np.ones(8, bool))
    for key, value in before.items():
        np.testing.assert_array_equal(value, kept[key])


def test_parameters_are_copied_and_their_number_is_checked() -> None:
    policy = PPOConfig().build_policy(Box((4,)), Discrete(2), 0)
    parameters = PPOConfig().build_trainer(Box((4,)), Discrete(2), 9).parameters().copy()
    policy.load(parameters, 7)
    assert policy.version == 7
    observation, first = np.ones((4, 4), np.float32), np.ones(4, bool)
    value = policy.act(observation, None, first)["value"]
    parameters[:] = np.nan
    np.testing.assert_array_equal(policy.act(observation, None, first)["value"], value)
    with pytest.raises(ValueError, match=r"expected \[\d+\] parameters, found \[3\]"):
        policy.load(np.zeros(3, np.float32), 8)
    assert policy.version == 7


def test_greedy_takes_the_most_likely_action() -> None:
    policy = PPOConfig().build_policy(Box((4,)), Discrete(3), 0)
    observation = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)
    greedy = policy.act(observation, None, np.ones(64, bool), greedy=True)
    for _ in range(10):
        drawn = policy.act(observation, None, np.ones(64, bool))
        assert (leaf(drawn, "log_prob") <= np.asarray(greedy["log_prob"]) + 1e-6).all()


def test_several_threads_can_call_a_policy_at_once() -> None:
    policy = PPOConfig(hidden_sizes=(256, 256)).build_policy(Box((4,)), Discrete(2), 0)
    observations = [np.full((256, 4), number, np.float32) for number in range(2)]
    first = np.zeros(256, bool)
    alone = [leaf(policy.act(observation, None, first), "value") for observation in observations]

    def ask(number: int) -> int:
        return sum(
            not np.array_equal(leaf(policy.act(observations[number], None, first), "value"), alone[number])
            for _ in range(100)
        )

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(ask, range(2))) == [0, 0]
