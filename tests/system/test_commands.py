"""The commands from another terminal while a run goes on, and what can be done with it afterwards."""

import json

import pytest
from terminals import GENTLE, Terminal, wait_for, worker

from srl.cli import main
from srl.runs import checkpoints

LONG = ("--steps", "1000000000")


def test_ps_scale_and_stop_reach_a_run_from_another_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "no run is going on" in terminal.run("ps").out
    command = terminal.train(*GENTLE, *LONG, "--inference", "host", name="mine")
    command.wait(lambda status: status["state"] == "running" and status["steps"], "it runs")

    shown = terminal.run("ps")
    assert shown.code == 0
    for text in ("mine", "actors", "trainers"):
        assert text in shown.out, shown.out
    (line,) = terminal.run("ps", "--json").out.splitlines()
    status = json.loads(line)
    assert status["run"] == "mine"
    assert {worker["name"] for worker in status["workers"]} == {"actors/0", "policies/0", "trainers/0"}

    assert "actors: 1 -> 2" in terminal.run("scale", "mine", "actors=2").out
    command.wait(lambda status: worker(status, "actors/1")["state"] == "running", "a second actor")
    assert "actors: 2 -> 3" in terminal.run("scale", "latest", "actors=+1", "policies=2").out
    status = command.wait(lambda status: worker(status, "actors/2")["state"] == "running", "a third actor")
    command.wait(lambda now: worker(now, "actors/2")["progress"] > 10, "the third actor works")
    command.wait(lambda now: worker(now, "policies/1")["progress"] > 10, "the second policy worker works")
    assert "actors: 3 -> 1" in terminal.run("scale", "mine", "actors=1", "actors=2").out
    command.wait(lambda now: "actors/2" not in str(now["workers"]), "the third actor is gone")
    command.wait(lambda now: worker(now, "actors/1")["state"] == "running", "down and up again: two actors")
    after = command.wait_for_steps(status["steps"] + 500)
    assert after["restarts"] == 0

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(terminal.runtime))  # this process is another terminal, too
    for change, texts in {
        "actor=2": ("no group 'actor'", "actors"),
        "actors=0": ("at least one",),
        "actors=99999": ("at most",),
        "actors": ("GROUP=NUMBER",),
    }.items():
        assert main(["scale", "mine", change]) == 2
        error = capsys.readouterr().err
        for text in texts:
            assert text in error, error
    assert main(["scale", "mime", "actors=2"]) == 2
    assert "no single run 'mime'" in capsys.readouterr().err
    assert main(["resume", "mine", "--root", str(terminal.root)]) == 2
    assert "going on" in capsys.readouterr().err

    stopped = terminal.run("stop", "mine")
    assert (stopped.code, stopped.out) == (0, "mine has stopped\n")
    ended = command.end()
    assert ended.code == 130, ended.text
    assert "srl resume" in ended.out


def measured(terminal: Terminal) -> list[int]:
    """The steps at which metrics were written; the last line may be half a line."""
    lines = (terminal.root / "run" / "metrics.jsonl").read_text().split("\n")[:-1]
    return [json.loads(line)["step"] for line in lines]


def test_a_run_is_resumed_killed_resumed_again_and_evaluated(
    terminal: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    root, folder = str(terminal.root), terminal.root / "run" / "checkpoints"
    assert terminal.train("CartPole-v1", "--steps", "30000", "--checkpoint-seconds", "0.5").end().code == 0
    first = json.loads((terminal.root / "run" / "status.json").read_text())
    assert main(["resume", "run", "--root", root]) == 1
    assert "already" in capsys.readouterr().err

    before = checkpoints.latest(folder)
    command = terminal.start("resume", "run", "--steps", "1000000000", "--root", root)
    status = command.wait(lambda status: status["version"], "the first status with a version")
    assert status["version"] >= first["version"]
    assert status["steps"] >= first["steps"]
    wait_for(lambda: checkpoints.latest(folder) != before, "a checkpoint")
    wait_for(lambda: measured(terminal)[-1] > first["steps"], "metrics of the steps since")
    command.signal(9)
    command.end()
    assert measured(terminal) == sorted(measured(terminal))
    saved = checkpoints.step_of(checkpoints.last_good(folder))
    assert saved > first["steps"]

    ended = terminal.run("resume", "run", "--steps", str(saved + 20_000), "--root", root)
    assert ended.code == 0, ended.text
    last = json.loads((terminal.root / "run" / "status.json").read_text())
    assert last["steps"] >= saved + 20_000
    assert last["version"] > first["version"]
    assert last["first_steps"] == saved
    assert 0.0 < last["seconds_to_first_update"] <= last["elapsed"]
    _, facts = checkpoints.read(checkpoints.latest(folder))
    assert facts["policies"]["policy"]["version"] == last["version"]

    assert main(["eval", "run", "--episodes", "10", "--json", "--root", root]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["episodes"] == 10
    assert 8 <= result["mean"] <= 500


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["doctor"]])
def test_help_and_doctor_answer(terminal: Terminal, arguments: list[str]) -> None:
    ended = terminal.run(*arguments)
    assert ended.code in (0, 1)
    assert ended.out
    assert "Traceback" not in ended.text
