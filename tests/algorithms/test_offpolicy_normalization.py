"""Normalized observations of SAC, TD3 and DQN: each new decision counts once, in all networks, also after a restart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.transitions import random_transitions

from srl.algorithms.dqn.config import DQNConfig
from srl.algorithms.offpolicy.normalization import normalizers_in
from srl.algorithms.sac.config import SACConfig, TD3Config
from srl.api.spaces import Box, Dict, Discrete, Space
from srl.testing import check_algorithm

SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "batch_size": 4,
    "replay_size": 100,
    "device": "cpu",
    "normalize_observation": True,
}
SEEN, REACH = Box((3,)), Box((2,), low=(-1.0, 0.0), high=(1.0, 4.0))
KINDS: dict[str, tuple[Any, Space, Space]] = {
    "sac": (SACConfig(**SMALL), SEEN, REACH),
    "sac global": (SACConfig(**SMALL, global_keys=("b",)), Dict({"a": SEEN, "b": Box((2,))}), REACH),
    "td3": (TD3Config(**SMALL), SEEN, REACH),
    "dqn": (DQNConfig(**SMALL, target_update=2), SEEN, Discrete(3)),
}


def batch_of(observation: Space, action: Space, new: Any, num_steps: int = 2, seed: int = 0) -> Any:
    batch = random_transitions(observation, action, num_steps, 4, seed)
    batch.new = new
    return batch


def far(seed: int, count: int = 50) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((count, 3)) * [1, 10, 0.1] + [0, 1000, -5]).astype(np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_the_contract_holds(name: str) -> None:
    config, observation, action = KINDS[name]
    assert config.dataflow().keeps_new
    assert check_algorithm(config, observation, action) == []


@pytest.mark.parametrize("name", ["sac", "td3", "dqn"])
def test_all_networks_have_the_statistics_of_the_new_decisions(name: str) -> None:
    config, observation, action = KINDS[name]
    trainer = config.build_trainer(observation, action, 0)
    trainer.step(batch_of(observation, action, far(1), num_steps=0), 0.0)  # in the warm-up
    trainer.step(batch_of(observation, action, far(2)), 0.0)
    trainer.step(batch_of(observation, action, far(3, count=0)), 0.0)
    seen = np.concatenate([far(1), far(2)]).astype(np.float64)
    found = normalizers_in(trainer.learner.networks())
    assert len(found) == {"sac": 3, "td3": 4, "dqn": 2}[name], "actor, critics and target networks"
    for module in found:
        np.testing.assert_allclose(module.mean.numpy(), seen.mean(0), rtol=1e-5)
        np.testing.assert_allclose(module.scale.numpy(), 1 / seen.std(0), rtol=1e-4)
        assert not module.mean.requires_grad


def test_the_policy_gets_the_statistics_with_the_parameters() -> None:
    config, observation, action = KINDS["sac"]
    trainer = config.build_trainer(observation, action, 0)
    policy = config.build_policy(observation, action, 0)

    def decide(inputs: np.ndarray) -> np.ndarray:
        policy.load(trainer.parameters(), 0)
        return policy.act(inputs, None, np.zeros(len(inputs), bool), greedy=True)["action"]

    rows = far(1)
    seen = rows.astype(np.float64)
    raw = decide(((rows - seen.mean(0)) / seen.std(0)).astype(np.float32))  # by hand, before there are statistics
    trainer.step(batch_of(observation, action, rows, num_steps=0), 0.0)
    np.testing.assert_allclose(decide(rows), raw, atol=1e-3)


@pytest.mark.parametrize("name", ["sac", "dqn"])
def test_a_restored_trainer_continues_bit_for_bit(name: str) -> None:
    config, observation, action = KINDS[name]
    one, other = (config.build_trainer(observation, action, seed) for seed in (0, 5))
    one.step(batch_of(observation, action, far(1)), 0.0)
    other.restore({key: array.copy() for key, array in one.state().items()})
    for trainer in (one, other):
        trainer.step(batch_of(observation, action, far(2), seed=2), 0.5)
    for key, array in one.state().items():
        np.testing.assert_array_equal(array, other.state()[key], err_msg=key)


def test_observations_that_are_not_finite_or_missing_are_not_learned_from() -> None:
    config, observation, action = KINDS["sac"]
    trainer = config.build_trainer(observation, action, 0)
    before = trainer.parameters().copy()
    assert trainer.step(batch_of(observation, action, far(1) * np.nan), 0.0).skipped
    assert (trainer.parameters() == before).all()
    with pytest.raises(ValueError, match="keeps_new=True"):
        trainer.step(batch_of(observation, action, None), 0.0)
