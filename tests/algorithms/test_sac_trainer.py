"""Trainers of SAC, TD3 and DDPG: one update by hand, target networks, states, ranks and rollback."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from support.transitions import random_transitions
from torch import Tensor

from srl.algorithms.offpolicy.trainer import Minibatch
from srl.algorithms.sac.config import DDPGConfig, ReplayActorCriticConfig, SACConfig, TD3Config
from srl.algorithms.sac.networks import inner_actor
from srl.algorithms.sac.trainer import ReplayActorCriticTrainer, SACTrainer
from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.testing import check_algorithm

SMALL: dict[str, Any] = {"hidden_sizes": (8, 7), "batch_size": 16, "learning_rate": 0.01, "device": "cpu"}
SEEN, REACH = Box((3,)), Box((2,), low=(-1.0, 0.0), high=(1.0, 4.0))
MASKED = Dict({"seen": SEEN, "action_mask": MultiDiscrete((2, 2, 2))})
IMAGE = Box((3, 36, 36), "uint8", 0, 255)
KINDS: dict[str, tuple[ReplayActorCriticConfig, Space, Space]] = {
    "sac": (SACConfig(**SMALL), SEEN, REACH),
    "sac tanh": (SACConfig(**SMALL, activation="tanh"), SEEN, REACH),
    "sac fixed": (SACConfig(**SMALL, learn_temperature=False), SEEN, REACH),
    "sac clipped": (SACConfig(**SMALL, max_grad_norm=0.1), SEEN, REACH),
    "sac discrete": (SACConfig(**SMALL), SEEN, Discrete(3)),
    "sac masked": (SACConfig(**SMALL), MASKED, Discrete(3)),
    "sac image": (SACConfig(**SMALL, body="lean"), IMAGE, REACH),
    "redq": (SACConfig(**SMALL, num_critics=4, target_critics=2, policy_delay=2), SEEN, REACH),
    "droq": (SACConfig(**SMALL, critic_dropout=0.05, critic_layer_norm=True), SEEN, REACH),
    "global": (SACConfig(**SMALL, global_keys=("state",)), Dict({"own": SEEN, "state": Box((2,))}), REACH),
    "td3": (TD3Config(**SMALL), SEEN, REACH),
    "ddpg": (DDPGConfig(**SMALL), SEEN, REACH),
}


def transitions(observation: Space, action: Space, num_steps: int = 2, seed: int = 0) -> TransitionBatch:
    return random_transitions(observation, action, num_steps, 16, seed)


def build(name: str, seed: int = 0, **changes: Any) -> tuple[ReplayActorCriticTrainer, Space, Space]:
    config, observation, action = KINDS[name]
    trainer = dataclasses.replace(config, **changes).build_trainer(observation, action, seed)
    assert isinstance(trainer, ReplayActorCriticTrainer)
    return trainer, observation, action


def copied(trainer: ReplayActorCriticTrainer) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in trainer.state().items()}


@pytest.mark.parametrize("name", KINDS)
def test_the_contract_holds(name: str) -> None:
    config, observation, action = KINDS[name]
    assert check_algorithm(config, observation, action) == []


@pytest.mark.parametrize("name", KINDS)
def test_a_restored_trainer_continues_bit_for_bit(name: str) -> None:
    one, observation, action = build(name)
    other = build(name, seed=5)[0]
    one.step(transitions(observation, action, seed=1), 0.0)
    other.restore(copied(one))
    for seed in (2, 3):
        for trainer in (one, other):
            trainer.step(transitions(observation, action, seed=seed), 0.5)
    expected, found = one.state(), other.state()
    assert expected.keys() == found.keys()
    for key, array in expected.items():
        np.testing.assert_array_equal(array, found[key], err_msg=key)


@pytest.mark.parametrize("name", ["sac", "sac discrete", "td3"])
def test_an_update_with_nan_is_rolled_back(name: str) -> None:
    trainer, observation, action = build(name)
    trainer.step(transitions(observation, action, seed=1), 0.0)
    before, batch = copied(trainer), transitions(observation, action, seed=2)
    batch.reward[1, 3] = np.nan
    result = trainer.step(batch, 0.0)
    assert result.skipped
    assert result.num_decisions == 32
    for key, array in trainer.state().items():
        np.testing.assert_array_equal(array, before[key], err_msg=key)
    assert not trainer.step(transitions(observation, action, seed=3), 0.0).skipped


@pytest.mark.parametrize("name", ["sac", "sac discrete"])
def test_targets_lag_behind_their_critics_by_tau(name: str) -> None:
    trainer, observation, action = build(name, tau=0.25)
    before = copied(trainer)
    np.testing.assert_array_equal(before["target/critic"], before["critic/parameters"])
    trainer.step(transitions(observation, action, num_steps=1), 0.0)
    after = trainer.state()
    expected = 0.75 * before["target/critic"] + 0.25 * after["critic/parameters"]
    np.testing.assert_allclose(after["target/critic"], expected, rtol=1e-5, atol=1e-7)
    assert np.abs(after["target/critic"] - after["critic/parameters"]).max() > 1e-4


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("name", ["sac", "sac tanh", "sac fixed", "sac clipped", "redq", "td3", "ddpg"])
def test_compiled_steps_equal_those_of_autograd(name: str, threads: int) -> None:
    (one, observation, action), other = (
        build(name, learning_rate=1e-3, update_threads=threads),
        build(name, learning_rate=1e-3)[0],
    )
    assert one.compiled is not None
    other.compiled = None
    for seed in range(3):
        batch = transitions(observation, action, seed=seed)
        results = [trainer.step(batch, 0.0) for trainer in (one, other)]
        assert results[0].metrics == pytest.approx(results[1].metrics, rel=1e-4, abs=1e-6)
        found, wanted = (np.asarray(result.priorities) for result in results)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    expected = other.state()
    for key, array in one.state().items():
        np.testing.assert_allclose(array, expected[key], rtol=1e-3, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", ["sac masked", "sac image", "droq", "sac discrete"])
def test_other_networks_are_left_to_autograd(name: str) -> None:
    assert getattr(build(name)[0], "compiled", None) is None


def test_td3_moves_actor_and_targets_only_every_second_step() -> None:
    trainer, observation, action = build("td3")
    before = copied(trainer)
    trainer.step(transitions(observation, action, num_steps=1, seed=1), 0.0)
    first = copied(trainer)
    trainable = inner_actor(trainer.network).exploration.numel()
    np.testing.assert_array_equal(first["parameters"][:-trainable], before["parameters"][:-trainable])
    for key in ("target/critic", "target/actor"):
        np.testing.assert_array_equal(first[key], before[key])
    assert np.abs(first["critic/parameters"] - before["critic/parameters"]).max() > 0.0
    trainer.step(transitions(observation, action, num_steps=1, seed=2), 0.0)
    for key in ("parameters", "target/critic", "target/actor"):
        assert np.abs(trainer.state()[key] - first[key]).max() > 0.0, key


def test_each_network_has_its_own_optimizer() -> None:
    """After a step of a large gradient in one network, the others' moments are unchanged."""
    trainer, observation, action = build("sac", policy_delay=3)
    trainer.step(transitions(observation, action, num_steps=2), 0.0)
    state = trainer.state()
    assert (float(state["num_steps"]), float(state["critic/num_steps"])) == (0.0, 2.0)
    assert float(state["temperature/num_steps"]) == 0.0
    assert not state["exp_avg"].any()
    assert state["critic/exp_avg"].any()


def minibatch(trainer: ReplayActorCriticTrainer, observation: Space, action: Space) -> Minibatch:
    batch = transitions(observation, action, num_steps=1)
    taken = (batch.observation, batch.decision["action"], batch.reward, batch.discount, batch.next_observation)
    seen, taken_action, reward, discount, after = (torch.from_numpy(np.asarray(array)[0]) for array in taken)
    return trainer.prepare(Minibatch(seen, taken_action, reward, discount, after, torch.ones(16)))


def test_the_target_of_sac_by_hand() -> None:
    trainer, observation, action = build("sac")
    assert isinstance(trainer, SACTrainer)
    batch = minibatch(trainer, observation, action)
    trainer.temperature.log_value.data.fill_(np.log(0.3))
    trainer.generator.manual_seed(3)
    with torch.no_grad():
        found = trainer.critic_target(batch)
        mean, log_std = trainer.network(batch.next_observation)[0].chunk(2, 1)
        noise = torch.empty(16, 2).normal_(generator=torch.Generator().manual_seed(3))
        raw = mean + log_std.exp() * noise
        base = torch.distributions.Normal(mean, log_std.exp()).log_prob(raw)
        log_prob = (base - (1.0 - raw.tanh().square()).log()).sum(1)
        values = trainer.target_critics(batch.next_observation, raw.tanh())
        expected = batch.reward + batch.discount * (values.min(0).values - 0.3 * log_prob)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert (batch.discount == 0.0).any()
    torch.testing.assert_close(found[batch.discount == 0.0], batch.reward[batch.discount == 0.0])


def test_actions_reach_the_critics_in_units_of_their_bounds() -> None:
    trainer, _, _ = build("sac")
    native = torch.tensor([[-1.0, 0.0], [0.0, 2.0], [1.0, 4.0]])
    batch = Minibatch(None, native, native, native, None, native)
    torch.testing.assert_close(trainer.prepare(batch).action, torch.tensor([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize("name", ["sac", "sac discrete", "td3", "droq"])
def test_the_gradient_of_the_actor_equals_finite_differences(name: str) -> None:
    trainer, observation, action = build(name, activation="tanh")
    for module in (trainer.network, trainer.critics):
        module.double()
    for owner in (inner_actor(trainer.network), trainer.critics):
        owner.encoder = torch.nn.Identity()  # the encoder of vectors returns float32
    batch = minibatch(trainer, observation, action)
    batch = Minibatch(*(part.double() if part.is_floating_point() else part for part in batch))

    def loss() -> Tensor:
        trainer.generator.manual_seed(1)
        return trainer.actor_loss(batch)[0]

    weight = inner_actor(trainer.network).layers.weights[1]
    weight.grad = None
    loss().backward()
    assert weight.grad is not None
    for index in ((0, 0, 0), (0, 3, 5)):
        with torch.no_grad():
            weight[index] += 1e-6
            above = loss()
            weight[index] -= 2e-6
            below = loss()
            weight[index] += 1e-6
        assert float(above - below) / 2e-6 == pytest.approx(float(weight.grad[index]), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("entropy_target", [-20.0, 20.0])
def test_the_temperature_follows_the_target_entropy(entropy_target: float) -> None:
    trainer, observation, action = build("sac", target_entropy=entropy_target)
    for seed in range(5):
        metrics = trainer.step(transitions(observation, action, seed=seed), 0.0).metrics
    assert (metrics["temperature"] > 1.0) == (entropy_target > 0.0)


def test_a_fixed_temperature_stays() -> None:
    trainer, observation, action = build("sac fixed", initial_temperature=0.2)
    assert trainer.step(transitions(observation, action), 0.0).metrics["temperature"] == pytest.approx(0.2)
    assert float(np.exp(trainer.state()["temperature/parameters"][0])) == pytest.approx(0.2)


def test_the_target_of_redq_uses_random_critics() -> None:
    trainer, _, _ = build("redq")
    drawn = {tuple(sorted(trainer.target_members().tolist())) for _ in range(100)}  # type: ignore[union-attr]
    assert drawn == {(a, b) for a in range(4) for b in range(a + 1, 4)}


@pytest.mark.parametrize(("name", "is_mean"), [("sac", False), ("redq", True), ("droq", True), ("sac discrete", False)])
def test_the_actor_maximizes_the_lowest_value_or_the_mean_of_all_critics(name: str, is_mean: bool) -> None:
    """Haarnoja et al. 2018, eq. 7; Chen et al. 2021, algorithm 1; Hiraoka et al. 2022, algorithm 2, line 10."""
    trainer, _, _ = build(name)
    values = torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    assert trainer.for_actor(values).tolist() == ([2.0, -1.0] if is_mean else [1.0, -4.0])


def test_importance_weights_scale_the_critics_loss() -> None:
    trainer, observation, action = build("sac", policy_delay=2)
    batch = transitions(observation, action, num_steps=1)
    halved = copy.deepcopy(batch)
    halved.weight *= 0.5
    other = build("sac", policy_delay=2)[0]
    whole, half = trainer.step(batch, 0.0).metrics, other.step(halved, 0.0).metrics
    assert half["critic_loss"] == pytest.approx(0.5 * whole["critic_loss"], rel=1e-5)


def test_priorities_are_absolute_errors_before_the_step() -> None:
    trainer, observation, action = build("sac")
    reference = build("sac")[0]
    batch = transitions(observation, action, num_steps=1)
    priorities = trainer.step(batch, 0.0).priorities
    assert priorities is not None
    assert priorities.shape == (1, 16)
    reference.counters[1] += 1
    own = minibatch(reference, observation, action)
    reference.generator.manual_seed(trainer.generator.initial_seed())
    with torch.no_grad():
        error = (reference.taken_values(own) - reference.critic_target(own)).abs().mean(0)
    np.testing.assert_allclose(priorities[0], error.numpy(), rtol=1e-4, atol=1e-5)


def test_policies_act_at_random_until_learning_starts() -> None:
    trainer, observation, action = build("sac")
    config = KINDS["sac"][0]
    policy = config.build_policy(observation, action, 1)
    empty = transitions(observation, action, num_steps=0)
    seen, first = np.zeros((4000, 3), np.float32), np.zeros(4000, bool)
    assert trainer.step(empty, 0.0).num_decisions == 0
    policy.load(trainer.parameters(), 0)
    actions = np.asarray(policy.act(seen, None, first)["action"])
    np.testing.assert_allclose(actions.mean(0), [0.0, 2.0], atol=0.1)
    np.testing.assert_allclose(actions.std(0), [2.0 / 12**0.5, 4.0 / 12**0.5], rtol=0.05)
    trainer.step(transitions(observation, action), 0.0)
    policy.load(trainer.parameters(), 1)
    learned = np.asarray(policy.act(seen, None, first)["action"])
    assert abs(learned.std(0) - actions.std(0)).max() > 0.02


def test_td3_explores_with_noise_that_may_change_during_a_run() -> None:
    config = TD3Config(**SMALL, exploration_noise=0.01, learning_starts=0)
    trainer = config.build_trainer(SEEN, REACH, 0)
    policy = config.build_policy(SEEN, REACH, 1)
    seen, first = np.zeros((4000, 3), np.float32), np.zeros(4000, bool)
    for noise in (0.01, 0.1):
        trainer.reconfigure(config.with_option("exploration_noise", noise))
        trainer.step(transitions(SEEN, REACH), 0.0)
        policy.load(trainer.parameters(), 0)
        greedy = np.asarray(policy.act(seen, None, first, greedy=True)["action"])
        deviation = (np.asarray(policy.act(seen, None, first)["action"]) - greedy).std(0)
        np.testing.assert_allclose(deviation, [noise, 2.0 * noise], rtol=0.1)


def test_random_actions_of_the_warm_up_respect_the_mask() -> None:
    trainer, observation, action = build("sac masked")
    policy = KINDS["sac masked"][0].build_policy(observation, action, 1)
    policy.load(trainer.parameters(), 0)
    mask = np.tile(np.array([1, 0, 1]), (500, 1))
    seen = {"seen": np.zeros((500, 3), np.float32), "action_mask": mask}
    actions = np.asarray(policy.act(seen, None, np.zeros(500, bool))["action"])
    assert set(actions.tolist()) == {0, 2}
