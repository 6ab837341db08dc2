"""Runs that learn from replay, through the command line: train, resume, evaluate, kill, refuse."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil
import pytest
from support.terminals import Terminal

import srl

SMALL = ("--recipe", "none", "--algo.hidden-sizes", "16", "--algo.learning-starts", "64", "--algo.batch-size", "16")


def rows_of(path: str) -> list[dict]:
    with open(f"{path}/metrics.jsonl") as file:
        return [row for row in map(json.loads, file) if row.get("kind") == "update"]


@pytest.mark.parametrize(("env", "algo"), [("Pendulum-v1", "sac"), ("Pendulum-v1", "td3"), ("CartPole-v1", "dqn")])
def test_updates_per_decision_are_kept_and_recorded(terminal: Terminal, env: str, algo: str) -> None:
    options = ("--algo", algo, "--steps", "400", "--algo.updates-per-decision", "0.5", "--scheduler", "inline")
    ended = terminal.train(env, *options, *SMALL).end()
    assert ended.code == 0, ended.text
    run = str(next(terminal.root.iterdir()))
    rows = rows_of(run)
    assert rows[-1]["step"] >= 400
    learned = [row for row in rows if "gradient_steps" in row]
    warmup = next(row["step"] for row in learned) - 8
    assert learned[-1]["gradient_steps"] == pytest.approx((rows[-1]["step"] - warmup) / 2, abs=9)
    policy = srl.load(run)
    observation = [0.0, 0.0, 0.0] if env == "Pendulum-v1" else [0.0] * 4
    assert policy.act(observation) is not None


@pytest.mark.parametrize("place", ["memory", pytest.param("disk", marks=pytest.mark.slow)])
def test_a_killed_trainer_continues_with_its_replay(terminal: Terminal, tmp_path: Path, place: str) -> None:
    options = ("--algo", "sac", "--steps", "1000000", "--algo.updates-per-decision", "0.02")
    options += ("--replay-dir", str(tmp_path / "replay")) if place == "disk" else ()
    command = terminal.train("Pendulum-v1", *options, *SMALL)
    before = command.wait_for_steps(1000)
    trainer = next(worker for worker in before["workers"] if worker["name"] == "trainers/0")
    psutil.Process(trainer["pid"]).kill()
    after = command.wait(
        lambda status: status["restarts"] == 1 and status["steps"] > before["steps"] + 500, "steps of the replacement"
    )
    assert after["version"] > before["version"]
    assert not any("the replay starts empty" in text for text in after["messages"]), after["messages"]
    replay = after["replay"][0]
    assert replay["size"] >= after["steps"], "no decision was forgotten"
    assert replay["reached"] == pytest.approx(0.02, rel=0.05)
    if place == "disk":
        assert list((tmp_path / "replay").iterdir()) == [], "the file has no name"
    command.signal(signal.SIGINT)
    assert command.end().code == 130


def test_a_replay_that_does_not_fit_is_refused_with_its_size(terminal: Terminal) -> None:
    ended = terminal.train("Pendulum-v1", "--algo", "sac", "--algo.replay-size", "1000000000000").end()
    assert ended.code == 2
    assert "a replay of 1,000,000,000,000 decisions needs" in ended.err
    assert "--algo.replay-size" in ended.err


@pytest.mark.parametrize(("env", "algo", "other"), [("CartPole-v1", "td3", "dqn"), ("Pendulum-v1", "dqn", "sac")])
def test_an_action_space_that_does_not_fit_is_refused_with_algorithms_that_do(
    terminal: Terminal, env: str, algo: str, other: str
) -> None:
    ended = terminal.train(env, "--algo", algo).end()
    assert ended.code == 2
    assert other in ended.err, ended.err
