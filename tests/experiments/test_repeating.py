"""Lanes restored in the middle of their episodes show what the first ones show; who cannot is found out by trying."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest

from srl.environments.registry import lanes_config
from srl.experiments.graph.repeating import why_not_resumable

SELF = "test_repeating"


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "Acrobot-v1",
        "FrozenLake-v1",
        "srl.testing.environments:tracer",
        "pettingzoo:srl.testing.environments:turn_game",
        "pettingzoo:srl.testing.environments:dying_team",
        "Hopper-v5",
        "Ant-v5",
    ],
)
def test_it_can_be_saved(name: str) -> None:
    if name.startswith("pettingzoo"):
        pytest.importorskip("pettingzoo")
    if name.endswith("v5"):
        pytest.importorskip("mujoco")
    assert why_not_resumable(lanes_config(name), 3) == ""


HIDDEN = itertools.count()


class Secretive(gymnasium.Env[Any, Any]):
    """Its observations come from outside of the environment."""

    observation_space = gymnasium.spaces.Box(0, 1e9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.full(1, next(HIDDEN), np.float32), 0.0, False, False, {}


class Generating(Secretive):
    def __init__(self) -> None:
        self.numbers = (number for number in range(10))


def test_state_that_lies_elsewhere_is_noticed() -> None:
    reason = why_not_resumable(lanes_config(f"{SELF}:Secretive"), 0)
    assert reason == "test_repeating:Secretive: its restored copy shows another observation 1 steps later"


def test_what_cannot_be_seen_is_named() -> None:
    reason = why_not_resumable(lanes_config(f"{SELF}:Generating"), 0)
    assert "numbers is a builtins:generator, whose memory cannot be seen from Python" in reason
