"""Sampled MuZero: what decisions and targets consist of, its loss, and what it learns."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from algorithms.test_muzero import SEEN, SMALL, fresh, observations, shaken
from support.transitions import random_sequences
from torch.distributions import Categorical, Normal

from srl.algorithms.muzero.config import MuZeroConfig
from srl.algorithms.muzero.policy import MuZeroPolicy
from srl.algorithms.muzero.samples import entropy
from srl.algorithms.muzero.trainer import MuZeroTrainer
from srl.api.dataflow import Replay, SequenceBatch
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.base.tree import Array
from srl.testing import check_algorithm
from srl.testing.findings import has_errors

SAMPLED = replace(SMALL, sampled_actions=7, initial_std=0.5)
REAL, SEVERAL, MANY = Box((2,), low=(-1.0, 0.0), high=(1.0, 4.0)), MultiDiscrete((3, 4)), Discrete(50)
SPACES: dict[str, Space] = {"real": REAL, "several": SEVERAL, "many": MANY}


def trainer_of(action: Space = REAL, **changes: Any) -> MuZeroTrainer:
    trainer = replace(SAMPLED, **changes).build_trainer(SEEN, action, 1)
    assert isinstance(trainer, MuZeroTrainer)
    return trainer


def policy_of(trainer: MuZeroTrainer, action: Space = REAL, version: int = 0, **changes: Any) -> Any:
    policy = replace(SAMPLED, **changes).build_policy(SEEN, action, 2)
    assert isinstance(policy, MuZeroPolicy)
    policy.load(trainer.parameters(), version)
    return policy


def drawn(policy: Any, action: Space = REAL, num_lanes: int = 6) -> SequenceBatch:
    """Return a random batch with the decisions of a policy."""
    batch = random_sequences(SEEN, action, 1, num_lanes=num_lanes, burn_in=0, length=5)
    shape = batch.reward.shape
    decision = policy.act(np.asarray(batch.observation).reshape(-1, 3), None, fresh(int(np.prod(shape))))
    batch.decision = {name: np.asarray(part).reshape(*shape, *part.shape[1:]) for name, part in decision.items()}
    return batch


@pytest.mark.parametrize("search", ["gumbel", "puct"])
@pytest.mark.parametrize("space", SPACES)
def test_the_contract_of_algorithms_holds(space: str, search: Any) -> None:
    findings = check_algorithm(replace(SAMPLED, search=search), SEEN, SPACES[space])
    assert not has_errors(findings), findings


@pytest.mark.parametrize("simulations", [0, 6])
@pytest.mark.parametrize("space", SPACES)
def test_an_action_is_one_of_the_sampled_ones_which_are_stored_with_their_weights(space: str, simulations: int) -> None:
    action = SPACES[space]
    policy = policy_of(shaken(trainer_of(action)), action, simulations=simulations)
    for greedy in (False, True):
        decision = policy.act(observations(30), None, fresh(30), greedy=greedy)
        weights, sampled = decision["policy"][..., 0], decision["policy"][..., 1:]
        assert weights.sum(1) == pytest.approx(np.ones(30), abs=1e-5)
        taken = np.asarray(decision["action"]).reshape(30, 1, -1)
        candidates = np.array([0.0, 2.0]) + np.array([1.0, 2.0]) * np.tanh(sampled) if space == "real" else sampled
        assert np.abs(candidates - taken).max(-1).min(1) == pytest.approx(np.zeros(30), abs=1e-5)
    assert decision["action"].dtype == ("float32" if space == "real" else "int64")


def test_without_simulations_the_mean_of_the_policy_is_the_greedy_action() -> None:
    trainer = shaken(trainer_of())
    policy, rows = policy_of(trainer, simulations=0), observations(6)
    with torch.no_grad():
        mean = trainer._network(torch.from_numpy(rows))[0][:, :2].numpy()
    decision = policy.act(rows, None, fresh(6), greedy=True)
    assert decision["action"] == pytest.approx(np.array([0.0, 2.0]) + np.array([1.0, 2.0]) * np.tanh(mean), abs=1e-5)


@pytest.mark.parametrize("space", SPACES)
def test_the_compiled_model_and_the_network_predict_the_same_future(space: str) -> None:
    action = SPACES[space]
    trainer = shaken(trainer_of(action))
    policy, network, rows = policy_of(trainer, action), trainer._network, observations(4)
    root, _ = policy._root(rows, np.arange(4))
    step = policy._model(root.state, np.array([0, 3, 6, 3]))
    sampled = root.state[:, -7 * policy._samples.size :].reshape(4, 7, -1)[np.arange(4), [0, 3, 6, 3]]
    native = policy._actions.native(sampled)
    inputs = policy._actions.inputs(native[None], np.ones((1, 4), bool), np.random.default_rng(0))[0]
    with torch.no_grad():
        latent = network.imagine(network.represent(torch.from_numpy(rows)), torch.from_numpy(inputs))
        _, value, reward = network.predict(latent)
    assert step.state[:, :8] == pytest.approx(latent.numpy(), abs=1e-5)
    assert step.value == pytest.approx(network.mean(value).numpy(), abs=1e-3)
    assert step.reward == pytest.approx(network.mean(reward).numpy(), abs=1e-3)


@pytest.mark.parametrize("space", SPACES)
def test_the_loss_of_the_policy_is_the_cross_entropy_on_the_sampled_actions(space: str) -> None:
    action = SPACES[space]
    trainer = shaken(trainer_of(action))
    window = trainer.minibatch(drawn(policy_of(trainer, action), action), 0, trainer.learner.device)
    assert window.sampled is not None
    with torch.no_grad():
        policy = trainer._network.predict(trainer._unroll(window).flatten(0, 1))[0].view(*window.policy.shape[:2], -1)
    expected = 0.0
    for k in range(SMALL.unroll + 1):
        scale = (1.0 if k == 0 else 1.0 / SMALL.unroll) / len(window.weight)
        for lane in torch.nonzero(window.has_policy[k]).flatten().tolist():
            for weight, one in zip(window.policy[k, lane], window.sampled[k, lane], strict=True):
                if space == "real":
                    mean, log_std = policy[k, lane].chunk(2)
                    found = Normal(mean, log_std.exp()).log_prob(one).sum()
                else:
                    parts = policy[k, lane].split(trainer._actions.choices)
                    found = torch.stack(
                        [Categorical(logits=p).log_prob(a) for p, a in zip(parts, one, strict=True)]
                    ).sum()
                expected -= scale * float(window.weight[lane] * weight * found)
    metrics, _ = trainer.gradient_step(window, 0.0)
    assert float(metrics["policy_loss"].detach()) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_model_learns_from_recorded_actions_and_in_absorbing_places_from_random_ones() -> None:
    trainer = trainer_of()
    batch = drawn(policy_of(trainer))
    batch.acting[...], batch.valid[...], batch.first[...] = True, True, False
    batch.terminated[...] = batch.truncated[...] = False
    batch.terminated[0, 0, 2], batch.acting[0, 1, 2] = True, False
    window = trainer.minibatch(batch, 0, trainer.learner.device)
    recorded = (np.asarray(batch.decision["action"])[0, :3] - [0.0, 2.0]) / [1.0, 2.0]
    others = [0, 1, 3, 4, 5]
    assert window.action[:, others].numpy() == pytest.approx(recorded[:, others], abs=1e-6)
    assert window.action[0, 2].numpy() == pytest.approx(recorded[0, 2], abs=1e-6)
    assert (np.abs(window.action[1:, 2].numpy() - recorded[1:, 2]) > 1e-6).all()
    assert window.action.abs().max() <= 1.0
    assert window.has_reward[:, 2].tolist() == [1, 1, 1]


def test_reanalysis_draws_new_actions_from_the_present_policy() -> None:
    trainer = trainer_of(max_target_age=0)
    old, rows = policy_of(trainer, max_target_age=0), observations(200)
    recorded = np.asarray(old.act(rows, None, fresh(200))["policy"])
    bias = trainer._network.prediction.layers[-1].bias.data
    bias[0] += 1.5  # the mean of the first element
    new = policy_of(trainer, version=5, max_target_age=0)
    made = new.reanalyze(rows)
    assert set(made) == {"policy", "value"}
    assert made["policy"].shape == recorded.shape
    assert recorded[..., 1].mean() == pytest.approx(0.0, abs=0.1)
    assert made["policy"][..., 1].mean() == pytest.approx(3 * np.tanh(0.5), abs=0.1)
    again = policy_of(trainer, version=5, max_target_age=0).reanalyze(rows)
    assert np.array_equal(made["policy"], again["policy"]), "draws depend on the version only, so that runs resume"
    later = policy_of(trainer, version=6, max_target_age=0).reanalyze(rows)
    assert not np.array_equal(made["policy"][..., 1:], later["policy"][..., 1:])
    flow = replace(SAMPLED, max_target_age=0).dataflow()
    assert isinstance(flow, Replay)
    assert flow.reanalysis is not None
    assert set(flow.reanalysis.arrays) == set(made)


def test_masks_of_several_choices_hold_at_the_root() -> None:
    seen = Dict({"seen": SEEN, "action_mask": MultiDiscrete((2,) * 7)})
    config = SAMPLED
    trainer = config.build_trainer(seen, SEVERAL, 1)
    policy = config.build_policy(seen, SEVERAL, 2)
    policy.load(trainer.parameters(), 0)
    mask: Array = np.tile(np.array([1, 0, 1, 0, 1, 1, 0]), (40, 1))
    mask[-1] = 0  # a row in which no lane can act
    observation = {"seen": observations(40), "action_mask": mask}
    for greedy in (False, True):
        decision = policy.act(observation, None, fresh(40), greedy=greedy)
        sampled = np.asarray(decision["policy"])[:-1, :, 1:].astype(int)
        assert set(sampled[..., 0].ravel()) <= {0, 2}
        assert set(sampled[..., 1].ravel()) <= {1, 2}
        assert np.isfinite(np.asarray(decision["policy"])).all()


@pytest.mark.parametrize("space", ["real", "several"])
def test_the_entropy_of_the_policy_is_that_of_its_actions(space: str) -> None:
    samples = trainer_of(SPACES[space])._samples
    assert samples is not None
    if space == "real":
        policy = torch.tensor([[0.5, -2.0, -1.0, 0.3]])
        torch.manual_seed(0)
        u = Normal(policy[0, :2], policy[0, 2:].exp()).sample((200_000,))
        density = Normal(policy[0, :2], policy[0, 2:].exp()).log_prob(u) - torch.log(1 - u.tanh() ** 2 + 1e-12)
        expected = -float(density.sum(1).mean())
    else:
        policy = torch.tensor([[0.5, -2.0, 1.0, 0.3, 0.0, 2.0, -1.0]])
        expected = sum(float(Categorical(logits=part).entropy()) for part in policy.split((3, 4), 1))
    assert float(entropy(samples, policy)) == pytest.approx(expected, abs=0.01)


def test_a_restored_policy_continues_with_the_same_samples() -> None:
    trainer = shaken(trainer_of())
    one, other = policy_of(trainer), policy_of(trainer)
    one.act(observations(5), None, fresh(5))
    state = copy.deepcopy(one.state())
    other.restore(state)
    first, second = (policy.act(observations(20), None, fresh(20)) for policy in (one, other))
    assert np.array_equal(first["policy"], second["policy"])


def test_spaces_that_cannot_be_sampled_are_refused() -> None:
    for action in (Box((2,)), Box((2,), dtype="int32", low=0, high=3), Dict({"a": Discrete(2)})):
        with pytest.raises(ValueError, match="a Box of real numbers with finite bounds"):
            SMALL.check(SEEN, action)
    MuZeroConfig().check(SEEN, REAL)
    many = Discrete(10_000)
    with pytest.raises(ValueError, match="MB"):
        replace(SMALL, search_memory_mb=1, simulations=50).check(SEEN, many)
    replace(SMALL, search_memory_mb=1, simulations=50, sampled_actions=8).check(SEEN, many)
    with pytest.raises(ValueError, match="sampled_actions must be 0 or more"):
        replace(SMALL, sampled_actions=-1)
