"""VDN and QMIX in complete runs: the two-step game, agents that die, roles, masks, resume, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import PURSUIT

import srl
from srl.api.dataflow import Replay, Sequences
from srl.api.spaces import Dict, Discrete
from srl.cli.main import main
from srl.environments.registry import lanes_config
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import make_options

TWO_STEP = "pettingzoo:srl.testing.probe_environments:two_step"
DYING = "pettingzoo:support.games:DyingTeam"
TURNS = "pettingzoo:support.games:TurnGame"
SMALL: dict[str, Any] = {"hidden_sizes": (8,), "memory_size": 4, "chunk": 4, "learning_starts": 16, "batch_size": 4}
SMALL["updates_per_decision"] = 0.2
QUICK: dict[str, Any] = {"scheduler": "inline", "sinks": (), "lanes": 2, "horizon": 4, "steps": 96, "recipe": "none"}


@pytest.mark.parametrize(("algo", "payoff"), [("vdn", 7.0), ("qmix", 8.0)])
def test_qmix_solves_the_two_step_game_and_vdn_takes_the_safe_one(algo: str, payoff: float, tmp_path: Path) -> None:
    run = srl.train(TWO_STEP, algo=algo, steps=6000, seed=1, scheduler="inline", root=tmp_path, sinks=())
    assert set(srl.evaluate(run.path, episodes=4).returns) == {payoff}


@pytest.mark.parametrize("game", [TWO_STEP, DYING, "pettingzoo:support.masked_games:TogetherInfos"])
@pytest.mark.parametrize("algo", ["vdn", "qmix"])
def test_parallel_games_can_be_trained(game: str, algo: str, tmp_path: Path) -> None:
    run = srl.train(game, algo=algo, root=tmp_path, name="run", algorithm=SMALL, **QUICK)
    assert run.status.steps >= 96
    assert srl.evaluate(run.path, episodes=2).returns


def test_agents_have_numbers_and_act_without_the_state(tmp_path: Path) -> None:
    run = srl.train(TWO_STEP, algo="qmix", root=tmp_path, name="run", qmix=SMALL, **QUICK)
    policy = srl.load(run.path)
    assert isinstance(policy.observation, Dict)
    assert policy.observation.items["agent_id"] == Discrete(2)
    seen = {"observation": np.array([1.0, 0.0, 0.0], np.float32), "agent_id": 1}
    alone = policy.act(seen)
    policy.reset()
    assert alone == policy.act({**seen, "state": np.full(3, 9.0)})
    with pytest.raises(ValueError, match="it has no 'agent_id'"):
        policy.act({"observation": seen["observation"]})


def test_numbers_follow_the_order_of_the_agents() -> None:
    lanes = lanes_config(PURSUIT).with_agent_ids().build(2)
    found = [time_step.observation["agent_id"].tolist() for time_step in lanes.reset(0)]  # type: ignore[union-attr]
    assert found == [[0, 0], [1, 1], [2, 2]]
    lanes.close()


def test_the_team_is_the_agents_of_the_role() -> None:
    roles = ("chaser_*=chasers", "runner_*=runners,algo=ippo")
    run = prepare(PURSUIT, make_options(algo="qmix", roles=roles), ())
    trainers = {group.name: group.config for group in run.experiment.groups if group.name.startswith("trainers")}
    flow = trainers["trainers-chasers"].algorithm.dataflow()  # type: ignore[attr-defined]
    assert isinstance(flow, Replay)
    assert isinstance(flow.unit, Sequences)
    assert flow.unit.num_agents == 2
    assert type(trainers["trainers-runners"].algorithm) is srl.IPPOConfig  # type: ignore[attr-defined]


def test_a_resumed_run_learns_on(tmp_path: Path) -> None:
    run = srl.train(TWO_STEP, algo="qmix", root=tmp_path, name="run", qmix=SMALL, **QUICK)
    again = srl.resume(run.path, steps=160)
    assert again.status.steps >= 160
    assert again.status.version > run.status.version


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([TURNS, "--algo", "qmix"], "all agents must act at every step; these take turns"),
        (["Pendulum-v1", "--algo", "vdn"], "use mappo or ippo"),
        ([TWO_STEP, "--algo", "vdn", "--algo.num-agents", "3"], "num_agents must be 2"),
        ([TWO_STEP, "--algo", "qmix", "--algo.global-keys", "world"], "the mixing network sees 'world'"),
    ],
)
def test_what_cannot_work_is_refused_before_the_start(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *command]) == 2
    assert message in capsys.readouterr().err
