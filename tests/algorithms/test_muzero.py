"""MuZero: what the policy's searches depend on, what an update depends on, and what it learns."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.transitions import random_sequences

import srl
from srl.algorithms.muzero.config import MuZeroConfig
from srl.algorithms.muzero.policy import MuZeroPolicy
from srl.algorithms.muzero.trainer import NETWORK, MuZeroTrainer, half_gradient
from srl.api.dataflow import SequenceBatch
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.base.tree import Array
from srl.testing import check_algorithm
from srl.testing.findings import has_errors

SEEN, ARMS = Box((3,), low=-1.0, high=1.0), Discrete(3)
MASKED = Dict({"seen": SEEN, "action_mask": Box((3,), low=0, high=1, dtype="int8")})
IMAGE = Box((8, 8, 3), low=0, high=255, dtype="uint8")
SMALL = MuZeroConfig(hidden_sizes=(16,), latent_size=8, num_bins=11, simulations=6, n_step=2, unroll=3)
KINDS: dict[str, tuple[MuZeroConfig, Space]] = {
    "plain": (SMALL, SEEN),
    "puct": (replace(SMALL, search="puct", bootstrap="search"), SEEN),
    "masked": (replace(SMALL, normalize_observation=True, prioritized=True), MASKED),
    "image": (replace(SMALL, random_shift=1, consistency_weight=2.0), IMAGE),
}


def trainer_of(kind: str = "plain", seed: int = 1, **changes: Any) -> MuZeroTrainer:
    config, observation = KINDS[kind]
    trainer = replace(config, **changes).build_trainer(observation, ARMS, seed)
    assert isinstance(trainer, MuZeroTrainer)
    return trainer


def policy_of(trainer: MuZeroTrainer, kind: str = "plain", seed: int = 2, **changes: Any) -> Any:
    config, observation = KINDS[kind]
    policy = replace(config, **changes).build_policy(observation, ARMS, seed)
    assert isinstance(policy, MuZeroPolicy)
    policy.load(trainer.parameters(), 0)
    return policy


def drawn(kind: str = "plain", seed: int = 0, num_lanes: int = 6) -> SequenceBatch:
    """Return a random batch, with the decisions of searches in it."""
    observation = KINDS[kind][1]
    batch = random_sequences(observation, ARMS, 1, num_lanes=num_lanes, burn_in=0, length=5, seed=seed)
    generator = np.random.default_rng(seed + 50)
    shape = batch.reward.shape
    if kind == "masked":
        np.asarray(batch.observation["action_mask"])[...] = 1
    batch.decision = {
        **batch.decision,
        "policy": generator.dirichlet(np.ones(3), shape).astype(np.float32),
        "value": generator.normal(size=shape).astype(np.float32),
    }
    if KINDS[kind][0].normalize_observation:
        batch.new = {"seen": np.asarray(batch.observation["seen"]).reshape(-1, 3)}
    return batch


def shaken(trainer: MuZeroTrainer, seed: int = 5) -> MuZeroTrainer:
    """Return the trainer with other parameters: those of outputs are zero at first."""
    flat = trainer.learner.flat[NETWORK].trainable
    flat.add_(0.3 * torch.randn(flat.shape, generator=torch.Generator().manual_seed(seed)))
    trainer.learner.follow(NETWORK, 1.0)
    return trainer


def observations(num_rows: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (num_rows, 3)).astype(np.float32)


def fresh(num_rows: int) -> Array:
    return np.ones(num_rows, bool)


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_of_algorithms_holds(kind: str) -> None:
    config, observation = KINDS[kind]
    findings = check_algorithm(config, observation, ARMS)
    assert not has_errors(findings), findings


def test_policy_and_trainer_compute_the_same_values() -> None:
    trainer = shaken(trainer_of())
    rows = observations(5)
    acting, learning = policy_of(trainer).value(rows, None, fresh(5)), trainer.value(rows, None, fresh(5))
    assert np.ptp(acting) > 1e-3
    np.testing.assert_allclose(acting, learning, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("residual", [False, True])
def test_the_compiled_model_and_the_network_predict_the_same_future(residual: bool) -> None:
    trainer = shaken(trainer_of(residual=residual))
    policy, network = policy_of(trainer, residual=residual), trainer._network
    root = policy._model.root(observations(4))
    action = np.array([0, 1, 2, 1])
    step = policy._model(root.state.copy(), action)
    with torch.no_grad():
        latent = network.imagine(network.represent(torch.from_numpy(observations(4))), torch.from_numpy(action))
        logits, value, reward = network.predict(latent)
    np.testing.assert_allclose(step.state, latent.numpy(), atol=1e-5)
    np.testing.assert_allclose(step.logits, logits.numpy(), atol=1e-4)
    np.testing.assert_allclose(step.value, network.mean(value).numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(step.reward, network.mean(reward).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["plain", "puct"])
def test_a_greedy_search_does_not_depend_on_the_other_lanes(kind: str) -> None:
    policy, rows = policy_of(shaken(trainer_of(kind)), kind), observations(7)
    together = policy.act(rows, None, fresh(7), greedy=True)
    alone = [policy.act(rows[i : i + 1], None, fresh(1), greedy=True) for i in range(7)]
    assert np.array_equal(together["action"], np.concatenate([one["action"] for one in alone]))
    for name in ("policy", "value"):
        np.testing.assert_allclose(together[name], np.concatenate([one[name] for one in alone]), rtol=1e-4, atol=1e-5)


def test_noise_chooses_actions_but_is_not_in_the_targets() -> None:
    """A network that has learned nothing predicts equal values: the improved policy is its own, whatever the noise."""
    policy, rows = policy_of(trainer_of()), observations(64)
    decision = policy.act(rows, None, fresh(64))
    assert len(np.unique(decision["action"])) == 3
    np.testing.assert_allclose(decision["policy"], 1 / 3, atol=1e-6)
    again = policy.act(rows, None, fresh(64))
    assert not np.array_equal(decision["action"], again["action"])  # fresh noise in every search


def test_greedy_searches_have_no_noise() -> None:
    trainer = shaken(trainer_of("puct"))
    one, other = (policy_of(trainer, "puct", seed=seed) for seed in (1, 2))
    rows = observations(9)
    first, second = one.act(rows, None, fresh(9), greedy=True), other.act(rows, None, fresh(9), greedy=True)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    again = one.reanalyze(rows)
    assert all(np.array_equal(again[name], first[name]) for name in ("policy", "value"))


@pytest.mark.parametrize("simulations", [0, 6])
@pytest.mark.parametrize("search", ["gumbel", "puct"])
def test_forbidden_actions_are_neither_taken_nor_targets(search: Any, simulations: int) -> None:
    trainer = shaken(trainer_of("masked"))
    policy = policy_of(trainer, "masked", search=search, simulations=simulations)
    allowed = np.tile(np.array([[1, 0, 1], [0, 1, 0], [0, 1, 1]], np.int8), (10, 1))
    for greedy in (False, True):
        observation = {"seen": observations(30), "action_mask": allowed}
        decision = policy.act(observation, None, fresh(30), greedy=greedy)
        assert allowed[np.arange(30), decision["action"]].all()
        assert (np.asarray(decision["policy"])[allowed == 0] == 0.0).all()
        np.testing.assert_allclose(np.asarray(decision["policy"]).sum(1), 1.0, rtol=1e-5)


def test_a_mask_without_a_legal_action_is_an_error_if_the_agent_acted() -> None:
    trainer, batch = trainer_of("masked"), drawn("masked")
    mask: Any = batch.observation["action_mask"]
    mask[...] = 1
    mask[0, ~batch.acting[0]] = 0
    assert not trainer.step(batch, 0.0).skipped
    batch.acting[0, 0, 0] = True
    mask[0, 0, 0] = 0
    with pytest.raises(ValueError, match="'action_mask' of an observation in which an agent acted allows no action"):
        trainer.step(batch, 0.0)


def test_without_simulations_the_network_decides() -> None:
    trainer = shaken(trainer_of())
    policy, rows = policy_of(trainer, simulations=0), observations(6)
    with torch.no_grad():
        logits, value = trainer._network(torch.from_numpy(rows))
    decision = policy.act(rows, None, fresh(6), greedy=True)
    assert np.array_equal(decision["action"], logits.argmax(1).numpy())
    np.testing.assert_allclose(decision["policy"], logits.softmax(1).numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(decision["value"], value.numpy(), rtol=1e-4, atol=1e-4)


def test_a_restored_policy_continues_with_the_same_noise() -> None:
    trainer = shaken(trainer_of())
    one, other = policy_of(trainer), policy_of(trainer, seed=9)
    one.act(observations(5), None, fresh(5))
    other.restore(one.state())
    first, second = (policy.act(observations(20), None, fresh(20)) for policy in (one, other))
    assert np.array_equal(first["action"], second["action"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_trainer_learns_exactly_as_the_saved_one(kind: str) -> None:
    trainer = trainer_of(kind)
    trainer.step(drawn(kind), 0.1)
    other = trainer_of(kind, seed=9)
    other.restore({name: array.copy() for name, array in trainer.state().items()})
    for each in (trainer, other):
        each.step(drawn(kind, 1), 0.2)
    state, restored = trainer.state(), other.state()
    assert all(np.array_equal(state[name], restored[name]) for name in state)


def test_an_update_that_is_not_finite_is_rolled_back() -> None:
    trainer = trainer_of()
    trainer.step(drawn(), 0.1)
    before = {name: array.copy() for name, array in trainer.state().items()}
    batch = drawn()
    batch.reward[1, 0, 0] = np.nan
    assert trainer.step(batch, 0.1).skipped
    assert all(np.array_equal(before[name], array) for name, array in trainer.state().items())


def test_rows_without_a_decision_have_no_effect() -> None:
    batch, trainer, other = drawn(), trainer_of(), trainer_of()
    changed = copy.deepcopy(batch)
    changed.reward[~batch.acting] = 100.0
    for name, value in (("action", 0), ("policy", 0.5), ("value", 100.0)):
        np.asarray(changed.decision[name])[~batch.acting] = value
    results = trainer.step(batch, 0.0), other.step(changed, 0.0)
    assert np.array_equal(trainer.parameters(), other.parameters())
    assert np.array_equal(np.asarray(results[0].priorities), np.asarray(results[1].priorities))


def test_a_window_of_weight_zero_has_no_effect() -> None:
    batch, trainer, other = drawn(), trainer_of(), trainer_of()
    batch.weight[:, 2] = 0.0
    changed = copy.deepcopy(batch)
    changed.reward[:, :, 2] += 3.0
    np.asarray(changed.decision["policy"])[:, :, 2] = [0.0, 0.0, 1.0]
    trainer.step(batch, 0.0)
    other.step(changed, 0.0)
    np.testing.assert_allclose(trainer.parameters(), other.parameters(), atol=1e-7)


def test_priorities_are_the_errors_of_the_first_values() -> None:
    trainer = trainer_of()  # predicts 0 everywhere
    batch = drawn()
    batch.acting[...], batch.valid[...], batch.first[...] = True, True, False
    batch.terminated[...] = batch.truncated[...] = False
    gamma = SMALL.gamma
    window = trainer.minibatch(batch, 0, trainer.learner.device)
    _, errors = trainer.gradient_step(window, 0.0)
    np.testing.assert_allclose(errors.numpy(), np.abs(batch.reward[0, 0] + gamma * batch.reward[0, 1]), rtol=1e-4)


def test_stored_root_values_are_bootstrapped_from_except_where_no_search_was_made() -> None:
    batch = drawn("puct")
    batch.acting[...], batch.valid[...], batch.first[...] = True, True, False
    batch.terminated[...] = batch.truncated[...] = False
    batch.reward[...] = 0.0
    batch.truncated[0, 1, 3], batch.acting[0, 2, 3] = True, False
    trainer = shaken(trainer_of("puct"))
    targets = trainer.value_targets(trainer.minibatch(batch, 0, trainer.learner.device)).numpy()
    gamma, stored = SMALL.gamma, np.asarray(batch.decision["value"])[0]
    np.testing.assert_allclose(targets[0, :3], gamma**2 * stored[2, :3], rtol=1e-5)
    last = trainer.value(np.asarray(batch.observation)[0, 2], None, fresh(6))
    assert last is not None
    np.testing.assert_allclose(targets[0, 3], gamma**2 * last[3], rtol=1e-4)


def test_each_step_of_the_dynamics_halves_the_gradient() -> None:
    numbers = torch.ones(2, requires_grad=True)
    half_gradient(numbers).sum().backward()
    assert numbers.grad is not None
    assert numbers.grad.tolist() == [0.5, 0.5]
    trainer = shaken(trainer_of())
    network, window = trainer._network, trainer.minibatch(drawn(), 0, trainer.learner.device)
    seen = window.observation[: len(window.weight)].clone().requires_grad_()
    (halved,) = torch.autograd.grad(trainer._unroll(window._replace(observation=seen))[-1].sum(), seen)
    latent = network.represent(seen)
    for action in window.action:
        latent = network.imagine(latent, action)
    (whole,) = torch.autograd.grad(latent.sum(), seen)
    torch.testing.assert_close(halved, 0.25 * whole)  # two of the three steps receive it from later ones


def test_targets_follow_the_target_network_and_not_the_one_that_learns() -> None:
    trainer = shaken(trainer_of())
    window = trainer.minibatch(drawn(), 0, trainer.learner.device)
    before = trainer.value_targets(window)
    trainer.learner.flat[NETWORK].trainable.mul_(2.0)
    assert torch.equal(before, trainer.value_targets(window))
    trainer.learner.follow(NETWORK, 1.0)
    assert not torch.equal(before, trainer.value_targets(window))


def test_the_model_learns_rewards_values_and_policies() -> None:
    """One-step episodes: action a earns the entry a of the observation."""
    generator = np.random.default_rng(0)
    trainer = trainer_of(learning_rate=1e-2, latent_size=16, hidden_sizes=(32,))
    for _ in range(200):
        batch = drawn(num_lanes=64)
        seen = generator.uniform(-1.0, 1.0, (*batch.reward.shape, 3)).astype(np.float32)
        batch.observation = seen
        action = np.asarray(batch.decision["action"])
        batch.acting[...] = np.arange(batch.acting.shape[1])[:, None] % 2 == 0
        batch.terminated[...], batch.first[...] = batch.acting, batch.acting
        batch.truncated[...], batch.valid[...] = False, True
        batch.reward[...] = np.take_along_axis(seen, action[..., None], -1)[..., 0]
        np.asarray(batch.decision["policy"])[...] = np.eye(3, dtype=np.float32)[seen.argmax(-1)]
        result = trainer.step(batch, 0.0)
    assert not result.skipped
    rows = observations(200, seed=3)
    policy = policy_of(trainer, latent_size=16, hidden_sizes=(32,))
    assert (policy.act(rows, None, fresh(200), greedy=True)["action"] == rows.argmax(1)).mean() > 0.85
    step = policy._model(policy._model.root(rows).state, np.zeros(200, np.int64))
    assert np.corrcoef(step.reward, rows[:, 0])[0, 1] > 0.9


def test_what_the_search_cannot_do_is_said_before_a_run_begins(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="simulations must be at least 1"):
        replace(SMALL, simulations=0).check(SEEN, ARMS)
    with pytest.raises(ValueError, match="MB"):
        replace(SMALL, search_memory_mb=1, simulations=50).check(SEEN, Discrete(10_000))
    small: dict[str, Any] = {"scheduler": "inline", "root": tmp_path, "steps": 1500, "algo": "muzero"}
    for options, lanes in (
        ({"muzero": {"search_memory_mb": 1, "max_target_age": 0}}, "256 searches at once.* need 2 MB"),
        ({"muzero": {"search_memory_mb": 1}, "lanes": 512}, "512 searches at once.* need 4 MB"),
    ):
        with pytest.raises(ValueError, match=lanes + ", more than search_memory_mb=1; use --algo.search-memory-mb"):
            srl.train("CartPole-v1", **small, **options)
    with pytest.raises(ValueError, match="num_bins must be odd"):
        replace(SMALL, num_bins=10)
