"""A loaded policy takes observations and returns actions in the spaces of its environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import pytest
from support.spaces import SPACES
from support.trained_runs import untrained

import srl


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
