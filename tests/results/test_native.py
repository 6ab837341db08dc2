"""Loaded policies use the native shapes, tuples and start values of the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support.trained_runs import untrained

import srl
from srl.base.config import from_data, to_data
from srl.base.tree import leaves
from srl.environments.random_actions import random_actions
from srl.environments.spaces import action_decoder, from_gymnasium, observation_encoder
from srl.results.native import decoded, encoded

SPACES = {
    "starts at 3": spaces.Discrete(4, start=3),
    "starts below zero": spaces.MultiDiscrete([3, 2], start=[-1, 5]),
    "a table": spaces.MultiDiscrete([[2, 3], [4, 2]]),
    "switches": spaces.MultiBinary((2, 3)),
    "integers": spaces.Box(-2, 2, (3,), np.int32),
    "numbers": spaces.Box(-1.0, 1.0, (2, 2), np.float64),
    "a tuple": spaces.Tuple((spaces.Discrete(2, start=1), spaces.Box(-1.0, 1.0, (2,), np.float32))),
    "names": spaces.Dict({"what": spaces.Tuple((spaces.Discrete(2), spaces.MultiBinary(2))), "n": spaces.Discrete(3)}),
}


class Picky(gymnasium.Env[Any, Any]):
    """An environment that accepts only actions of its space."""

    def __init__(self, space: str = "numbers") -> None:
        self.observation_space = self.action_space = SPACES[space]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return self.observation_space.sample(), 1.0, True, False, {}


@pytest.mark.parametrize("name", SPACES)
def test_a_loaded_policy_acts_in_the_native_environment(name: str, tmp_path: Path) -> None:
    run = untrained(tmp_path, f"{Path(__file__)}:Picky", {"space": name})
    policy, environment = srl.load(run.path), Picky(name)
    observation, _ = environment.reset(seed=0)
    environment.step(policy.act(observation))
    environment.step(policy.act(observation, greedy=False))


@pytest.mark.parametrize("name", SPACES)
def test_a_saved_space_converts_like_the_native_space(name: str) -> None:
    native = SPACES[name]
    native.seed(0)
    seen, action = (from_data(to_data(from_gymnasium(native, role))) for role in ("observation", "action"))
    observation = native.sample()
    for (path, found), (_, expected) in zip(
        leaves(encoded(seen, observation)), leaves(observation_encoder(native)(observation)), strict=True
    ):
        assert found.dtype == expected.dtype, path
        np.testing.assert_array_equal(found, expected)
    actions = random_actions(action, 5, np.random.default_rng(0))
    assert repr(decoded(action, actions)) == repr(action_decoder(native)(actions))
