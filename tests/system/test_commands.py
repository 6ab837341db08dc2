"""Commands that reach a run from another terminal, and commands for finished runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.terminals import GENTLE, Terminal, wait_for, worker
from support.trained_runs import latest_checkpoint
from support.waiting import PATIENCE

from srl.cli.main import main
from srl.storage import checkpoints
from srl.terminal import doctor
from srl.terminal.machine import Limits

LONG = ("--steps", "1000000000")


def test_ps_scale_change_and_stop_reach_a_run_from_another_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no run is active" in terminal.call("ps").out
    command = terminal.train(*GENTLE, *LONG, "--inference", "host", name="mine")
    command.wait(lambda status: status["state"] == "running" and status["steps"], "it runs")

    shown = terminal.run("ps")
    assert shown.code == 0
    for text in ("mine", "actors", "trainers"):
        assert text in shown.out, shown.out
    assert terminal.call("ps", "--all").out.splitlines()[1].split()[:2] == ["mine", "running"]
    (line,) = terminal.call("ps", "--json").out.splitlines()
    status = json.loads(line)
    assert status["run"] == "mine"
    assert {worker["name"] for worker in status["workers"]} == {"actors/0", "policies/0", "trainers/0"}

    assert "actors: 1 -> 2" in terminal.call("scale", "mine", "actors=2").out
    command.wait(lambda status: worker(status, "actors/1")["state"] == "running", "a second actor")
    assert "actors: 2 -> 3" in terminal.call("scale", "latest", "actors=+1", "policies=2").out
    status = command.wait(lambda status: worker(status, "actors/2")["state"] == "running", "a third actor")
    command.wait(lambda now: worker(now, "actors/2")["progress"] > 10, "the third actor works")
    command.wait(lambda now: worker(now, "policies/1")["progress"] > 10, "the second policy worker works")
    assert "actors: 3 -> 1" in terminal.call("scale", "mine", "actors=1", "actors=2").out
    command.wait(lambda now: "actors/2" not in str(now["workers"]), "the third actor is gone")
    command.wait(lambda now: worker(now, "actors/1")["state"] == "running", "down and up again: two actors")
    changed = terminal.call("change", "mine", "learning-rate=0.125", "env.length=3", "env.lenght=3")
    assert changed.out.splitlines()[:2] == ["learning_rate is now 0.125", "env.length is now 3"], changed.err
    command.wait(lambda now: now["metrics"].get("learning_rate") == 0.125, "the new learning rate")
    command.wait(lambda now: now["length_mean"] == 3.0, "shorter episodes")
    command.wait(lambda now: "Slow has no attribute 'lenght'" in str(now["messages"]), "the typing error")
    after = command.wait_for_steps(status["steps"] + 500)
    assert after["restarts"] == 0
    run = Path(after["path"])
    assert "mine writes a checkpoint" in terminal.call("save", "mine").out
    wait_for(lambda: '"event":"checkpoint"' in (run / "system.jsonl").read_text(), "the event of a checkpoint")
    assert '"text":"actors: 1 -> 2"' in (run / "system.jsonl").read_text()
    latest_checkpoint(run)
    edges = {(edge["source"], edge["target"], edge["kind"]) for edge in after["edges"]}
    assert {("actors", "policies", "request"), ("actors", "trainers", "push")} <= edges

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(terminal.runtime))  # this process is another terminal, too
    for change, texts in {
        "actor=2": ("unknown worker group 'actor'", "actors"),
        "actors=0": ("at least one",),
        "actors=99999": ("at most",),
        "actors": ("GROUP=NUMBER",),
    }.items():
        assert main(["scale", "mine", change]) == 2
        error = capsys.readouterr().err
        for text in texts:
            assert text in error, error
    assert main(["change", "mine", "gama=0.9"]) == 2
    assert "gama cannot change during this run" in capsys.readouterr().err
    assert main(["scale", "mime", "actors=2"]) == 2
    assert "no run in progress is called 'mime'" in capsys.readouterr().err
    assert main(["resume", "mine", "--root", str(terminal.root)]) == 2
    assert "already running" in capsys.readouterr().err
    assert main(["stop", "latest", "--root", str(terminal.runtime)]) == 2  # there is no run in that directory

    stopped = terminal.run("stop", "mine")
    assert (stopped.code, stopped.out) == (0, "mine has stopped\n")
    ended = command.end()
    assert ended.code == 130, ended.text
    assert "srl resume" in ended.out


def measured(terminal: Terminal) -> list[int]:
    """The steps at which metrics were written; the last line may be incomplete."""
    lines = (terminal.root / "run" / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line)["step"] for line in lines]


def test_a_run_that_is_just_starting_can_be_stopped(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(terminal.runtime))
    command = terminal.train(*GENTLE, *LONG)
    wait_for((terminal.root / "run").exists, "the run directory")  # long before the control socket
    assert main(["stop", "run", "--root", str(terminal.root)]) == 0
    assert "run has stopped" in capsys.readouterr().out
    assert command.end().code in (130, 143)


def test_a_run_that_is_just_resuming_can_be_stopped(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--steps", "64", "--scheduler", "inline", "--lanes", "4", "--horizon", "16")
    root = str(terminal.root)
    assert terminal.call("train", "CartPole-v1", *options, "--root", root, "--name", "run").code == 0
    assert "run has already ended: finished" in terminal.call("stop", "run", "--root", root).out
    monkeypatch.setattr("srl.cli.control.APPEAR_SECONDS", PATIENCE)  # the machine may be slow
    command = terminal.start("resume", "run", "--steps", "1000000000", "--root", root)
    assert "run has stopped" in terminal.call("stop", "run", "--root", root).out
    assert command.end().code in (130, 143)


def test_a_run_is_resumed_killed_resumed_again_and_evaluated(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    root, folder = str(terminal.root), terminal.root / "run" / "checkpoints"
    assert terminal.train("CartPole-v1", "--steps", "10000", "--checkpoint-seconds", "0.5").end().code == 0
    first = json.loads((terminal.root / "run" / "status.json").read_text())
    assert main(["resume", "run", "--root", root]) == 1
    assert "already" in capsys.readouterr().err
    chosen = first["settings"]  # with which advice is given
    assert chosen["lanes"] * chosen["ring"] > 0
    assert first["steps"] / first["updates"] == pytest.approx(chosen["batch"], rel=0.25)  # some lanes wait for a reset

    before = checkpoints.latest(folder)
    command = terminal.start("resume", "run", "--steps", "1000000000", "--root", root)
    status = command.wait(lambda status: status["version"], "the first status with a version")
    assert status["version"] >= first["version"]
    assert status["settings"] == chosen
    assert status["steps"] >= first["steps"]
    wait_for(lambda: checkpoints.latest(folder) != before, "a checkpoint")
    wait_for(lambda: measured(terminal)[-1] > first["steps"], "metrics of the steps since")
    command.signal(9)
    command.end()
    assert measured(terminal) == sorted(measured(terminal))
    good = checkpoints.last_good(folder)
    assert good is not None
    saved = checkpoints.step_of(good)
    assert saved > first["steps"]

    ended = terminal.run("resume", "run", "--steps", str(saved + 5000), "--root", root)
    assert ended.code == 0, ended.text
    last = json.loads((terminal.root / "run" / "status.json").read_text())
    assert last["steps"] >= saved + 5000
    assert last["version"] > first["version"]
    assert last["first_steps"] == saved
    assert 0.0 < last["seconds_to_first_update"] <= last["elapsed"]
    _, facts = latest_checkpoint(terminal.root / "run")
    assert facts["policies"]["policy"]["version"] == last["version"]

    assert main(["eval", "run", "--episodes", "10", "--json", "--root", root]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 10
    assert 8 <= result["mean"] <= 500


def test_the_exit_code_of_doctor_says_whether_runs_can_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Limits(8, 8, None, 16 << 30, 12 << 30, 4096, None)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(doctor, "limits", lambda: machine)
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "8 usable of 8",
        "memfd works",
        f"{tmp_path}/runs is writable",
        "torch 2",
        "atari",
        "srl train CartPole",
    ):
        assert text in shown, shown
    assert "✗" not in shown

    monkeypatch.setattr(doctor, "limits", lambda: replace(machine, memory_free=1 << 20))
    assert main(["doctor"]) == 1
    assert "→ a run needs about 1 GiB" in capsys.readouterr().out


def test_check_env_reports_mistakes_and_sets_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "CartPole-v1", "--steps", "50"]) == 0
    assert "CartPole-v1" in capsys.readouterr().out
    assert main(["check-env", "support.faulty_environments:Faulty", "--env-arg", "fault=shape", "--steps", "50"]) == 1
    assert "shape" in capsys.readouterr().out
    assert main(["check-env", "CartPol-v1"]) != 0


def test_throughput_is_reported_as_one_line_of_json(terminal: Terminal) -> None:
    window = ("--seconds", "0.5", "--warmup", "0.2")
    bench = terminal.run("bench", "throughput", "--workload", "cartpole", *window, "--json")
    assert bench.code == 0, bench.text
    (line,) = bench.out.splitlines()
    result = json.loads(line)
    assert result["workload"] == "cartpole"
    for key in ("fps", "env_fps", "cpu_percent", "rss_mb", "first_update_s"):
        assert result[key] > 0.0, (key, result)
    assert 0.0 <= result["lag_mean"] <= 1.0
    assert {"env", "inference", "update", "waiting"} <= set(result["busy"])


def test_a_goal_ends_the_run_and_all_runs_are_listed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(terminal.runtime))
    root = str(terminal.root)
    goal = ("--until-return", "15", "--scheduler", "inline", "--steps", "1000000")
    assert main(["train", "CartPole-v1", *goal, "--name", "goal", "--root", root]) == 0
    shown = capsys.readouterr().out
    assert "CartPole-v1 · ppo: finished" in shown
    assert re.search(r"reason        mean return \d+\.\d reached the goal of 15\n", shown), shown
    assert "of 1,000,000 in" in shown
    assert "srl eval" in shown

    assert main(["ps", "--all", "--root", root]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["RUN", "STATE", "STEPS", "RETURN", "LAST", "PATH"]
    assert line.split()[:2] == ["goal", "finished"]
    assert line.endswith(f"{root}/goal")
    assert main(["ps", "--all", "--json", "--root", root]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["state"] == "finished"
    assert listed["return_mean"] >= 15
    assert 0 < listed["steps"] < 1_000_000
    assert main(["stop", "goal", "--root", root]) == 0
    assert capsys.readouterr().out == "goal has already ended: finished\n"
    assert main(["ps", "--all", "--root", f"{root}/goal"]) == 0
    assert "no runs in" in capsys.readouterr().out
