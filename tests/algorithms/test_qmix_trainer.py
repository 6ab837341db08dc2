"""Trainers and policies of VDN and QMIX: the contract, targets of double Q-learning, masks, restarts, padding."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.joint_sequences import random_sequences, two_step_sequences

from srl.algorithms.qmix.config import QMIXConfig, VDNConfig
from srl.algorithms.qmix.trainer import AGENTS, JointTrainer
from srl.api.dataflow import Replay, SequenceBatch, Sequences
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.base.tree import leaves
from srl.testing.algorithm_checks import check_algorithm

SEEN = Dict({"observation": Box((3,)), "agent_id": Discrete(2)})
STATED = Dict({**SEEN.items, "state": Box((4,))})
MASKED = Dict({**STATED.items, "action_mask": Box((3,), "int8", 0, 1)})
SMALL: dict[str, Any] = {"hidden_sizes": (6,), "memory_size": 5, "num_agents": 2, "chunk": 4, "device": "cpu"}
KINDS: dict[str, tuple[VDNConfig, Space, Space]] = {
    "vdn": (VDNConfig(**SMALL), SEEN, Discrete(3)),
    "vdn without memory": (VDNConfig(**SMALL, memory="none", n_step=3, joint_reward="sum"), Box((3,)), Discrete(3)),
    "qmix": (QMIXConfig(**SMALL, burn_in=2, target_update=3), STATED, Discrete(3)),
    "qmix, lstm, observations": (QMIXConfig(**SMALL | {"memory": "lstm"}, double=False, tau=0.5), SEEN, Discrete(3)),
    "qmix, masks": (QMIXConfig(**SMALL, hypernet_size=0), MASKED, Discrete(3)),
    "qmix, several choices": (QMIXConfig(**SMALL), STATED, MultiDiscrete((2, 3))),
}


def batch_for(kind: tuple[VDNConfig, Space, Space], seed: int = 0, **options: Any) -> SequenceBatch:
    config, observation, action = kind
    size, burn_in = config.agent_options().state_size, config.burn_in
    batch = random_sequences(observation, action, 2, size, burn_in=burn_in, seed=seed, **options)
    if isinstance(batch.observation, dict) and "action_mask" in batch.observation:
        batch.observation["action_mask"][..., 0] = 1
    return batch


def trainer_of(kind: tuple[VDNConfig, Space, Space], seed: int = 0, **changes: Any) -> JointTrainer:
    trainer = dataclasses.replace(kind[0], **changes).build_trainer(*kind[1:], seed)
    assert isinstance(trainer, JointTrainer)
    return trainer


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_policies_and_trainers_follow_the_contract(kind: tuple[VDNConfig, Space, Space]) -> None:
    assert [f"{each.expected}, found {each.found}" for each in check_algorithm(*kind)] == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_restored_trainer_goes_on_bit_by_bit(kind: tuple[VDNConfig, Space, Space]) -> None:
    trainer, other = trainer_of(kind, 1), trainer_of(kind, 77)
    result = trainer.step(batch_for(kind, 0), 0.0)
    assert not result.skipped
    assert result.priorities is not None
    assert result.priorities.shape == (2, 6)
    other.restore({name: array.copy() for name, array in trainer.state().items()})
    given = batch_for(kind, 1)
    kept = copy.deepcopy(given)
    for each in (trainer, other):
        assert not each.step(given, 0.5).skipped
    for name, array in trainer.state().items():
        assert other.state()[name].tobytes() == array.tobytes(), name
    assert given.reward.tobytes() == kept.reward.tobytes()
    assert np.asarray(given.decision["action"]).tobytes() == np.asarray(kept.decision["action"]).tobytes()


def test_the_mixer_learns_and_is_not_published() -> None:
    kind = KINDS["qmix"]
    trainer = trainer_of(kind)
    before = {name: array.copy() for name, array in trainer.state().items()}
    trainer.step(batch_for(kind), 0.0)
    assert not np.array_equal(trainer.state()["mixer/parameters"], before["mixer/parameters"])
    network = kind[0].build_network(*kind[1:], 0)[0]
    assert len(trainer.parameters()) == sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("name", ["vdn", "qmix", "qmix, masks"])
def test_rows_without_an_action_and_padding_change_nothing(name: str) -> None:
    """Padding repeats a lane's last row; a loss on it would train on the end of each sequence again and again."""
    kind = KINDS[name]
    batch, changed = batch_for(kind), batch_for(kind)
    assert not batch.valid.all()
    rng = np.random.default_rng(5)
    changed.reward[~batch.acting] = 100.0
    changed.reward[:, -1] = 100.0
    action = np.asarray(changed.decision["action"])
    action[~batch.acting] = rng.integers(3, size=action.shape)[~batch.acting]
    for _, array in leaves(changed.observation):
        array[~batch.valid] = 1
    one, two = trainer_of(kind), trainer_of(kind)
    one.step(batch, 0.0)
    two.step(changed, 0.0)
    np.testing.assert_allclose(one.parameters(), two.parameters(), atol=1e-6)
    later = copy.deepcopy(batch)
    later.reward[tuple(np.argwhere(batch.acting[:, 4:-1])[0] + np.array([0, 4, 0]))] += 1.0
    three = trainer_of(kind)
    three.step(later, 0.0)
    assert not np.allclose(one.parameters(), three.parameters(), atol=1e-6), "rows with an action do"


def test_a_reward_that_is_not_a_number_skips_the_update() -> None:
    kind = KINDS["qmix"]
    trainer, batch = trainer_of(kind), batch_for(kind)
    before = {name: array.copy() for name, array in trainer.state().items()}
    batch.reward[tuple(np.argwhere(batch.acting[:, 4:-1])[0] + np.array([0, 4, 0]))] = np.nan
    assert trainer.step(batch, 0.0).skipped
    for name, array in before.items():
        assert trainer.state()[name].tobytes() == array.tobytes(), name


def one_step(observation: Any, action: list[int], mask: list[list[int]]) -> SequenceBatch:
    """Return one joint step of two agents, and the row after it, whose masks are `mask`."""
    flags = np.zeros((3, 1, 2, 2), bool)
    terminated, truncated, first = flags
    seen: dict[str, Any] = {
        "observation": np.asarray(observation, np.float32)[None],
        "agent_id": np.zeros((1, 2, 2), np.int64),
        "state": np.zeros((1, 2, 2, 4), np.float32),
        "action_mask": np.array([[[1, 1, 1]] * 2, mask], np.int8)[None],
    }
    yes = np.ones((1, 2, 2), bool)
    chosen = np.array([action, [0, 0]])[None]
    reward = np.array([[2.0, 4.0], [9.0, 9.0]], np.float32)[None]
    weight = np.ones((1, 1), np.float32)
    return SequenceBatch(seen, {"action": chosen}, reward, terminated, truncated, yes, first, yes, None, weight, 2)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("joint_reward", ["mean", "sum"])
def test_the_error_is_that_of_double_q_learning_by_hand(double: bool, joint_reward: str) -> None:
    """VDN without memory. The target network differs from the network, and the masks differ between the agents."""
    changes: dict[str, Any] = {"memory": "none", "double": double, "joint_reward": joint_reward, "gamma": 0.5}
    config = VDNConfig(**{**SMALL, **changes, "global_keys": ("state",)})
    trainer = trainer_of((config, MASKED, Discrete(3)))
    target = trainer.learner.targets[AGENTS]
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for network in (trainer._network, target):
            for parameter in network.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    rng = np.random.default_rng(2)
    mask = [[0, 1, 1], [1, 1, 0]]
    batch = one_step(rng.standard_normal((2, 2, 3)), [2, 1], mask)

    def values(network: Any) -> np.ndarray:
        seen = {key: torch.from_numpy(part[0].reshape(4, *part.shape[3:])) for key, part in leaves(batch.observation)}
        with torch.no_grad():
            return np.asarray(network(seen)[0].view(2, 2, 3))

    own, other = values(trainer._network), values(target)
    best = [
        max((i for i in range(3) if mask[agent][i]), key=lambda i: (own if double else other)[1, agent, i])
        for agent in range(2)
    ]
    reward = 3.0 if joint_reward == "mean" else 6.0
    expected = reward + 0.5 * sum(other[1, agent, best[agent]] for agent in range(2)) - own[0, 0, 2] - own[0, 1, 1]
    result = trainer.step(batch, 0.0)
    assert result.metrics["td_error"] == pytest.approx(abs(expected), rel=1e-4)
    assert result.metrics["loss"] == pytest.approx(expected**2, rel=1e-4)
    assert result.num_decisions == 2


def test_the_target_networks_follow_at_their_steps() -> None:
    kind = KINDS["qmix"]  # every 3 gradient steps
    trainer = trainer_of(kind)
    before = trainer.state()["target/mixer"].copy()
    trainer.step(batch_for(kind, num_steps=2), 0.0)
    assert np.array_equal(trainer.state()["target/mixer"], before)
    trainer.step(batch_for(kind, num_steps=1), 0.0)
    state = trainer.state()
    assert np.array_equal(state["target/mixer"], state["mixer/parameters"])
    assert not np.array_equal(state["target/mixer"], before)


def test_masked_actions_are_never_chosen() -> None:
    kind = KINDS["qmix, masks"]
    policy = kind[0].build_policy(*kind[1:], 0)
    trainer = trainer_of(kind)
    rng = np.random.default_rng(0)
    mask = (rng.random((400, 3)) < 0.4).astype(np.int8)
    mask[np.arange(400), rng.integers(3, size=400)] = 1
    seen: dict[str, Any] = {
        "observation": rng.standard_normal((400, 3)).astype(np.float32),
        "agent_id": np.zeros(400, np.int64),
        "state": np.zeros((400, 4), np.float32),
        "action_mask": mask,
    }
    for epsilon in (1.0, 0.3, 0.0):
        trainer._network.epsilon.data.fill_(epsilon)
        policy.load(trainer.parameters(), 0)
        decision = policy.act(seen, None, np.ones(400, bool))
        action = np.asarray(decision["action"])
        assert mask[np.arange(400), action].all()
        assert np.asarray(decision["state"]).any(), "the memory advances, also with random actions"
        if epsilon == 1.0:
            free = mask.all(1)
            assert len(np.unique(action[free])) == 3


def test_epsilon_falls_with_progress_after_the_warm_up() -> None:
    kind = KINDS["vdn"]
    trainer = trainer_of(kind, epsilon=0.9, epsilon_final=0.1, exploration_fraction=0.5)
    empty = batch_for(kind, num_steps=0)
    trainer.step(empty, 0.25)
    assert float(trainer._network.epsilon) == 1.0, "all actions of the warm-up are random"
    trainer.step(batch_for(kind), 0.25)
    assert float(trainer._network.epsilon) == pytest.approx(0.5)
    trainer.step(batch_for(kind), 0.8)
    assert float(trainer._network.epsilon) == pytest.approx(0.1)


def test_agents_act_without_the_state_and_differ_by_their_numbers() -> None:
    kind = KINDS["qmix"]
    trainer, policy = trainer_of(kind), kind[0].build_policy(*kind[1:], 0)
    policy.load(trainer.parameters(), 0)
    seen: dict[str, Any] = {"observation": np.ones((2, 3), np.float32), "agent_id": np.arange(2)}
    decisions = [
        policy.act({**seen, "state": np.full((2, 4), number, np.float32)}, None, np.ones(2, bool), greedy=True)
        for number in (0.0, 5.0)
    ]
    memory = [np.asarray(decision["state"]) for decision in decisions]
    np.testing.assert_array_equal(memory[0], memory[1])
    assert not np.array_equal(memory[0][0], memory[0][1])


@pytest.mark.parametrize(("kind", "expected"), [(VDNConfig, 7.0), (QMIXConfig, 8.0)])
def test_qmix_represents_the_two_step_game_and_vdn_does_not(kind: type[VDNConfig], expected: float) -> None:
    """Rashid et al. 2018, section 5: from random play, QMIX learns the values exactly and VDN chooses the safe game."""
    options: dict[str, Any] = {"hidden_sizes": (16,), "memory": "none", "target_update": 20, "gamma": 1.0}
    config = kind(num_agents=2, learning_rate=1e-2, device="cpu", **options)
    observation = Dict({"observation": Box((3,)), "state": Box((3,)), "agent_id": Discrete(2)})
    trainer, policy = (
        config.build_trainer(observation, Discrete(2), 0),
        config.build_policy(observation, Discrete(2), 0),
    )
    for seed in range(3):
        metrics = trainer.step(two_step_sequences(80, 32, 0, seed), 1.0).metrics
    policy.load(trainer.parameters(), 1)

    def play(place: int) -> list[int]:
        seen = np.eye(3, dtype=np.float32)[[place] * 2]
        tree: dict[str, Any] = {"observation": seen, "state": seen, "agent_id": np.arange(2)}
        return np.asarray(policy.act(tree, None, np.ones(2, bool), greedy=True)["action"]).tolist()

    game = 1 + play(0)[0]
    assert (7.0 if game == 1 else {0: 0.0, 1: 1.0, 2: 8.0}[sum(play(game))]) == expected
    assert (metrics["td_error"] < 0.05) == (expected == 8.0), metrics


def test_the_dataflow_is_joint_sequences_of_the_roles_agents() -> None:
    config = QMIXConfig(chunk=12, burn_in=3)
    flow = config.for_agents(3, aligned=True).dataflow()
    assert isinstance(flow, Replay)
    assert flow.unit == Sequences(length=12, burn_in=3, period=6, num_agents=3)
    assert config.for_agents(3, aligned=True).for_agents(3, aligned=True).num_agents == 3
    with pytest.raises(ValueError, match="all agents must act at every step; these take turns"):
        config.for_agents(2, aligned=False)
    with pytest.raises(ValueError, match="num_agents must be 3"):
        QMIXConfig(num_agents=2).for_agents(3, aligned=True)
    assert config.for_agents(1, aligned=False).num_agents == 1


@pytest.mark.parametrize(
    "options",
    [{"tau": 0.0}, {"joint_reward": "max"}, {"mixing_size": 0}, {"n_step": 17}, {"epsilon": 2.0}, {"num_agents": 0}],
)
def test_impossible_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        QMIXConfig(**options)


def test_box_actions_are_refused_with_algorithms_that_serve_them() -> None:
    with pytest.raises(ValueError, match="use mappo or ippo"):
        VDNConfig().check(Box((3,)), Box((2,)))


OWN = """
import torch
from torch import nn
from srl.networks.network import Network

class Own(Network):
    state_size = 2

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, observation, state):
        features = torch.cat((observation["observation"], state), 1)
        return self.layer(features), features[:, 0], torch.tanh(features[:, :2] + state)

def make(observation, action):
    assert set(observation.items) == {"observation", "agent_id"}
    return Own()
"""


def test_a_custom_network_with_a_memory_learns(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    config = QMIXConfig(**{**SMALL, "network": f"{tmp_path}/own.py:make"})
    config.check(STATED, Discrete(3))
    assert config.decision_spec(STATED, Discrete(3))["state"].shape == (2,)  # type: ignore[union-attr]
    trainer = config.build_trainer(STATED, Discrete(3), 0)
    before = trainer.parameters().copy()
    assert not trainer.step(random_sequences(STATED, Discrete(3), 2, 2), 0.0).skipped
    assert (trainer.parameters() != before).sum() >= 18
