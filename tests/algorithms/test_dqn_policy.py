from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from srl.algorithms.dqn.config import DQNConfig, RainbowConfig
from srl.algorithms.dqn.policy import QPolicy
from srl.api.policy import Policy
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space

SEEN, ARMS = Box((3,)), Discrete(4)
MASKED = Dict({"seen": SEEN, "action_mask": MultiDiscrete((2, 2, 2, 2))})
SMALL = DQNConfig(hidden_sizes=(8,), device="cpu")
NUM_LANES = 4000


def policy_of(config: DQNConfig, epsilon: float, observation: Space = SEEN, action: Space = ARMS) -> Policy:
    trainer: Any = replace(config, epsilon=epsilon, epsilon_final=epsilon).build_trainer(observation, action, seed=1)
    trainer.explore(1.0, learning=True)
    policy = config.build_policy(observation, action, seed=2)
    policy.load(trainer.parameters(), 0)
    return policy


def act(policy: Policy, observation: Any, greedy: bool = False) -> np.ndarray:
    rows = len(observation["seen"]) if isinstance(observation, dict) else len(observation)
    decision = policy.act(observation, None, np.zeros(rows, bool), greedy=greedy)
    assert set(decision) == {"action"}
    return np.asarray(decision["action"])


def test_the_share_of_random_actions_is_epsilon() -> None:
    policy, rows = policy_of(SMALL, 0.4), np.ones((NUM_LANES, 3), np.float32)
    best = act(policy, rows, greedy=True)
    assert len(set(best.tolist())) == 1
    share = (act(policy, rows) != best).mean()
    assert share == pytest.approx(0.4 * 3 / 4, abs=0.03)  # a random action is the best one in a quarter of all cases


def test_lanes_explore_by_their_position() -> None:
    """With epsilon 0.4 and a spread of 1: 0.4 in the first lane, 0.4^2 in the last; elsewhere as in the last."""
    policy = policy_of(replace(SMALL, epsilon_spread=1.0), 0.4)
    rows, first = np.ones((3 * NUM_LANES, 3), np.float32), np.zeros(3 * NUM_LANES, bool)
    best = act(policy, rows, greedy=True)[0]
    position = np.repeat(np.array([0.0, 0.5, 1.0], np.float32), NUM_LANES)
    chosen = np.asarray(policy.explore(rows, None, first, position)["action"]).reshape(3, NUM_LANES)
    expected = 0.75 * 0.4 ** np.array([1.0, 1.5, 2.0])  # a random action is the best one in a quarter of all cases
    np.testing.assert_allclose((chosen != best).mean(1), expected, atol=0.03)
    assert (act(policy, rows) != best).mean() == pytest.approx(expected[-1], abs=0.03)


@pytest.mark.parametrize("action", [ARMS, MultiDiscrete((2, 3))])
@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_decisions_tell_the_values_of_the_best_and_of_the_chosen_action(epsilon: float, action: Space) -> None:
    config = replace(SMALL, prioritized=True, actor_priorities=True)
    policy: Any = policy_of(config, epsilon, action=action)
    rows, first = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32), np.zeros(200, bool)
    assert config.decision_spec(SEEN, action).keys() == {"action", "value", "action_value"}
    decision = policy.explore(rows, None, first, np.zeros(200, np.float32))
    values = policy._network(torch.from_numpy(rows))[0].detach().numpy()  # [B, n], the choices next to each other
    chosen = np.asarray(decision["action"]).reshape(200, -1)
    starts = [0] if action is ARMS else [0, 2]
    expected = np.mean([values[np.arange(200), start + chosen[:, i]] for i, start in enumerate(starts)], axis=0)
    np.testing.assert_allclose(decision["action_value"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(decision["value"], policy.value(rows, None, first), rtol=1e-5, atol=1e-6)
    assert (decision["value"] > decision["action_value"]).any()


def test_all_lanes_are_random_before_the_first_gradient_step_whatever_their_position() -> None:
    config = replace(SMALL, epsilon=0.4, epsilon_final=0.4, epsilon_spread=7.0)
    policy = config.build_policy(SEEN, ARMS, seed=2)
    policy.load(config.build_trainer(SEEN, ARMS, seed=1).parameters(), 0)
    rows, first = np.ones((NUM_LANES, 3), np.float32), np.zeros(NUM_LANES, bool)
    chosen = np.asarray(policy.explore(rows, None, first, np.full(NUM_LANES, 0.9, np.float32))["action"])
    assert (np.abs(np.bincount(chosen, minlength=4) / NUM_LANES - 0.25) < 0.03).all()


def test_all_actions_are_random_before_the_first_gradient_step() -> None:
    policy = SMALL.build_policy(SEEN, ARMS, seed=2)
    policy.load(SMALL.build_trainer(SEEN, ARMS, seed=1).parameters(), 0)
    counts = np.bincount(act(policy, np.ones((NUM_LANES, 3), np.float32)), minlength=4)
    assert (np.abs(counts / NUM_LANES - 0.25) < 0.03).all()


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("greedy", [True, False])
def test_masked_actions_are_never_chosen(epsilon: float, greedy: bool) -> None:
    policy = policy_of(SMALL, epsilon, MASKED)
    generator = np.random.default_rng(0)
    mask = generator.integers(2, size=(500, 4))
    mask[np.arange(500), generator.integers(4, size=500)] = 1
    chosen = act(policy, {"seen": generator.normal(size=(500, 3)).astype(np.float32), "action_mask": mask}, greedy)
    assert mask[np.arange(500), chosen].all()
    assert set(chosen.tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_several_choices_have_branches(epsilon: float) -> None:
    space = MultiDiscrete((2, 3))
    mask = Dict({"seen": SEEN, "action_mask": MultiDiscrete((2,) * 5)})
    policy = policy_of(SMALL, epsilon, mask, space)
    seen = np.random.default_rng(0).normal(size=(300, 3)).astype(np.float32)
    allowed = np.tile(np.array([0, 1, 1, 0, 1]), (300, 1))  # choice 1 of the first branch, 0 and 2 of the second
    chosen = act(policy, {"seen": seen, "action_mask": allowed})
    assert chosen.shape == (300, 2)
    assert set(chosen[:, 0].tolist()) == {1}
    assert set(chosen[:, 1].tolist()) <= {0, 2}


def test_noisy_layers_explore_and_are_silent_in_greedy_decisions() -> None:
    config = RainbowConfig(hidden_sizes=(8,), num_atoms=5, noise=5.0, device="cpu")
    policy, rows = policy_of(config, 0.0), np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    greedy = [act(policy, rows, greedy=True) for _ in range(3)]
    noisy = [act(policy, rows) for _ in range(3)]
    assert all(np.array_equal(greedy[0], again) for again in greedy)
    assert not all(np.array_equal(noisy[0], again) for again in noisy)
    assert np.array_equal(act(policy, rows, greedy=True), greedy[0])


def test_a_restored_policy_makes_the_same_random_decisions() -> None:
    policy, rows = policy_of(SMALL, 0.5), np.ones((50, 3), np.float32)
    state = policy.state()
    once = act(policy, rows)
    policy.restore(state)
    assert np.array_equal(act(policy, rows), once)
    assert isinstance(policy, QPolicy)


@pytest.mark.parametrize(
    ("action", "named"), [(Box((2,), low=-1.0, high=1.0), "sac, td3 or ppo"), (Dict({"a": ARMS}), "use ppo")]
)
def test_an_unsupported_action_space_names_the_algorithms_that_serve_it(action: Space, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        SMALL.check(SEEN, action)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": "lstm"}, "use r2d2"),
        ({"tau": 0.0}, "tau must be above 0"),
        ({"distributional": "c52"}, "none, c51, qr"),
        ({"distributional": "c51", "value_min": 1.0, "value_max": 1.0}, "value_min < value_max"),
        ({"epsilon_final": 1.5}, "epsilon_final must be in"),
        ({"network": "a:b", "dueling": True}, "dueling and noisy must be off"),
    ],
)
def test_options_that_make_no_sense_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DQNConfig(**settings)
