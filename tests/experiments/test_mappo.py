"""MAPPO and IPPO in complete runs: the critic's observations, recurrent policies, masks, turns, and agents that die."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PURSUIT
from support.trees import leaf

import srl
from srl.api.spaces import Box, Dict
from srl.cli.main import main
from srl.environments.pettingzoo.config import PettingZooConfig
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import make_options

DYING = "pettingzoo:support.games:DyingTeam"
TURNS = "pettingzoo:support.games:TurnGame"
TICTACTOE = "pettingzoo:classic.tictactoe_v3"
QUICK: dict[str, Any] = {"scheduler": "inline", "sinks": (), "lanes": 2, "horizon": 4, "steps": 20, "recipe": "none"}


@pytest.mark.parametrize("algo", ["ippo", "mappo"])
@pytest.mark.parametrize("game", [PURSUIT, DYING, TURNS, TICTACTOE])
def test_all_kinds_of_games_can_be_trained(game: str, algo: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {algo: {"epochs": 1, "memory": "gru", "memory_size": 4}}
    run = srl.train(game, algo=algo, root=tmp_path, name="run", **options, **QUICK)
    assert run.status.steps >= 20
    assert srl.evaluate(run.path, episodes=2).returns


def test_without_a_state_of_the_game_the_state_is_all_observations() -> None:
    lanes = PettingZooConfig(PURSUIT).with_global_state().build(2)
    time_steps = lanes.reset(3)
    seen = np.concatenate([time_step.observation["observation"] for time_step in time_steps], axis=1)
    for time_step in time_steps:
        np.testing.assert_array_equal(time_step.observation["state"], seen)
    lanes.close()


def test_the_state_does_not_contain_masks() -> None:
    lanes = PettingZooConfig("classic.tictactoe_v3").with_global_state().build(1)
    space = lanes.spec.teams[0].observation
    assert isinstance(space, Dict)
    assert set(space.items) == {"observation", "action_mask", "state"}
    state = space.items["state"]
    assert isinstance(state, Box)
    assert state.shape == (2 * 3 * 3 * 2,)
    lanes.close()


def test_dead_agents_are_zeros_in_the_state() -> None:
    config = PettingZooConfig("support.games:DyingTeam", {"deaths": [1, 3]})
    lanes = config.with_global_state().build(1)
    lanes.reset(0)
    actions = tuple(np.zeros(1, np.int64) for _ in range(2))
    lanes.step(actions)
    time_steps = lanes.step(actions)
    state, own = (leaf(time_steps[1].observation, key)[0] for key in ("state", "observation"))
    np.testing.assert_array_equal(state[:4], 0.0)
    np.testing.assert_array_equal(state[4:], own)
    lanes.close()


def test_a_policy_of_mappo_acts_without_the_state(tmp_path: Path) -> None:
    roles = ("chaser_*=chasers", "runner_*=runners")
    run = srl.train(PURSUIT, algo="mappo", root=tmp_path, name="run", roles=roles, mappo={"epochs": 1}, **QUICK)
    policy = srl.load(run.path, policy="chasers")
    seen = np.zeros(4, np.float32)
    alone = policy.act({"observation": seen})
    assert alone == policy.act({"observation": seen, "state": np.full(10, 9.0)})
    assert policy.act({"observation": np.zeros((3, 4), np.float32)}).shape == (3,)


def test_ippo_does_not_receive_the_state() -> None:
    for algo, asked in (("ippo", False), ("mappo", True)):
        environment = prepare(PURSUIT, make_options(algo=algo), ()).environment
        assert isinstance(environment, PettingZooConfig)
        assert environment.kwargs.get("state", False) is asked


def test_the_error_of_mappo_names_the_missing_state(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--algo", "mappo"]) == 2
    message = capsys.readouterr().err
    assert "mappo's critic sees 'state'" in message
    assert "--algo ippo" in message
