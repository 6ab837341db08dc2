"""R2D2: what an update depends on, and what it learns."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.transitions import cue_sequences, random_sequences

from srl.algorithms.r2d2.config import R2D2Config
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.testing import check_algorithm
from srl.testing.findings import has_errors

SEEN, ARMS = Box((3,), low=-1.0, high=1.0), Discrete(3)
MASKED = Dict({"seen": SEEN, "action_mask": Box((5,), low=0, high=1, dtype="int8")})
SMALL = R2D2Config(device="cpu", hidden_sizes=(8,), memory_size=8, n_step=2, chunk=5, burn_in=3, period=2)
KINDS: dict[str, tuple[R2D2Config, Space, Space]] = {
    "lstm": (SMALL, SEEN, ARMS),
    "gru": (replace(SMALL, memory="gru", huber=True, rescale=False), SEEN, ARMS),
    "branches": (replace(SMALL, dueling=False, double=False), MASKED, MultiDiscrete((2, 3))),
}


def built(kind: str = "lstm", seed: int = 1, **changes: Any) -> tuple[Any, Any]:
    """Return a trainer and a function that draws batches for it."""
    config, observation, action = KINDS[kind]
    config = replace(config, **changes)
    trainer = config.build_trainer(observation, action, seed)
    spec: Any = config.decision_spec(observation, action)["state"]
    size = spec.shape[0]
    return trainer, lambda seed=0, **options: random_sequences(observation, action, size, seed=seed, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_trainer_learns_exactly_as_the_saved_one(kind: str) -> None:
    trainer, draw = built(kind)
    trainer.step(draw(), 0.1)
    other = built(kind, seed=9)[0]
    other.restore({name: array.copy() for name, array in trainer.state().items()})
    for each in (trainer, other):
        each.step(draw(1), 0.2)
    state, restored = trainer.state(), other.state()
    assert state.keys() == restored.keys()
    assert all(np.array_equal(state[name], restored[name]) for name in state)


def test_an_update_that_is_not_finite_is_rolled_back() -> None:
    trainer, draw = built()
    trainer.step(draw(), 0.1)
    before = {name: array.copy() for name, array in trainer.state().items()}
    batch = draw()
    batch.reward[1, :, 0] = np.nan
    assert trainer.step(batch, 0.1).skipped
    after = trainer.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_a_decision_and_rewards_of_the_burn_in_have_no_effect(kind: str) -> None:
    trainer, draw = built(kind)
    other = built(kind)[0]
    batch = draw()
    changed = copy.deepcopy(batch)
    changed.reward[~batch.acting] = 100.0
    changed.reward[:, : batch.burn_in] = 100.0
    changed.reward[:, -1] = 100.0
    changed.decision["action"][~batch.acting] = 0
    changed.decision["action"][:, -1] = 0
    results = [trainer.step(batch, 0.0), other.step(changed, 0.0)]
    assert np.array_equal(trainer.parameters(), other.parameters())
    assert np.array_equal(results[0].priorities, results[1].priorities)


def test_rows_that_are_not_remembered_have_no_effect() -> None:
    trainer, draw = built()
    other = built()[0]
    batch = draw()
    changed = copy.deepcopy(batch)
    changed.observation[~batch.valid] = 7.0
    trainer.step(batch, 0.0)
    other.step(changed, 0.0)
    assert np.array_equal(trainer.parameters(), other.parameters())


def test_an_episode_that_begins_in_a_sequence_does_not_see_the_last_one() -> None:
    """What came before the row where `first` is set changes the outputs of earlier rows only."""
    network = built()[0].learner.targets["q"]
    observation = torch.randn(9 * 2, 3)
    first = torch.zeros(9, 2, dtype=torch.bool)
    first[5] = True
    other = observation.clone()
    other[: 5 * 2] = 0.0
    for burn_in in (0, 3, 5, 7):
        with torch.no_grad():
            one, two = (network.unroll(seen, first, torch.randn(2, 16), burn_in) for seen in (observation, other))
        begin = max(0, 5 - burn_in)
        np.testing.assert_allclose(one[begin:], two[begin:], atol=1e-6)
        assert burn_in >= 5 or not np.allclose(one[:begin], two[:begin])


def test_a_sequence_gives_the_values_that_the_policy_had_step_by_step() -> None:
    trainer, _ = built()
    network = trainer.learner.targets["q"].eval()
    observation, state = torch.randn(6, 2, 3), torch.randn(2, 16)
    first = torch.tensor([[False, True], [False, False], [True, False]] * 2)
    memory, expected = state, []
    with torch.no_grad():
        for t in range(6):
            values, _, memory = network(observation[t], memory.masked_fill(first[t][:, None], 0.0))
            expected.append(values)
        found = network.unroll(observation.flatten(0, 1), first, state, 2)
    np.testing.assert_allclose(found, torch.stack(expected)[2:], atol=1e-6)


def test_new_observations_are_normalized() -> None:
    trainer, draw = built(normalize_observation=True)
    batch = draw(num_steps=1)
    batch.new = np.tile(np.array([[3.0, 5.0, 7.0], [5.0, 5.0, 9.0]], np.float32), (50, 1))
    assert not trainer.step(batch, 0.0).skipped
    normalizer = trainer._network.encoder.encoder.normalizer
    np.testing.assert_allclose(normalizer.mean.detach(), [4.0, 5.0, 8.0], atol=0.2)


def test_gradients_do_not_pass_through_the_burn_in() -> None:
    trainer, _ = built()
    network = trainer._network
    observation = torch.randn(8 * 2, 3, requires_grad=True)
    state = torch.randn(2, 16, requires_grad=True)
    values = network.unroll(observation, torch.zeros(8, 2, dtype=torch.bool), state, 3)
    torch.autograd.backward(values.sum())
    assert state.grad is None
    assert observation.grad is not None
    assert not observation.grad[: 3 * 2].any()
    assert observation.grad[3 * 2 :].all()


def test_targets_use_the_target_network_which_lags() -> None:
    """Until it is copied, the target network gives the same targets, however much the other one has changed."""
    trainer, draw = built(target_update=3, double=False)
    rows = trainer.minibatch(draw(), 0, torch.device("cpu"))

    def targets() -> torch.Tensor:
        with torch.no_grad():
            return trainer._targets(trainer._unrolled(trainer._network, rows), rows)

    at_first = targets()
    for number in range(1, 4):
        trainer.step(draw(number, num_steps=1), 0.0)
        assert torch.equal(targets(), at_first) == (number < 3)


def test_importance_weights_scale_gradients() -> None:
    """A sequence of weight 0 has no effect."""
    trainer, draw = built()
    other = built()[0]
    batch = draw(num_steps=1)
    batch.weight[0, 3] = 0.0
    trainer.step(batch, 0.0)
    batch.reward[0, :, 3] = 100.0
    other.step(batch, 0.0)
    assert np.array_equal(trainer.parameters(), other.parameters())


def test_a_batch_before_the_warm_up_ends_only_counts() -> None:
    trainer, draw = built()
    before = trainer.parameters().copy()
    assert trainer.step(draw(num_steps=0), 0.0).num_decisions == 0
    assert np.array_equal(trainer.parameters(), before)
    assert float(trainer._network.epsilon) == 1.0
    trainer.step(draw(num_steps=1), 0.0)
    assert float(trainer._network.epsilon) == pytest.approx(0.4)


@pytest.mark.parametrize("memory", ["lstm", "gru"])
def test_it_learns_what_only_a_memory_can_know(memory: Any) -> None:
    config = R2D2Config(
        device="cpu", hidden_sizes=(16,), memory=memory, memory_size=32 if memory == "gru" else 16, n_step=1, gamma=0.5,
        learning_rate=1e-2, target_update=5, chunk=9, burn_in=3,
    )  # fmt: skip
    seen, action = Box((2,), low=-1.0, high=1.0), Discrete(2)
    trainer = config.build_trainer(seen, action, 0)
    for update in range(15):
        trainer.step(cue_sequences(10, 16, 9, 3, seed=update), 0.0)
    policy: Any = config.build_policy(seen, action, 0)
    policy.load(trainer.parameters(), 1)
    cue = np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32)
    start = policy.act(cue, None, np.ones(2, bool), greedy=True)
    np.testing.assert_allclose(policy.value(cue, None, np.ones(2, bool)), 0.5, atol=0.05)
    hidden = np.array([[0.0, 1.0]] * 2, np.float32)
    last = policy.act(hidden, start["state"], np.zeros(2, bool), greedy=True)
    assert np.asarray(last["action"]).tolist() == [1, 0]
    np.testing.assert_allclose(policy.value(hidden, start["state"], np.zeros(2, bool)), 1.0, atol=0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_the_contract_of_algorithms(kind: str) -> None:
    findings = check_algorithm(*KINDS[kind])
    assert not has_errors(findings), findings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "none"}, "use dqn"),
        ({"network": "a:b"}, "no custom networks"),
        ({"priority_eta": 1.5}, "priority_eta must be in"),
        ({"period": 0}, "period must be at least 1"),
        ({"replay_size": 100}, "burn_in \\+ chunk, 120 steps"),
    ],
)
def test_options_that_make_no_sense_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        R2D2Config(**settings)
