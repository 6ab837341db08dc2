from __future__ import annotations

import copy
import ctypes
import importlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.transitions import CHAIN_LENGTH, GAMMA, chain_transitions, chain_values, random_transitions

from srl.algorithms.dqn.config import DQNConfig, RainbowConfig
from srl.algorithms.dqn.dense_pass import DensePass
from srl.algorithms.dqn.network import DenseBody, DuelingHeads, QNetwork, best_choices
from srl.algorithms.dqn.passes import AutogradPass, build_body_pass
from srl.algorithms.dqn.trainer import DQNTrainer
from srl.algorithms.qmix.config import VDNConfig
from srl.algorithms.sac.config import SACConfig
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.networks.parameters import FlatParameters

SEEN, ARMS, BRANCHES = Box((3,), low=-1.0, high=1.0), Discrete(4), MultiDiscrete((2, 3))
SMALL: dict[str, Any] = {"hidden_sizes": (8, 6), "device": "cpu", "num_atoms": 5, "max_grad_norm": None}
KINDS: dict[str, tuple[DQNConfig, Space, Space]] = {
    "dqn": (DQNConfig(**SMALL), SEEN, ARMS),
    "plain": (DQNConfig(**SMALL, double=False), SEEN, ARMS),
    "dueling": (DQNConfig(**SMALL, dueling=True, activation="tanh"), SEEN, ARMS),
    "branches": (DQNConfig(**SMALL), SEEN, BRANCHES),
    "dueling branches": (DQNConfig(**SMALL, dueling=True, double=False), SEEN, BRANCHES),
    "c51": (DQNConfig(**SMALL, distributional="c51"), SEEN, ARMS),
    "qr": (DQNConfig(**SMALL, distributional="qr", dueling=True), SEEN, BRANCHES),
    "squared": (DQNConfig(**SMALL, huber=False), SEEN, ARMS),
    "clipped": (DQNConfig(**{**SMALL, "max_grad_norm": 0.1}), SEEN, ARMS),
    "noisy": (DQNConfig(**SMALL, noisy=True), SEEN, ARMS),
    "rainbow": (RainbowConfig(**SMALL), SEEN, ARMS),
    "masked": (DQNConfig(**SMALL), Dict({"seen": SEEN, "action_mask": MultiDiscrete((2,) * 4)}), ARMS),
    "dict": (DQNConfig(**SMALL), Dict({"seen": SEEN, "place": Discrete(3)}), ARMS),
    "image": (DQNConfig(**SMALL, body="lean"), Box((1, 36, 36), "uint8", 0.0, 255.0), ARMS),
    "half": (DQNConfig(**SMALL, body="lean", precision="bfloat16"), Box((1, 36, 36), "uint8", 0.0, 255.0), ARMS),
    "soft": (DQNConfig(**SMALL, tau=0.1, target_update=1), SEEN, ARMS),
}


def built(kind: str, seed: int = 0, **changes: Any) -> tuple[DQNTrainer, Space, Space]:
    config, observation, action = KINDS[kind]
    config = replace(config, **changes)
    config.check(observation, action)
    trainer = config.build_trainer(observation, action, seed)
    assert isinstance(trainer, DQNTrainer)
    return trainer, observation, action


def fixed_network(trainer: DQNTrainer, values: list[float], future: list[float]) -> None:
    """Make the network output `values` for every observation, and its target network `future`."""
    for network, outputs in ((trainer.learner.flat["q"], values), (trainer.learner.flat_targets["q"], future)):
        network.values.zero_()
        # The last trainable parameters are the biases of the output layer.
        network.trainable[-len(outputs) :].copy_(torch.tensor(outputs))


@pytest.mark.parametrize(("kind", "expected"), [("dqn", 1.0 + 0.9 * 20.0), ("plain", 1.0 + 0.9 * 40.0)])
def test_double_learning_evaluates_the_action_that_the_network_chooses(kind: str, expected: float) -> None:
    trainer, observation, action = built(kind)
    fixed_network(trainer, [0.0, 5.0, 9.0, 3.0], [10.0, 40.0, 20.0, 30.0])
    batch = random_transitions(observation, action, num_steps=1)
    batch.reward[...], batch.discount[...], batch.decision["action"][...] = 1.0, 0.9, 1  # type: ignore[index]
    errors = trainer.step(batch, 0.0).priorities
    assert errors is not None
    np.testing.assert_allclose(errors, expected - 5.0, rtol=1e-6)


@pytest.mark.parametrize(("kind", "expected"), [("masked", 1.0 + 0.9 * 30.0)])
def test_masked_actions_are_never_bootstrapped_from(kind: str, expected: float) -> None:
    for double in (True, False):
        trainer, observation, action = built(kind, double=double)
        fixed_network(trainer, [0.0, 5.0, 9.0, 3.0], [10.0, 40.0, 20.0, 30.0])
        batch: Any = random_transitions(observation, action, num_steps=1)
        batch.reward[...], batch.discount[...], batch.decision["action"][...] = 1.0, 0.9, 1
        batch.next_observation["action_mask"][...] = (1, 0, 0, 1)
        errors = trainer.step(batch, 0.0).priorities
        assert errors is not None
        np.testing.assert_allclose(errors, expected - 5.0, rtol=1e-6)


def test_a_dueling_network_subtracts_the_mean_advantage_of_each_branch() -> None:
    heads = DuelingHeads(torch.nn.Linear(1, 1), torch.nn.Linear(1, 5), (2, 3))
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.zero_()
        heads.value.bias.copy_(torch.tensor([10.0]))  # type: ignore[operator]
        heads.advantage.bias.copy_(torch.tensor([1.0, 3.0, 0.0, 3.0, 6.0]))  # type: ignore[operator]
        outputs = heads(torch.zeros(1, 2))
    assert outputs.shape == (1, 5, 1)
    assert outputs[0, :, 0].tolist() == pytest.approx([9.0, 11.0, 7.0, 10.0, 13.0])


def test_the_best_choices_of_branches_are_indices_into_the_row() -> None:
    values = torch.tensor([[0.0, 1.0, 5.0, 4.0, 3.0], [2.0, 1.0, 0.0, 1.0, 7.0]])
    assert best_choices(values, (2, 3)).tolist() == [[1, 2], [0, 4]]
    assert best_choices(values, (5,)).tolist() == [[2], [4]]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", ["dqn", "plain", "branches", "squared", "masked", "dict", "soft", "clipped"])
def test_compiled_steps_equal_those_of_torch(kind: str, threads: int) -> None:
    changes: dict[str, Any] = {"learning_rate": 1e-2, "target_update": 1 if kind == "soft" else 3}
    (one, observation, action), other = built(kind, update_threads=threads, **changes), built(kind, **changes)[0]
    assert one.compiled is not None
    other.compiled = None
    for seed in range(2):
        batch = random_transitions(observation, action, num_steps=11, seed=seed)
        results = [trainer.step(batch, 0.0) for trainer in (one, other)]
        assert results[0].metrics == pytest.approx(results[1].metrics, rel=1e-4, abs=1e-6)
        found, wanted = (np.asarray(result.priorities) for result in results)
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)
    expected = other.state()
    for key, array in one.state().items():
        np.testing.assert_allclose(array, expected[key], rtol=1e-3, atol=1e-5, err_msg=key)


@pytest.mark.parametrize(
    ("kind", "changes"), [("image", {}), ("image", {"noisy": True, "dueling": True}), ("half", {})]
)
def test_threads_learn_from_images_what_one_learns(kind: str, changes: dict[str, Any]) -> None:
    changes |= {"learning_rate": 1e-3, "target_update": 3, "adam_eps": 1e-2}  # so that Adam does not enlarge rounding
    (one, observation, action), other = built(kind, update_threads=3, **changes), built(kind, **changes)[0]
    for seed in range(2):
        batch = random_transitions(observation, action, num_steps=5, seed=seed)  # 3 does not divide its rows
        results = [trainer.step(batch, 0.0) for trainer in (one, other)]
        tolerance = 0.05 if kind == "half" else 1e-4
        assert results[0].metrics == pytest.approx(results[1].metrics, rel=tolerance, abs=tolerance)
    moved = np.abs(other.parameters() - built(kind, **changes)[0].parameters())
    assert np.abs(one.parameters() - other.parameters()).max() < (0.1 if kind == "half" else 1e-3) * moved.max()


def test_an_error_in_a_thread_ends_the_update() -> None:
    trainer, observation, action = built("image", update_threads=2)
    batch: Any = random_transitions(observation, action, num_steps=2)
    batch.next_observation = batch.next_observation[..., :20, :20]  # too small for the dense layer
    before = trainer.parameters().copy()
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        trainer.step(batch, 0.0)
    np.testing.assert_array_equal(trainer.parameters(), before)


def test_compiled_steps_use_one_thread_of_blas_each() -> None:
    built("dqn")
    library = ctypes.CDLL(str(importlib.import_module("scipy.linalg.cython_blas").__file__))
    names = ("scipy_openblas_get_num_threads", "openblas_get_num_threads")
    found = [getattr(library, name)() for name in names if hasattr(library, name)]
    if not found:
        pytest.skip("SciPy uses another BLAS than OpenBLAS")
    assert found == [1]


@pytest.mark.parametrize("kind", ["dueling", "c51", "qr", "noisy", "image", "half"])
def test_other_networks_are_left_to_torch(kind: str) -> None:
    assert built(kind)[0].compiled is None


@pytest.mark.parametrize("kind", ["dqn", "dueling", "branches", "dueling branches", "c51", "qr", "dict"])
def test_the_hand_written_pass_equals_autograd(kind: str) -> None:
    config, observation, action = KINDS[kind]
    network = config.build_network(observation, action, seed=3)[0]
    other = copy.deepcopy(network)
    flat, other_flat = (FlatParameters(one, gradients=True) for one in (network, other))
    fast, slow = build_body_pass(network.body), AutogradPass(other.body, "float32")
    assert isinstance(fast, DensePass)
    batch: Any = random_transitions(observation, action, num_steps=2)
    rows, after = (
        {key: torch.from_numpy(part[0]) for key, part in tree.items()} if isinstance(tree, dict) else
        torch.from_numpy(tree[0]) for tree in (batch.observation, batch.next_observation)
    )  # fmt: skip
    for next_rows in (after, None):
        found = fast.forward(fast.encode(rows), None if next_rows is None else fast.encode(next_rows))
        expected = slow.forward(rows, next_rows)
        torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
        gradient = torch.randn_like(expected[0])
        other_flat.gradients.zero_()
        fast.backward(gradient)
        slow.backward(gradient)
        torch.testing.assert_close(flat.gradients, other_flat.gradients, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(fast.evaluate(fast.encode(after)), slow.evaluate(after), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["plain", "dqn", "qr"])
@pytest.mark.parametrize("period", [2, 3, 100])
def test_targets_of_several_minibatches_at_once_equal_those_of_one_at_a_time(kind: str, period: int) -> None:
    trainer, observation, action = built(kind, target_update=period)
    single = built(kind, target_update=period)[0]
    batch = random_transitions(observation, action, num_steps=7)
    trainer.step(batch, 0.0)
    for k in range(7):
        single.step(_minibatch(batch, k), 0.0)
    torch.testing.assert_close(torch.tensor(trainer.parameters()), torch.tensor(single.parameters()))
    assert trainer.num_steps == single.num_steps == 7


def _minibatch(batch: Any, k: int) -> Any:
    own = copy.deepcopy(batch)
    for name in ("observation", "reward", "discount", "next_observation", "weight"):
        setattr(own, name, getattr(batch, name)[k : k + 1])
    own.decision = {"action": batch.decision["action"][k : k + 1]}
    return own


def test_the_target_network_is_copied_every_n_gradient_steps() -> None:
    trainer, observation, action = built("dqn", target_update=3)
    target, own = trainer.learner.flat_targets["q"].trainable, trainer.learner.flat["q"].trainable
    old = target.clone()
    for number in range(1, 8):
        trainer.step(random_transitions(observation, action, num_steps=1, seed=number), 0.5)
        if number % 3 == 0:
            assert torch.equal(target, own)
            old = target.clone()
        else:
            assert torch.equal(target, old)
            assert not torch.equal(target, own)


def test_a_soft_update_moves_the_target_network_by_a_share() -> None:
    trainer, observation, action = built("soft")
    target, own = trainer.learner.flat_targets["q"].trainable, trainer.learner.flat["q"].trainable
    old = target.clone()
    trainer.step(random_transitions(observation, action, num_steps=1), 0.5)
    torch.testing.assert_close(target, 0.9 * old + 0.1 * own)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_trainer_learns_exactly_as_the_saved_one(kind: str) -> None:
    trainer, observation, action = built(kind)
    trainer.step(random_transitions(observation, action), 0.1)
    other = built(kind, seed=9)[0]
    other.restore({name: array.copy() for name, array in trainer.state().items()})
    for each in (trainer, other):
        each.step(random_transitions(observation, action, seed=1), 0.2)
    state, restored = trainer.state(), other.state()
    assert state.keys() == restored.keys()
    assert all(np.array_equal(state[name], restored[name]) for name in state)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_that_is_not_finite_is_rolled_back(kind: str) -> None:
    trainer, observation, action = built(kind)
    trainer.step(random_transitions(observation, action), 0.1)
    before = {name: array.copy() for name, array in trainer.state().items()}
    batch = random_transitions(observation, action)
    batch.reward[1, 0] = np.nan
    assert trainer.step(batch, 0.1).skipped
    after = trainer.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_importance_weights_scale_gradients() -> None:
    """A row of weight 0 has no effect."""
    trainer, observation, action = built("dqn")
    other = built("dqn")[0]
    batch = random_transitions(observation, action, num_steps=1)
    batch.weight[0, 3] = 0.0
    trainer.step(batch, 0.0)
    batch.reward[0, 3] = 100.0
    other.step(batch, 0.0)
    assert np.array_equal(trainer.parameters(), other.parameters())


def test_epsilon_falls_linearly_after_the_warm_up() -> None:
    trainer, observation, action = built("dqn", epsilon=0.8, epsilon_final=0.2, exploration_fraction=0.5)
    empty = random_transitions(observation, action, num_steps=0)
    full = random_transitions(observation, action)
    found = []
    for batch, progress in ((empty, 0.1), (full, 0.0), (full, 0.25), (full, 0.5), (full, 1.0)):
        trainer.step(batch, progress)
        found.append(float(trainer.parameters()[-1]))
    assert found == pytest.approx([1.0, 0.8, 0.5, 0.2, 0.2])


def test_changed_options_take_effect_in_the_next_update() -> None:
    trainer, observation, action = built("dqn")
    changed = trainer.config.with_option("epsilon_final", 0.3).with_option("learning_rate", 0.002)
    trainer.reconfigure(changed)
    result = trainer.step(random_transitions(observation, action), 1.0)
    assert trainer.parameters()[-1] == pytest.approx(0.3)
    assert result.metrics["learning_rate"] == 0.002
    assert result.metrics["epsilon"] == 1.0, "of the policy that has acted"
    trainer.reconfigure(trainer.config.with_option("epsilon", 0.7))  # constant from then on
    trainer.step(random_transitions(observation, action), 1.0)
    result = trainer.step(random_transitions(observation, action), 0.05)
    assert result.metrics["epsilon"] == trainer.parameters()[-1] == pytest.approx(0.7)


@pytest.mark.parametrize("kind", [DQNConfig, SACConfig])
def test_a_changed_learning_rate_is_constant(kind: type[DQNConfig] | type[SACConfig]) -> None:
    config = kind(learning_rate_schedule="linear").with_option("learning_rate", 0.002)
    assert (config.learning_rate, config.learning_rate_schedule) == (0.002, "constant")


@pytest.mark.parametrize("kind", [DQNConfig, VDNConfig])
def test_a_changed_epsilon_is_constant(kind: type[DQNConfig] | type[VDNConfig]) -> None:
    config = kind().with_option("epsilon", 0.7)
    assert (config.epsilon, config.epsilon_final) == (0.7, 0.7)


@pytest.mark.parametrize("kind", ["dqn", "rainbow"])
def test_it_learns_the_values_of_a_chain(kind: str) -> None:
    config = {"dqn": DQNConfig, "rainbow": RainbowConfig}[kind](
        gamma=GAMMA, device="cpu", hidden_sizes=(32,), learning_rate=5e-3, target_update=20, value_min=0.0,
        value_max=1.0, num_atoms=21, noise=0.1,
    )  # fmt: skip
    space = Box((CHAIN_LENGTH,), low=0.0, high=1.0)
    trainer = config.build_trainer(space, Discrete(2), seed=0)
    for seed in range(12):
        trainer.step(chain_transitions(50, 32, seed), 0.0)
    network = config.build_network(space, Discrete(2), seed=0)[0]
    FlatParameters(network, gradients=False).load(torch.from_numpy(trainer.parameters().copy()))
    with torch.no_grad():
        values, best = network(torch.eye(CHAIN_LENGTH))
    np.testing.assert_allclose(values.numpy(), chain_values(), atol=0.05)
    np.testing.assert_allclose(best.numpy(), chain_values().max(1), atol=0.05)


def test_a_lone_image_has_one_hidden_layer_of_the_encoders_size() -> None:
    trainer = built("image")[0]
    network = trainer.learner.targets["q"]
    assert isinstance(network, QNetwork)
    assert isinstance(network.body, DenseBody)
    assert [tuple(layer.weight.shape)[1] for layer in network.body.layers] == [256]  # type: ignore[arg-type]


@pytest.mark.parametrize("dueling", [False, True])
def test_layers_start_as_those_of_torch_linear(dueling: bool) -> None:
    """With biases of 0 the kinks of all units are at the origin, and CartPole is learned half as fast."""
    network = DQNConfig(hidden_sizes=(400,), dueling=dueling).build_network(Box((4,)), Discrete(2), 0)[0]
    body: Any = network.body
    for layer in (*body.layers, *body.heads.layers()):
        weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
        bound = 1.0 / np.sqrt(len(weight))
        assert weight.std() == pytest.approx(bound / np.sqrt(3.0), rel=0.1)
        assert 0.0 < np.abs(bias).min() <= np.abs(bias).max() <= bound
        assert len(bias) <= 2 or bias.std() == pytest.approx(bound / np.sqrt(3.0), rel=0.1)
