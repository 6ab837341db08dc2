"""Runs that learn from replay, through the command line: train, resume, evaluate, kill, refuse."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.terminals import Ended, Terminal

import srl
from srl.cli.main import main

SMALL = ("--recipe", "none", "--algo.hidden-sizes", "16", "--algo.learning-starts", "64", "--algo.batch-size", "16")


def call_train(terminal: Terminal, *words: str) -> Ended:
    return terminal.call("train", *words, "--root", str(terminal.root), "--name", "run")


def rows_of(path: str) -> list[dict]:
    with open(f"{path}/metrics.jsonl") as file:
        return [row for row in map(json.loads, file) if row.get("kind") == "update"]


@pytest.mark.parametrize(("env", "algo"), [("Pendulum-v1", "sac"), ("Pendulum-v1", "td3"), ("CartPole-v1", "dqn")])
def test_updates_per_decision_are_kept_and_recorded(terminal: Terminal, env: str, algo: str) -> None:
    options = ("--algo", algo, "--steps", "400", "--algo.updates-per-decision", "0.5", "--scheduler", "inline")
    ended = call_train(terminal, env, *options, *SMALL)
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


@pytest.mark.parametrize("scheduler", ["processes", pytest.param("hosts", marks=pytest.mark.slow)])
def test_a_killed_trainer_continues_with_its_replay(terminal: Terminal, tmp_path: Path, scheduler: str) -> None:
    on_disk = scheduler == "hosts"
    options: tuple[str, ...] = ("--algo", "sac", "--steps", "1000000", "--algo.updates-per-decision", "0.1")
    options += ("--scheduler", scheduler, *(("--replay-dir", str(tmp_path / "replay")) if on_disk else ()))
    command = terminal.train("Pendulum-v1", *options, *SMALL)
    before = command.wait_for_steps(500)
    trainer = next(worker for worker in before["workers"] if worker["name"] == "trainers/0")
    process = psutil.Process(trainer["pid"])
    assert process.environ()["OMP_NUM_THREADS"] == "1", "threads of several workers that spin slow each other down"
    process.kill()
    after = command.wait(
        lambda status: status["restarts"] == 1 and status["steps"] > before["steps"] + 300, "steps of the replacement"
    )
    assert after["version"] > before["version"]
    assert not any("the replay starts empty" in text for text in after["messages"]), after["messages"]
    replay = after["replay"][0]
    assert replay["size"] >= after["steps"], "no decision was forgotten"
    assert replay["reached"] == pytest.approx(0.1, abs=0.01)
    if on_disk:
        assert list((tmp_path / "replay").iterdir()) == [], "the file has no name"
    command.signal(signal.SIGINT)
    assert command.end().code == 130


@pytest.mark.parametrize("saved", [True, False])
def test_a_resumed_run_continues_with_a_saved_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], saved: bool
) -> None:
    algorithm = {"hidden_sizes": (16,), "learning_starts": 200, "batch_size": 16, "updates_per_decision": 0.1}
    options: dict[str, Any] = {"scheduler": "inline", "recipe": "none", "seed": 1, "root": tmp_path, "sinks": ()}
    run = srl.train("Pendulum-v1", algo="sac", sac=algorithm, steps=600, name="run", save_replay=saved, **options)
    if saved:
        assert main(["verify", str(run.path)]) == 0
        assert "replay/policy/0: undamaged, not signed" in capsys.readouterr().out
    # Inference in another place changes the graph, so that episodes restart, as in runs with several processes.
    resumed = srl.resume(run.path, steps=800, inference="host")
    assert any("new episodes" in text for text in resumed.status.messages)
    empty = [text for text in resumed.status.messages if "the replay starts empty" in text]
    assert bool(empty) != saved, resumed.status.messages
    first = next(row for row in rows_of(str(run.path)) if row["step"] > run.status.steps)
    assert ("gradient_steps" in first) == saved, "an empty replay has a warm-up"


@pytest.mark.slow
@pytest.mark.parametrize("replay", ["inline", "host"])
def test_a_resumed_run_on_hosts_continues_with_the_replay_that_its_workers_saved(
    terminal: Terminal, replay: str
) -> None:
    options = ("--algo", "sac", "--algo.updates-per-decision", "0.1", "--scheduler", "hosts", "--replay", replay)
    options += ("--resources", "trainers=cpu:0.2", *(("replay=cpu:0.2",) if replay == "host" else ()))
    ended = call_train(terminal, "Pendulum-v1", *options, *SMALL, "--steps", "600", "--save-replay")
    assert ended.code == 0, ended.err
    run = terminal.root / "run"
    assert (run / "replay" / "policy" / "0" / "manifest.json").exists()
    verified = terminal.call("verify", str(run))
    assert "replay/policy/0: undamaged" in verified.out
    before = rows_of(str(run))[-1]["step"]
    ended = terminal.call("resume", str(run), "--steps", "1000")
    assert ended.code == 0, ended.err
    assert "the replay starts empty" not in ended.text
    first = next(row for row in rows_of(str(run)) if row["step"] > before)
    assert "gradient_steps" in first, "an empty replay has a warm-up"


def test_a_replay_that_does_not_fit_is_refused_with_its_size(terminal: Terminal) -> None:
    ended = call_train(terminal, "Pendulum-v1", "--algo", "sac", "--algo.replay-size", "1000000000000")
    assert ended.code == 2
    assert "a replay of 1,000,000,000,000 decisions needs" in ended.err
    assert "--algo.replay-size" in ended.err


def test_options_of_replay_that_cannot_work_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cases: list[tuple[str, dict[str, Any]]] = [
        (
            r"the disk of .*replay has .*, or another --replay-dir",
            {"algo": "sac", "sac": {"replay_size": 10**15}, "replay_dir": str(tmp_path / "replay")},
        ),
        ("cannot create a file in the directory", {"algo": "sac", "replay_dir": str(tmp_path / "file" / "replay")}),
        (
            "cannot create a file in the directory",
            {"algo": "sac", "replay_dir": str(tmp_path / "file" / "replay"), "scheduler": "hosts"},
        ),
        (
            "learning-starts 10,000 is not below --steps 100: .* --algo.learning-starts 10,",
            {"algo": "sac", "steps": 100},
        ),
        (
            "returns of n-step 40 need a replay of at least 160 decisions, 10 blocks of 4 steps x 4 lanes; found 100",
            {"algo": "sac", "sac": {"n_step": 40, "replay_size": 100, "batch_size": 8}},
        ),
        ("n-step 9 would end with a block of 4 steps", {"algo": "sac", "sac": {"n_step": 9}, "trainers": 2}),
        (
            "cannot be reached: the trainer would limit it, with 16,000,000 gradient steps for each update .* GiB",
            {"algo": "sac", "sac": {"updates_per_decision": 1e6}},
        ),
        (
            "trainer would limit it, with 6,400,000 gradient steps .* 128 s .* 60 s .*--hang-timeout",
            {"algo": "sac", "sac": {"updates_per_decision": 4e5, "batch_size": 4}},
        ),
        (
            "allows no gradient step in the 10,000 decisions after the warm-up",
            {"algo": "sac", "sac": {"updates_per_decision": 1e-5}, "steps": 20_000},
        ),
        ("'her' is not an algorithm but options of one: --algo sac --algo.her future", {"algo": "her"}),
        ("samples per insert are this times `batch_size`", {"algo": "sac", "samples_per_insert": 4}),
        ("--save-replay: ppo has no replay", {"algo": "ppo", "save_replay": True}),
    ]
    for words, options in cases:
        with pytest.raises(ValueError, match=words):
            srl.train("Pendulum-v1", recipe="none", root=tmp_path / "runs", **options)
    assert not list((tmp_path / "runs").glob("*")), "nothing was started"
    assert not (tmp_path / "replay").exists()


@pytest.mark.parametrize(("env", "algo", "other"), [("CartPole-v1", "td3", "dqn"), ("Pendulum-v1", "dqn", "sac")])
def test_an_action_space_that_does_not_fit_is_refused_with_algorithms_that_do(
    terminal: Terminal, env: str, algo: str, other: str
) -> None:
    ended = call_train(terminal, env, "--algo", algo)
    assert ended.code == 2
    assert other in ended.err, ended.err
