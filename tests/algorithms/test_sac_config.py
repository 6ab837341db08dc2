"""Options and spaces of SAC, TD3 and DDPG."""

from __future__ import annotations

from typing import Any

import pytest

from srl.algorithms.sac.config import DDPGConfig, ReplayActorCriticConfig, SACConfig, TD3Config
from srl.api.dataflow import Replay, Transitions
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete, Space
from srl.base.tree import ArraySpec
from srl.experiments.options.algorithms import build_algorithm

SEEN, REACH = Box((3,)), Box((2,), low=-1.0, high=1.0)


@pytest.mark.parametrize(
    ("config", "action", "found"),
    [
        (TD3Config(), Discrete(2), "use dqn or sac or ppo"),
        (DDPGConfig(), MultiDiscrete((2, 2)), "use dqn or ppo"),
        (SACConfig(), MultiDiscrete((2, 2)), "use dqn or ppo"),
        (SACConfig(), Box((2,)), "use ppo"),
        (SACConfig(), Box((2,), low=0.0, high=(1.0, 0.0)), "use ppo"),
        (SACConfig(), Box((2,), "int64", 0, 3), "use ppo"),
        (SACConfig(), Dict({"a": REACH}), "use ppo"),
        (SACConfig(memory="gru"), REACH, "sac learns from single transitions"),
        (TD3Config(network="a:b"), REACH, "td3 builds its own actor"),
    ],
    ids=str,
)
def test_an_unsupported_space_is_refused_with_the_algorithms_that_serve_it(
    config: ReplayActorCriticConfig, action: Space, found: str
) -> None:
    with pytest.raises(ValueError, match=found):
        config.check(SEEN, action)


@pytest.mark.parametrize("config", [SACConfig(), TD3Config(), DDPGConfig()], ids=str)
def test_box_actions_with_finite_bounds_are_supported(config: ReplayActorCriticConfig) -> None:
    config.check(SEEN, REACH)
    config.check(SEEN, Box((2, 2), "float64", (-1.0, -2.0, 0.0, 0.0), 1.0))
    assert config.decision_spec(SEEN, REACH) == {"action": ArraySpec((2,), "float32")}


def test_sac_supports_choices() -> None:
    SACConfig().check(SEEN, Discrete(3))
    assert SACConfig().decision_spec(SEEN, Discrete(3)) == {"action": ArraySpec((), "int64")}


@pytest.mark.parametrize(
    "options",
    [
        {"tau": 1.5},
        {"num_critics": 0},
        {"target_critics": 3},
        {"target_critics": 0},
        {"critic_dropout": 1.0},
        {"policy_delay": 0},
        {"initial_temperature": 0.0},
        {"replay_size": 10},
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        SACConfig(**options)


def test_the_defaults_are_those_for_mujoco() -> None:
    config = SACConfig()
    assert config.dataflow() == Replay(Transitions(1, 0.99), 256, 1_000_000, 10_000, 1.0, None)
    assert (config.learning_rate, config.tau, config.hidden_sizes, config.activation) == (
        3e-4,
        0.005,
        (256, 256),
        "relu",
    )
    assert config.entropy_target(Box((6,), low=-1.0, high=1.0)) == -6.0


@pytest.mark.parametrize(("name", "kind"), [("sac", SACConfig), ("td3", TD3Config), ("ddpg", DDPGConfig)])
def test_the_algorithms_have_names(name: str, kind: type[ReplayActorCriticConfig]) -> None:
    assert build_algorithm(name) == kind()
