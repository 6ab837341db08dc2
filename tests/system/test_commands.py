"""The commands from another terminal while a run goes on, and what can be done with it afterwards."""

import json

import pytest
from terminals import Terminal, wait_for, worker

from srl.runs import checkpoints

LONG = ("--steps", "1000000000")


def test_ps_scale_and_stop_reach_a_run_from_another_terminal(terminal: Terminal) -> None:
    assert "no run is going on" in terminal.run("ps").out
    command = terminal.train("CartPole-v1", *LONG, "--actors", "1", "--inference", "host", name="mine")
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
    after = command.wait_for_steps(status["steps"] + 20_000)
    assert after["restarts"] == 0

    for change, texts in {
        "actor=2": ("no group 'actor'", "actors"),
        "trainers=2": ("cannot be resized",),
        "actors=0": ("at least one",),
        "actors=99999": ("at most",),
        "actors": ("GROUP=NUMBER",),
    }.items():
        ended = terminal.run("scale", "mine", change)
        assert ended.code == 2
        for text in texts:
            assert text in ended.err, ended.err
    assert "no single run 'mime'" in terminal.run("scale", "mime", "actors=2").err

    taken = terminal.run("resume", "mine", "--root", str(terminal.root))
    assert taken.code == 2, taken.text
    assert "going on" in taken.err
    stopped = terminal.run("stop", "mine")
    assert (stopped.code, stopped.out) == (0, "mine has stopped\n")
    ended = command.end()
    assert ended.code == 130, ended.text
    assert "srl resume" in ended.out


def test_a_run_is_resumed_killed_resumed_again_and_evaluated(terminal: Terminal) -> None:
    root, folder = str(terminal.root), terminal.root / "run" / "checkpoints"
    assert terminal.train("CartPole-v1", "--steps", "30000", "--checkpoint-seconds", "0.5").end().code == 0
    first = json.loads((terminal.root / "run" / "status.json").read_text())
    done = terminal.run("resume", "run", "--root", root)
    assert (done.code, "already" in done.err) == (1, True), done.text

    command = terminal.start("resume", "run", "--steps", "60000", "--root", root)
    status = command.wait(lambda status: status["version"], "the first status with a version")
    assert status["version"] >= first["version"]
    assert status["steps"] >= first["steps"]
    ended = command.end()
    assert ended.code == 0, ended.text
    last = json.loads((terminal.root / "run" / "status.json").read_text())
    assert last["steps"] >= 60000
    assert last["version"] > first["version"]
    steps = [json.loads(line)["step"] for line in (terminal.root / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    _, facts = checkpoints.read(checkpoints.latest(folder))
    assert facts["policies"]["policy"]["version"] == last["version"]

    command = terminal.start("resume", "run", "--steps", "1000000000", "--root", root)
    before = checkpoints.latest(folder)
    wait_for(lambda: checkpoints.latest(folder) != before, "a checkpoint")
    command.signal(9)
    command.end()
    steps = checkpoints.step_of(checkpoints.last_good(folder))
    assert steps > last["steps"]
    ended = terminal.run("resume", "run", "--steps", str(steps + 20_000), "--root", root)
    assert ended.code == 0, ended.text

    evaluated = terminal.run("eval", "run", "--episodes", "10", "--json", "--root", root)
    assert evaluated.code == 0, evaluated.text
    result = json.loads(evaluated.out)
    assert result["episodes"] >= 10
    assert 8 <= result["mean"] <= 500


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["doctor"]])
def test_help_and_doctor_answer(terminal: Terminal, arguments: list[str]) -> None:
    ended = terminal.run(*arguments)
    assert ended.code in (0, 1)
    assert ended.out
    assert "Traceback" not in ended.text
