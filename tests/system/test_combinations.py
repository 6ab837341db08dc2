"""Every way to put a run together trains for a few thousand steps and finishes."""

import json
from pathlib import Path

import pytest
from terminals import Terminal

from srl.runs import checkpoints

BROKEN = str(Path(__file__).with_name("broken.py"))
GAMES = "pettingzoo:srl.testing.environments"


def trained(terminal: Terminal, environment: str, *options: str, steps: int = 6000) -> dict:
    """The last status of a run that went well."""
    ended = terminal.train(environment, "--steps", str(steps), *options).end(60)
    assert ended.code == 0, ended.text
    status = json.loads((terminal.root / "run" / "status.json").read_text())
    assert status["state"] == "finished"
    assert status["steps"] >= steps
    assert status["restarts"] == status["lane_failures"] == 0, status["messages"]
    assert status["lag_max"] <= status["max_lag"]
    assert checkpoints.last_good(terminal.root / "run" / "checkpoints") is not None
    return status


@pytest.mark.parametrize("ring", ["1", "2"])
@pytest.mark.parametrize("inference", ["inline", "host", "remote"])
def test_several_actors_policies_and_trainers_work_together(terminal: Terminal, inference: str, ring: str) -> None:
    numbers = ("--actors", "2", "--policies", "2", "--trainers", "2", "--lanes", "16", "--horizon", "16")
    status = trained(terminal, "CartPole-v1", "--inference", inference, "--ring", ring, *numbers)
    assert len(status["workers"]) == 4 + 2 * (inference != "inline")
    assert status["updates"] >= 6


@pytest.mark.parametrize("inference", ["inline", "host"])
def test_without_lag_training_is_exactly_synchronous(terminal: Terminal, inference: str) -> None:
    small = ("--lanes", "16", "--horizon", "16", "--actors", "2", "--inference", inference)
    status = trained(terminal, "CartPole-v1", "--max-lag", "0", *small)
    assert (status["lag_max"], status["lag_mean"]) == (0, 0.0)


def test_the_inline_scheduler_repeats_bit_for_bit(terminal: Terminal) -> None:
    arrays = []
    for name in ("one", "two"):
        options = ("--scheduler", "inline", "--steps", "5000", "--seed", "3")
        ended = terminal.train("CartPole-v1", *options, name=name).end(60)
        assert ended.code == 0, ended.text
        arrays.append(checkpoints.read(checkpoints.latest(terminal.root / name / "checkpoints"))[0])
    assert arrays[0].keys() == arrays[1].keys()
    assert all((arrays[0][key] == arrays[1][key]).all() for key in arrays[0])


@pytest.mark.parametrize("game", ["turn_game", "dying_team"])
@pytest.mark.parametrize("inference", ["inline", "host"])
def test_games_of_several_agents_train(terminal: Terminal, game: str, inference: str) -> None:
    pytest.importorskip("pettingzoo")
    trained(terminal, f"{GAMES}:{game}", "--inference", inference, "--lanes", "8", "--horizon", "16", steps=3000)


def test_each_role_has_a_policy_of_its_own(terminal: Terminal) -> None:
    pytest.importorskip("pettingzoo")
    roles = ("--roles", *roles_of("turn_game"))
    trained(terminal, f"{GAMES}:turn_game", *roles, "--lanes", "8", "--horizon", "16", steps=2000)
    _, facts = checkpoints.read(checkpoints.latest(terminal.root / "run" / "checkpoints"))
    assert set(facts["policies"]) == {"first", "second"}
    assert terminal.run("eval", "run", "--episodes", "4", "--root", str(terminal.root)).code == 0


def roles_of(game: str) -> list[str]:
    from srl.testing import environments

    agents = getattr(environments, game)().possible_agents
    assert len(agents) == 2
    return [f"{agent}={policy}" for agent, policy in zip(agents, ("first", "second"), strict=True)]


@pytest.mark.parametrize("action", ["discrete", "multidiscrete", "multibinary", "box"])
def test_action_spaces_train(terminal: Terminal, action: str) -> None:
    trained(
        terminal, f"{BROKEN}:Spaces", "--env-arg", f"action={action}", "--lanes", "8", "--horizon", "16", steps=1000
    )


@pytest.mark.parametrize("observation", ["dict", "discrete", "image"])
def test_observation_spaces_train(terminal: Terminal, observation: str) -> None:
    options = ("--env-arg", f"observation={observation}", "--lanes", "4", "--horizon", "8", "--inference", "host")
    trained(terminal, f"{BROKEN}:Spaces", *options, steps=300)


def test_pong_trains(terminal: Terminal) -> None:
    pytest.importorskip("ale_py")
    trained(terminal, "ALE/Pong-v5", "--lanes", "4", "--horizon", "32", steps=512)


def test_halfcheetah_trains(terminal: Terminal) -> None:
    pytest.importorskip("mujoco")
    trained(terminal, "HalfCheetah-v5", "--lanes", "16", "--horizon", "16", steps=2000)
