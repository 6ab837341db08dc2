"""BC, DAgger, IQL, TD3+BC and CQL: losses by hand, the contract, and what they learn from a few decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.experts import balances

from srl.algorithms.offline.config import BCConfig, CQLConfig, DAggerConfig, IQLConfig, TD3BCConfig
from srl.algorithms.offline.losses import advantage_weights, cloning_loss, constrained_loss, expectile_loss
from srl.algorithms.offpolicy.normalization import normalizers_in
from srl.api.algorithm import AlgorithmConfig
from srl.api.dataflow import Replay, TransitionBatch
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.testing import check_algorithm

SMALL: dict[str, Any] = {"hidden_sizes": (16,), "batch_size": 16, "learning_rate": 0.01, "device": "cpu"}
SEEN, REACH = Box((4,)), Box((2,), low=(-1.0, 0.0), high=(1.0, 4.0))
MASKED = Dict({"seen": SEEN, "action_mask": MultiDiscrete((2, 2, 2))})
EXPERT = "support.experts:balances"
KINDS: dict[str, tuple[AlgorithmConfig, Space, Space]] = {
    "bc": (BCConfig(**SMALL), SEEN, Discrete(3)),
    "bc several": (BCConfig(**SMALL), SEEN, MultiDiscrete((2, 3))),
    "bc real": (BCConfig(**SMALL), SEEN, REACH),
    "bc unbounded": (BCConfig(**SMALL, normalize_observation=False), SEEN, Box((2,))),
    "bc squashed": (BCConfig(**SMALL, box="squashed"), SEEN, REACH),
    "bc masked": (BCConfig(**SMALL), MASKED, Discrete(3)),
    "dagger": (DAggerConfig(**SMALL, expert=EXPERT), SEEN, Discrete(2)),
    "iql": (IQLConfig(**SMALL), SEEN, REACH),
    "iql choices": (IQLConfig(**SMALL, normalize_observation=True), MASKED, Discrete(3)),
    "td3bc": (TD3BCConfig(**SMALL), SEEN, REACH),
    "cql": (CQLConfig(**SMALL), SEEN, REACH),
    "cql choices": (CQLConfig(**SMALL), MASKED, Discrete(3)),
}


@pytest.mark.parametrize("name", KINDS)
def test_the_contract_holds(name: str) -> None:
    config, observation, action = KINDS[name]
    assert check_algorithm(config, observation, action) == []


def test_losses_by_hand() -> None:
    log_prob, weight = torch.tensor([-1.0, -3.0]), torch.tensor([1.0, 0.5])
    assert float(cloning_loss(log_prob, weight)) == pytest.approx((1.0 + 1.5) / 2)
    found = expectile_loss(torch.tensor([2.0, -2.0]), 0.7)  # 0.7 * 4 above, 0.3 * 4 below
    assert found.tolist() == pytest.approx([2.8, 1.2])
    advantage = torch.tensor([1.0, -3.0])
    assert advantage_weights(advantage, 2.0, 100.0, False).tolist() == pytest.approx([np.exp(2.0), np.exp(-6.0)])
    assert advantage_weights(advantage, 2.0, 2.5, True).tolist() == pytest.approx([2.5, np.exp(-3.0)])
    value, distance = torch.tensor([4.0, -2.0]), torch.tensor([0.5, 0.1])
    assert float(constrained_loss(value, distance, 3.0)) == pytest.approx(0.3 - 3.0 / 3.0 * 1.0)


def test_the_expectile_approaches_the_best_of_the_data() -> None:
    """The minimum of the expectile loss over values 0 and 1 is at the expectile."""
    sample = torch.tensor([0.0, 1.0])
    candidates = torch.linspace(0.0, 1.0, 101)
    for expectile in (0.5, 0.9):
        losses = [float(expectile_loss(sample - value, expectile).sum()) for value in candidates]
        assert float(candidates[int(np.argmin(losses))]) == pytest.approx(expectile)


def repeated(observation: Any, action: Any, reward: Any, steps: int, new: Any = None) -> TransitionBatch:
    """Return `steps` minibatches with the same decisions, each of which ends its episode."""

    def tiled(array: Any) -> np.ndarray:
        return np.broadcast_to(array, (steps, *np.shape(array))).copy()

    observation, rewards = np.asarray(observation, np.float32), np.asarray(reward, np.float32)
    ones = np.ones_like(rewards)
    return TransitionBatch(
        tiled(observation), {"action": tiled(action)}, tiled(rewards), tiled(0 * ones), tiled(observation), tiled(ones),
        num_decisions=steps, new=new,
    )  # fmt: skip


def greedy(config: AlgorithmConfig, observation: Space, action: Space, trainer: Any, seen: Any) -> np.ndarray:
    policy = config.build_policy(observation, action, 0)
    policy.load(trainer.parameters(), 1)
    return np.asarray(policy.act(np.asarray(seen, np.float32), None, np.ones(len(seen), bool), greedy=True)["action"])


def test_bc_clones_and_normalizes_by_the_data() -> None:
    config, space = BCConfig(**SMALL), Box((1,))
    seen = np.array([[990.0], [1010.0]] * 8, np.float32)
    action = (seen[:, 0] > 1000.0).astype(np.int64)
    trainer: Any = config.build_trainer(space, Discrete(2), 0)
    result = trainer.step(repeated(seen, action, np.zeros(16), 100, new=seen), 0.0)
    assert result.num_decisions == 100
    (normalizer,) = normalizers_in([trainer.network])
    assert (float(normalizer.mean[0]), float(normalizer.scale[0])) == pytest.approx((1000.0, 0.1))
    assert greedy(config, space, Discrete(2), trainer, [[990.0], [1010.0]]).tolist() == [0, 1]
    before = trainer.parameters().copy()
    trainer.step(repeated(seen, action, np.zeros(16), 1), 0.0)  # recorded data is new only once
    assert float(normalizer.mean[0]) == 1000.0
    assert not np.array_equal(before, trainer.parameters())


def test_iql_prefers_the_better_of_the_recorded_actions() -> None:
    """Three of four decisions chose 0 for a reward of 0; cloning would choose it, too."""
    space, seen = Box((1,)), np.ones((16, 1))
    action = np.array([0, 0, 0, 1] * 4)
    for beta, expected in ((0.0, 0), (3.0, 1)):
        config = IQLConfig(**SMALL, beta=beta)
        trainer = config.build_trainer(space, Discrete(2), 0)
        for _ in range(3):
            trainer.step(repeated(seen, action, action == 1, 100), 0.0)
        assert greedy(config, space, Discrete(2), trainer, [[1.0]]).tolist() == [expected]


def test_td3bc_moves_from_cloning_to_the_best_value_with_alpha() -> None:
    """The recorded actions are around 0, and the reward grows with the action."""
    space, reach = Box((1,)), Box((1,), low=-1.0, high=1.0)
    seen, action = np.ones((16, 1)), np.linspace(-0.5, 0.5, 16, dtype=np.float32)[:, None]
    found = {}
    for alpha in (0.0, 100.0):
        config = TD3BCConfig(**SMALL, alpha=alpha, normalize_observation=False)
        trainer = config.build_trainer(space, reach, 0)
        for _ in range(4):
            trainer.step(repeated(seen, action, action[:, 0], 100), 0.0)
        found[alpha] = float(greedy(config, space, reach, trainer, [[1.0]])[0, 0])
    assert abs(found[0.0]) < 0.1
    assert found[100.0] > 0.5


def test_the_target_network_of_td3bc_has_the_statistics_of_the_data() -> None:
    config = TD3BCConfig(**SMALL)
    trainer: Any = config.build_trainer(SEEN, REACH, 0)
    seen = np.random.default_rng(0).normal(5.0, 2.0, (16, 4)).astype(np.float32)
    trainer.step(repeated(seen, np.zeros((16, 2), np.float32), np.zeros(16), 1, new=seen), 0.0)
    targets = normalizers_in(trainer.learner.targets.values())
    assert len(targets) == 2
    for target in targets:
        assert np.allclose(target.mean.numpy(), seen.mean(0), atol=1e-5)


def test_the_expert_acts_less_and_less_and_always_answers() -> None:
    config = DAggerConfig(**SMALL, expert=EXPERT, expert_until=0.5)
    trainer: Any = config.build_trainer(SEEN, Discrete(2), 0)
    policy = config.build_policy(SEEN, Discrete(2), 0)
    seen = np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)
    first, shares = np.ones(400, bool), []
    none = np.zeros((0, 16), np.float32)
    empty = TransitionBatch(none, {"expert": none}, none, none, none, none, 16)
    for progress in (0.0, 0.25, 0.5, 1.0):
        trainer.step(empty, progress)
        policy.load(trainer.parameters(), 0)
        decision: Any = policy.act(seen, None, first)
        assert np.array_equal(decision["expert"], balances(seen))
        shares.append(float((decision["action"] == decision["expert"]).mean()))
    assert shares[0] == 1.0
    assert shares[0] > shares[1] > shares[2] + 0.05
    own: Any = policy.act(seen, None, first, greedy=True)
    assert np.array_equal(own["action"], own["expert"])


def test_options_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="dagger needs an expert"):
        DAggerConfig().build_expert()
    with pytest.raises(ValueError, match=r"must return actions of shape \(2,\)"):
        DAggerConfig(expert="support.experts:confused").check(SEEN, Discrete(2))
    with pytest.raises(ValueError, match="expectile must be between"):
        IQLConfig(expectile=1.0)
    with pytest.raises(ValueError, match="use dqn or ppo"):
        IQLConfig().check(SEEN, MultiDiscrete((2, 2)))
    with pytest.raises(ValueError, match="Discrete, MultiDiscrete or Box"):
        BCConfig().check(SEEN, Dict({"a": Discrete(2)}))
    assert DAggerConfig(expert=EXPERT).named_code() == (EXPERT,)


def test_dataflows_say_what_is_needed() -> None:
    flows: dict[str, Any] = {name: config.dataflow() for name, (config, _, _) in KINDS.items()}
    assert all(isinstance(flow, Replay) for flow in flows.values())
    assert not flows["dagger"].only_recorded
    assert flows["td3bc"].only_recorded
    assert flows["td3bc"].keeps_new
    assert not flows["iql"].keeps_new
