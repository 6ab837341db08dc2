"""Runs whose replay is in workers of its own, through the command line: train, kill, refuse."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.terminals import Terminal, worker

import srl
from srl.controller.supervision import scaled
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import make_options

SMALL = ("--recipe", "none", "--algo.hidden-sizes", "16", "--algo.learning-starts", "64", "--algo.batch-size", "16")


def rows_of(path: str) -> list[dict]:
    with open(f"{path}/metrics.jsonl") as file:
        return [row for row in map(json.loads, file) if row.get("kind") == "update"]


@pytest.mark.parametrize("algo", ["rainbow", pytest.param("sac", marks=pytest.mark.slow)])
def test_updates_per_decision_are_kept_by_replay_workers(terminal: Terminal, algo: str) -> None:
    env = "CartPole-v1" if algo == "rainbow" else "Pendulum-v1"
    options = ("--algo", algo, "--steps", "400", "--algo.updates-per-decision", "0.5", "--scheduler", "inline")
    place = ("--root", str(terminal.root), "--name", "run")
    ended = terminal.call("train", env, *options, "--replay", "host", "--replay-workers", "2", *SMALL, *place)
    assert ended.code == 0, ended.text
    rows = rows_of(str(terminal.root / "run"))
    assert rows[-1]["step"] >= 400
    learned = [row for row in rows if "gradient_steps" in row]
    warmup = learned[0]["step"] - 32
    assert learned[-1]["gradient_steps"] == pytest.approx((rows[-1]["step"] - warmup) / 2, abs=18)
    steps = [row["step"] for row in rows]
    assert steps == sorted(steps)


@pytest.mark.parametrize("replay", [pytest.param("host", marks=pytest.mark.slow), "remote"])
def test_killed_replay_workers_and_trainers_continue(terminal: Terminal, replay: str) -> None:
    options = ("--algo", "sac", "--steps", "1000000", "--algo.updates-per-decision", "0.02", "--max-lag", "1")
    command = terminal.train("Pendulum-v1", *options, "--replay", replay, "--replay-workers", "2", *SMALL)
    status = command.wait_for_steps(300)
    for restarts, name in enumerate(("replay/1", "trainers/0"), start=1):
        psutil.Process(worker(status, name)["pid"]).kill()
        before = status
        status = command.wait(
            lambda now: now["restarts"] == restarts and now["steps"] > before["steps"] + 300,  # noqa: B023
            f"steps after the end of {name}",
        )
        assert status["version"] > before["version"]
        assert all(now["size"] >= then["size"] for now, then in zip(status["replay"], before["replay"], strict=True))
    status = command.wait(lambda now: len(now["replay"]) == 2 and now["replay"][0]["reached"], "gauges of both")
    assert [memory["name"] for memory in status["replay"]] == ["replay/0", "replay/1"]
    assert all(memory["size"] > 0 and memory["capacity"] == 500_000 for memory in status["replay"])
    assert status["replay"][0]["reached"] == pytest.approx(0.02, rel=0.2)
    assert {stream["name"] for stream in status["streams"]} == {"samples/0", "samples/1"}
    command.signal(signal.SIGINT)
    assert command.end().code == 130


@pytest.mark.slow
def test_two_trainers_draw_from_all_replay_workers(terminal: Terminal) -> None:
    options = ("--algo", "sac", "--steps", "1500", "--algo.updates-per-decision", "0.1", "--trainers", "2")
    command = terminal.train("Pendulum-v1", *options, "--replay", "host", "--replay-workers", "2", *SMALL)
    ended = command.end()
    assert ended.code == 0, ended.text
    rows = rows_of(str(terminal.root / "run"))
    assert rows[-1]["gradient_steps"] == pytest.approx((rows[-1]["step"] - 64) / 10, abs=8)


def test_a_resumed_run_continues_with_the_saved_replay_of_its_workers(tmp_path: Path) -> None:
    algorithm = {"hidden_sizes": (16,), "learning_starts": 200, "batch_size": 16, "updates_per_decision": 0.1}
    options: dict[str, Any] = {"scheduler": "inline", "recipe": "none", "seed": 1, "root": tmp_path, "sinks": ()}
    options |= {"replay": "host", "replay_workers": 2, "save_replay": True, "name": "run"}
    run = srl.train("Pendulum-v1", algo="sac", sac=algorithm, steps=400, **options)
    resumed = srl.resume(run.path, steps=500)
    assert not any("the replay starts empty" in text for text in resumed.status.messages), resumed.status.messages
    first = next(row for row in rows_of(str(run.path)) if row["step"] > run.status.steps)
    assert "gradient_steps" in first  # 200 decisions would have to be collected first, if the replay were empty


def test_the_number_of_replay_workers_changes_only_between_two_runs(tmp_path: Path) -> None:
    settings = {"hidden_sizes": (16,), "learning_starts": 64, "batch_size": 16, "updates_per_decision": 0.1}
    options: dict[str, Any] = {
        "algo": "sac",
        "sac": settings,
        "scheduler": "inline",
        "recipe": "none",
        "replay": "host",
    }
    groups = {group.name: group for group in prepare("Pendulum-v1", make_options(**options), ()).experiment.groups}
    with pytest.raises(
        ValueError, match=r"replay cannot be resized during the run: .*resume` it with another --replay"
    ):
        scaled(groups, "replay", 2, relative=False)
    run = srl.train("Pendulum-v1", steps=128, root=tmp_path, name="run", sinks=(), **options)
    resumed = srl.resume(run.path, steps=256, replay_workers=2)
    assert any("the replay starts empty" in text for text in resumed.status.messages), resumed.status.messages
    assert len(resumed.status.replay) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("CartPole-v1", "--algo", "ppo", "--replay", "host"), "--replay: ppo has no replay"),
        (
            ("Pendulum-v1", "--algo", "sac", "--replay", "remote", "--scheduler", "inline"),
            "remote replay needs processes",
        ),
        (("Pendulum-v1", "--algo", "sac", "--replay-workers", "2"), "an inline replay has no workers"),
        (("Pendulum-v1", "--algo", "sac", "--replay", "host", "--trainers", "3"), "multiple of the 3 trainers"),
        (
            (
                "Pendulum-v1",
                "--algo",
                "sac",
                "--replay",
                "host",
                "--horizon",
                "100000",
                "--algo.updates-per-decision",
                "0.1",
            ),
            "more than a message",
        ),
        (
            ("Pendulum-v1", "--algo", "sac", "--replay", "host", "--replay-workers", "2", "--algo.n-step", "9"),
            "n-step 9 would end with a block of 4 steps: expected --horizon 9 or more",
        ),
    ],
)
def test_a_replay_that_cannot_work_is_refused(terminal: Terminal, arguments: tuple[str, ...], message: str) -> None:
    ended = terminal.call("train", *arguments, "--root", str(terminal.root))
    assert ended.code == 2
    assert message in ended.err, ended.err


def test_recurrent_teams_draw_sequences_from_a_replay_worker(tmp_path: Path) -> None:
    small: dict[str, Any] = {"hidden_sizes": (8,), "memory_size": 4, "chunk": 4, "learning_starts": 16, "batch_size": 4}
    small["updates_per_decision"] = 0.5
    options: dict[str, Any] = {"scheduler": "inline", "sinks": (), "lanes": 2, "horizon": 4, "recipe": "none"}
    game = "pettingzoo:srl.testing.probe_environments:two_step"
    run = srl.train(game, algo="qmix", qmix=small, steps=96, replay="host", root=tmp_path, name="run", **options)
    assert run.status.steps >= 96
    assert any("gradient_steps" in row for row in rows_of(str(run.path)))
