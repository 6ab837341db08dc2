"""A2C, IMPALA and PPG: what they are in terms of PPO, and corrections for data that is old."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from support.algorithm_kinds import KINDS
from support.trajectories import random_trajectory

from srl.algorithms.a2c import A2CConfig
from srl.algorithms.actor_critic import ActorCriticConfig
from srl.algorithms.impala import ImpalaConfig
from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.ppo.estimates import Reevaluation, estimate
from srl.api.spaces import Box, Discrete, Space
from srl.api.trainer import Trainer, Trajectory
from srl.base.tree import Array, leaves

OBSERVATION, ACTION = Box((4,)), Discrete(3)
CONFIGS: list[ActorCriticConfig] = [
    A2CConfig(),
    ImpalaConfig(),
    ImpalaConfig(normalize_observation=True, normalize_return="popart"),
    PPOConfig(correction="vtrace", value_clip=0.2, dual_clip=3.0, normalize_advantage="minibatch"),
    PPGConfig(auxiliary_every=2, auxiliary_epochs=2, num_minibatches=4),
    PPOConfig(correction="clip", kl_coefficient=0.1, adapt_kl=0.01, target_kl=0.05),
]


def batch_for(trainer: Trainer, action: Space = ACTION, seed: int = 2) -> Trajectory:
    return random_trajectory(PPOConfig(), OBSERVATION, action, trainer, rows=17, lanes=16, seed=seed)


def plain_trainer(seed: int = 0) -> Trainer:
    return PPOConfig().build_trainer(OBSERVATION, ACTION, seed)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_a_restored_trainer_goes_on_bit_by_bit(config: ActorCriticConfig) -> None:
    batches = [batch_for(plain_trainer(seed), seed=seed) for seed in range(4)]
    trainer, other = (config.build_trainer(OBSERVATION, ACTION, seed) for seed in (1, 77))
    for batch in batches[:2]:
        assert not trainer.step(batch, 0.0).skipped
    saved = {name: array.copy() for name, array in trainer.state().items()}
    other.restore(saved)
    for batch in batches[2:]:
        for each in (trainer, other):
            assert not each.step(batch, 0.5).skipped
    for name, array in trainer.state().items():
        assert other.state()[name].tobytes() == array.tobytes(), name
        assert saved[name].shape == array.shape, name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_number_that_is_not_finite_never_reaches_the_weights(kind: tuple[ActorCriticConfig, Space, Space]) -> None:
    trainer = kind[0].build_trainer(*kind[1:], 1)
    batch = random_trajectory(*kind, trainer, rows=9, lanes=6, seed=1)
    assert not trainer.step(batch, 0.0).skipped
    before = {name: array.copy() for name, array in trainer.state().items() if name != "counters"}
    t, lane = np.argwhere(batch.acting[:-1])[20]
    seen = [leaf for _, leaf in leaves(batch.observation) if leaf.dtype.kind == "f"]  # a byte is always finite
    for array in (*seen, batch.reward, np.asarray(batch.decision["log_prob"])):
        kept, array[t, lane] = array[t, lane].copy(), np.nan
        assert trainer.step(batch, 0.0).skipped
        for name, part in before.items():
            assert trainer.state()[name].tobytes() == part.tobytes(), name
        array[t, lane] = kept


def stepped(config: ActorCriticConfig, batch: Trajectory) -> Array:
    trainer = config.build_trainer(OBSERVATION, ACTION, 0)
    assert not trainer.step(batch, 0.0).skipped
    return trainer.parameters().copy()


def test_a2c_on_its_own_data_is_the_plain_policy_gradient() -> None:
    batch = batch_for(plain_trainer())
    config = A2CConfig()
    plain = dataclasses.replace(config, surrogate="plain")
    assert config.surrogate == "clip"
    np.testing.assert_allclose(stepped(config, batch), stepped(plain, batch), atol=1e-6)


@pytest.mark.parametrize("correction", ["clip", "vtrace"])
def test_a_correction_does_not_change_updates_on_current_data(correction: str) -> None:
    """Several steps, because the first step of Adam hardly depends on the size of the gradient."""
    batch = batch_for(plain_trainer())
    base = PPOConfig(epochs=3, num_minibatches=1)
    corrected = dataclasses.replace(base, correction=correction)  # type: ignore[arg-type]
    np.testing.assert_allclose(stepped(corrected, batch), stepped(base, batch), atol=2e-5)


def test_a_correction_weights_old_samples_and_takes_ratios_relative_to_the_current_policy() -> None:
    batch = batch_for(plain_trainer())
    old = np.asarray(batch.decision["log_prob"])
    current = Reevaluation(old + np.log(np.float32(0.25)), np.zeros_like(old))
    current.log_prob[0] = old[0] + np.log(np.float32(4.0))
    for correction in ("clip", "vtrace"):
        config = PPOConfig(correction=correction, rho_clip=2.0)
        estimates = estimate(batch, config, current)
        assert estimates.weight is not None
        acting = batch.acting[1:-1]
        np.testing.assert_allclose(estimates.weight[0], 2.0, rtol=1e-5)
        np.testing.assert_allclose(estimates.weight[1:][acting], 0.25, rtol=1e-5)
        np.testing.assert_array_equal(estimates.log_prob, current.log_prob[:-1])
        np.testing.assert_array_equal(estimates.value, 0.0)


def test_impala_is_vtrace_and_the_plain_policy_gradient_once() -> None:
    impala = ImpalaConfig()
    assert (impala.correction, impala.surrogate, impala.epochs) == ("vtrace", "plain", 1)
    assert impala.normalize_advantage == "none"


def test_a_large_divergence_ends_the_update_early() -> None:
    config = PPOConfig(learning_rate=0.05, epochs=10, num_minibatches=4, target_kl=0.01)
    trainer = config.build_trainer(OBSERVATION, ACTION, 0)
    metrics = trainer.step(batch_for(trainer), 0.0).metrics
    steps = int(trainer.state()["num_steps"])
    assert 1 <= steps < 20
    assert metrics["passes"] == pytest.approx((steps + 1) / 4, abs=0.02)


def test_the_weight_of_the_kl_penalty_adapts_to_the_divergence() -> None:
    weights = []
    for wanted in (1e-9, 1e9):
        config = PPOConfig(kl_coefficient=0.3, adapt_kl=wanted)
        trainer = config.build_trainer(OBSERVATION, ACTION, 0)
        for _ in range(2):
            trainer.step(batch_for(trainer), 0.0)
        weights.append(float(trainer.state()["kl_coefficient"][0]))
    assert weights == [pytest.approx(1.2), pytest.approx(0.075)]


def test_the_kl_penalty_adapts_to_the_divergence_at_the_end_of_an_update() -> None:
    """Of a single gradient step the mean over the update is that before it: nothing."""
    config = PPOConfig(kl_coefficient=0.3, adapt_kl=1e-9, epochs=1, num_minibatches=1, learning_rate=0.01)
    trainer = config.build_trainer(OBSERVATION, ACTION, 0)
    metrics = trainer.step(batch_for(trainer), 0.0).metrics
    assert metrics["kl_after"] > 1e-6
    assert abs(metrics["approx_kl"]) < 1e-3 * metrics["kl_after"]
    assert trainer.state()["kl_coefficient"][0] == pytest.approx(0.6)


def test_clip_and_entropy_follow_their_schedules() -> None:
    config = PPOConfig(
        clip=0.2,
        clip_schedule="linear",
        clip_final=0.1,
        entropy_coefficient=0.01,
        entropy_schedule="cosine",
        learning_rate=1e-3,
        learning_rate_final=5e-4,
    )
    trainer = config.build_trainer(OBSERVATION, ACTION, 0)
    coefficients = trainer._coefficients(0.5)  # type: ignore[attr-defined]
    assert (coefficients.clip, coefficients.entropy) == (pytest.approx(0.15), pytest.approx(0.005))
    assert trainer.step(batch_for(trainer), 0.5).metrics["learning_rate"] == pytest.approx(7.5e-4)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (PPOConfig, {"dual_clip": 1.0}),
        (PPOConfig, {"value_clip": 0.0}),
        (PPOConfig, {"adapt_kl": 0.01}),
        (PPOConfig, {"target_kl": -1.0}),
        (PPOConfig, {"clip_final": -0.1}),
        (A2CConfig, {"gamma": 2.0}),
        (PPGConfig, {"auxiliary_every": 0}),
        (PPGConfig, {"towers": "separate"}),
        (PPGConfig, {"towers": "auto"}),
        (ImpalaConfig, {"rho_clip": 0.0}),
        (ImpalaConfig, {"num_minibatches": 0}),
    ],
)
def test_impossible_options_are_refused_by_name(kind: type[ActorCriticConfig], options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        kind(**options)  # type: ignore[arg-type]


OWN = """
from torch import nn
from srl.networks.network import Network

class Own(nn.Module):
    detached = False

    def __init__(self):
        super().__init__()
        self.body, self.policy, self.value = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, observation):
        features = self.body(observation).tanh()
        seen = features.detach() if self.detached else features
        return self.policy(features), self.value(seen)[:, 0]

class Detachable(Own, Network):
    def detach_value(self, detached):
        self.detached = detached

def plain(observation, action):
    return Own()

def detachable(observation, action):
    return Detachable()
"""


def test_a_custom_network_detaches_its_value_between_phases(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(ValueError, match=r"Own has no method `detach_value\(detached\)`"):
        PPGConfig(network=f"{tmp_path}/own.py:plain").check(Box((4,)), Discrete(3))
    options = {"entropy_coefficient": 0.0, "epochs": 1, "normalize_advantage": "none", "auxiliary_every": 100}
    config = PPGConfig(network=f"{tmp_path}/own.py:detachable", **options)  # type: ignore[arg-type]
    config.check(Box((4,)), Discrete(3))
    trainer = config.build_trainer(Box((4,)), Discrete(3), 0)
    batch = random_trajectory(config, Box((4,)), Discrete(3), trainer, rows=9, lanes=4, seed=2)
    batch.reward[:] = 0.0  # no advantage, no policy gradient; only the values can be learned
    np.asarray(batch.decision["value"])[:] = 0.0
    before = trainer.parameters().copy()
    trainer.step(batch, 0.0)
    changed = trainer.parameters() != before
    body = 4 * 8 + 8
    assert not changed[:body].any()
    assert changed[-9:].all(), "the value's own layer"


def test_the_auxiliary_phase_learns_values_and_keeps_decisions() -> None:
    """Every update of this one is followed by a phase; the clone coefficient decides how far decisions move in it."""
    metrics_of = {}
    for clone in (0.0, 100.0):
        config = PPGConfig(auxiliary_every=1, auxiliary_epochs=20, clone_coefficient=clone, learning_rate=3e-3)
        trainer = config.build_trainer(OBSERVATION, ACTION, 0)
        batch = random_trajectory(config, OBSERVATION, ACTION, trainer, rows=17, lanes=16, seed=2)
        metrics_of[clone] = trainer.step(batch, 0.0).metrics
    for metrics in metrics_of.values():
        assert metrics["auxiliary_value_loss"] < 0.9 * metrics["value_loss"]
    assert metrics_of[100.0]["auxiliary_kl"] < 0.5 * metrics_of[0.0]["auxiliary_kl"]


def test_outside_of_the_phase_values_do_not_change_the_features() -> None:
    batch = batch_for(plain_trainer())
    batch.reward[:] = 0.0  # no advantage, no policy gradient; only the values can be learned
    np.asarray(batch.decision["value"])[:] = 0.0
    config = PPGConfig(auxiliary_every=100, entropy_coefficient=0.0, epochs=1, normalize_advantage="none")
    moved = []
    for kind in (config, PPOConfig(towers="shared", entropy_coefficient=0.0, epochs=1, normalize_advantage="none")):
        trainer = kind.build_trainer(OBSERVATION, ACTION, 0)
        before = trainer.parameters().copy()
        trainer.step(batch, 0.0)
        moved.append(int((trainer.parameters() != before).sum()))
    assert moved[0] == 64 + 1  # the value's own layer
    assert moved[1] > 1000


def test_batches_for_the_phase_are_copies_and_a_restart_drops_them() -> None:
    config = PPGConfig(auxiliary_every=2, auxiliary_epochs=1)
    one, two = (config.build_trainer(OBSERVATION, ACTION, 0) for _ in range(2))
    batches = [batch_for(plain_trainer(seed), seed=seed) for seed in range(2)]
    one.step(batches[0], 0.0)
    two.step(dataclasses.replace(batches[0], observation=np.array(batches[0].observation)), 0.0)
    np.asarray(batches[0].observation)[:] = 1e9  # the worker reuses the arrays
    for trainer in (one, two):
        assert "auxiliary_kl" in trainer.step(batches[1], 0.0).metrics
    assert one.parameters().tobytes() == two.parameters().tobytes()
    one.step(batches[1], 0.0)
    one.restore({name: array.copy() for name, array in one.state().items()})
    assert "auxiliary_kl" in one.step(batches[1], 0.0).metrics  # of one batch instead of two
