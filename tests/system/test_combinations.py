"""Combinations of inference, workers and spaces train for a few thousand steps and finish."""

import json
from pathlib import Path
from typing import Any

import pytest
from support import faulty_environments
from support.terminals import Terminal
from support.trained_runs import latest_checkpoint

import srl
from srl.storage import checkpoints

BROKEN = faulty_environments.__file__
GAMES = "pettingzoo:support.games"
QUICK = {"epochs": 1, "num_minibatches": 1}


def trained(terminal: Terminal, environment: str, *options: str, steps: int = 3000) -> dict:
    """Train and return the last status."""
    ended = terminal.train(environment, "--steps", str(steps), *options).end()
    assert ended.code == 0, ended.text
    status = json.loads((terminal.root / "run" / "status.json").read_text())
    assert status["state"] == "finished"
    assert status["steps"] >= steps
    assert status["restarts"] == status["lane_failures"] == 0, status["messages"]
    assert status["lag_max"] <= status["max_lag"]
    assert checkpoints.last_good(terminal.root / "run" / "checkpoints") is not None
    return status


@pytest.mark.parametrize(
    ("inference", "ring"),
    [
        ("host", 2),
        ("remote", 1),
        pytest.param("inline", 1, marks=pytest.mark.slow),
        pytest.param("inline", 2, marks=pytest.mark.slow),
        pytest.param("host", 1, marks=pytest.mark.slow),
        pytest.param("remote", 2, marks=pytest.mark.slow),
    ],
)
def test_several_workers_of_each_kind_work_together(terminal: Terminal, inference: str, ring: int) -> None:
    """With one lane group per actor no sample lags; with two, samples lag by at most one version."""
    numbers = ("--actors", "2", "--policies", "2", "--trainers", "2", "--lanes", "8", "--horizon", "16")
    lag = ("--max-lag", str(ring - 1))
    status = trained(terminal, "CartPole-v1", "--inference", inference, "--ring", str(ring), *numbers, *lag)
    assert len(status["workers"]) == 4 + 2 * (inference != "inline")
    assert status["updates"] >= 6
    assert status["max_lag"] == ring - 1


@pytest.mark.slow
def test_a_game_in_processes_trains_a_policy_for_each_role(terminal: Terminal) -> None:
    pytest.importorskip("pettingzoo")
    roles = ("--roles", "agent_0=first", "agent_1=second", "--inference", "host")
    trained(terminal, f"{GAMES}:TurnGame", *roles, "--lanes", "8", "--horizon", "16", steps=2000)
    _, facts = latest_checkpoint(terminal.root / "run")
    assert set(facts["policies"]) == {"first", "second"}
    assert terminal.run("eval", "run", "--episodes", "4", "--root", str(terminal.root)).code == 0


def trained_here(root: Path, environment: str, steps: int, **options: Any) -> srl.Run:
    """Train with the inline scheduler, which starts no processes."""
    run = srl.train(environment, steps=steps, root=root, scheduler="inline", **options)
    assert run.state == "finished"
    assert run.status.steps >= steps
    assert run.status.lane_failures == 0, run.status.messages
    return run


@pytest.mark.slow
def test_inline_runs_repeat_bit_for_bit(tmp_path: Path) -> None:
    one, two, other = (
        latest_checkpoint(trained_here(tmp_path, "CartPole-v1", 5000, seed=seed, name=name).path)[0][
            "policy/parameters"
        ]
        for name, seed in (("one", 3), ("two", 3), ("other", 4))
    )
    assert (one == two).all()
    assert (one != other).any()


@pytest.mark.parametrize(
    ("game", "inference"),
    [
        ("TurnGame", "inline"),
        ("DyingTeam", "host"),
        pytest.param("TurnGame", "host", marks=pytest.mark.slow),
        pytest.param("DyingTeam", "inline", marks=pytest.mark.slow),
    ],
)
def test_games_of_several_agents_train(tmp_path: Path, game: str, inference: str) -> None:
    pytest.importorskip("pettingzoo")
    trained_here(tmp_path, f"{GAMES}:{game}", 2000, inference=inference, lanes=8, horizon=16)


@pytest.mark.parametrize("action", ["discrete", "multidiscrete", "multibinary", "box"])
def test_action_spaces_train(tmp_path: Path, action: str) -> None:
    trained_here(tmp_path, f"{BROKEN}:Spaces", 1000, env_args={"action": action}, lanes=8, horizon=16)


@pytest.mark.parametrize("observation", ["dict", "discrete", "image"])
def test_observation_spaces_train(tmp_path: Path, observation: str) -> None:
    options = {"env_args": {"observation": observation}, "inference": "host"}
    trained_here(tmp_path, f"{BROKEN}:Spaces", 128, lanes=4, horizon=8, ppo=QUICK, **options)


def test_pong_trains(tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    trained_here(tmp_path, "ALE/Pong-v5", 64, lanes=2, horizon=16, ppo=QUICK)


def test_halfcheetah_trains(tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    trained_here(tmp_path, "HalfCheetah-v5", 2000, lanes=16, horizon=16)
