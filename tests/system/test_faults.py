"""Faults in a running job: training goes on, no committed update is lost, and nothing is left behind."""

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support import faulty_environments
from support.terminals import GENTLE, Command, Terminal, kill, wait_for, wait_until_gone, worker

import srl
from srl.storage.update_journal import check, read, updates

BROKEN = faulty_environments.__file__
LONG = ("--steps", "1000000000")


def wait_for_recovery(command: Command, before: dict, replaced: str) -> dict:
    """Wait for the replacement and for an update that comes after it; versions and steps never go back."""
    old = worker(before, replaced)["incarnation"]
    seen = before["version"]

    def recovered(status: dict) -> bool:
        nonlocal seen
        assert status["version"] >= seen, f"version went back from {seen} to {status['version']}"
        seen = status["version"]
        found = worker(status, replaced)
        running = found["incarnation"] > old and found["state"] == "running"
        return running and status["version"] > before["version"] + 1

    after = command.wait(recovered, f"updates after the death of {replaced}")
    assert after["steps"] >= before["steps"]
    return after


def interrupt(command: Command) -> None:
    """End a run with Ctrl-C."""
    command.signal(signal.SIGINT)
    ended = command.end()
    assert ended.code == 130, ended.text
    assert "Traceback" not in ended.text, ended.text


@pytest.mark.parametrize(
    ("options", "victims"),
    [
        pytest.param(
            ("--inference", "inline", "--actors", "2", "--max-lag", "0"),
            ["actors/0", "trainers/0", "actors/1"],
            marks=pytest.mark.slow,
        ),
        pytest.param(("--inference", "host"), ["policies/0", "actors/0", "trainers/0"], marks=pytest.mark.slow),
        (("--inference", "remote"), ["policies/0", "actors/0", "trainers/0"]),
    ],
    ids=["inline", "host", "remote"],
)
def test_a_killed_worker_is_replaced_and_no_update_is_lost(
    terminal: Terminal, options: tuple[str, ...], victims: list[str]
) -> None:
    command = terminal.train(*GENTLE, *LONG, *options)
    before = command.wait_for_steps(500)
    for number, victim in enumerate(victims, 1):
        kill(worker(before, victim)["pid"])
        before = wait_for_recovery(command, before, victim)
        assert before["restarts"] == number
    assert "srl: actors/0 died: killed by SIGKILL" in terminal.call("logs", "latest", "actors/0").out
    interrupt(command)


def test_no_update_is_lost_when_the_zygote_dies(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG)
    before = command.wait_for_steps(200)
    command.zygote().kill()
    after = wait_for_recovery(command, before, "trainers/0")
    assert worker(after, "actors/0")["incarnation"] == 1
    interrupt(command)


def test_a_stopped_zygote_is_replaced_and_its_workers_stay(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG, "--actors", "2")
    before = command.wait_for_steps(200)
    zygote = command.zygote()
    zygote.suspend()
    kill(worker(before, "actors/0")["pid"])
    after = wait_for_recovery(command, before, "actors/0")
    assert worker(after, "trainers/0")["pid"] == worker(before, "trainers/0")["pid"]
    zygote.resume()
    kill(worker(after, "trainers/0")["pid"])
    wait_for_recovery(command, after, "trainers/0")
    interrupt(command)
    wait_until_gone(terminal.processes)


@pytest.mark.slow
def test_a_zygote_that_is_stopped_while_it_imports_modules_is_replaced(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG)
    wait_for(command.zygotes, "the zygote starts")
    command.zygote().suspend()
    status = command.wait_for_steps(200)
    assert "does not answer; it is replaced" in " ".join(status["messages"])
    interrupt(command)
    wait_until_gone(terminal.processes)


def test_when_one_of_two_trainers_is_killed_both_restart_from_the_last_update(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG, "--trainers", "2")
    before = command.wait_for_steps(200)
    kill(worker(before, "trainers/1")["pid"])
    after = wait_for_recovery(command, before, "trainers/1")
    assert worker(after, "trainers/0")["incarnation"] == 1
    kill(worker(after, "trainers/0")["pid"])
    wait_for_recovery(command, after, "trainers/1")
    interrupt(command)


def test_a_run_that_lost_workers_finishes_and_has_learned_every_step_once(terminal: Terminal) -> None:
    """Episodes do not end, so that each of the 64 places of a block holds a decision."""
    command = terminal.train(*GENTLE, "--env-arg", "length=1000000", "--steps", "2500", "--journal")
    for victim in ("trainers/0", "actors/0"):
        status = command.wait_for_steps(500)
        kill(worker(status, victim)["pid"])
        wait_for_recovery(command, status, victim)
    ended = command.end()
    assert ended.code == 0, ended.text
    assert "2 worker restarts" in ended.out, ended.out
    final = json.loads((terminal.root / "run" / "status.json").read_text())
    entries = updates(read(terminal.root / "run" / "journal.jsonl"))
    assert check(entries, final["max_lag"]) == []  # each update follows from its predecessor; no block was used twice
    assert [entry.update for entry in entries] == list(range(1, final["version"] + 1))
    assert sum(len(entry.samples) for entry in entries) * 4 * 16 == final["steps"] >= 2500


@pytest.mark.slow
def test_a_stopped_worker_is_replaced_and_a_waiting_one_is_not(terminal: Terminal) -> None:
    """The trainer waits for its batch longer than the hang timeout. Then the actor is stopped during a step, and the
    trainer while it waits."""
    slow = ("srl.testing.environments:Slow", "--env-arg", "seconds=0.025", "--lanes", "1", "--actors", "1")
    command = terminal.train(*slow, *LONG, "--recipe", "none", "--horizon", "100", "--hang-timeout", "2")
    before = command.wait(lambda status: status["version"] >= 1, "an update")
    assert before["restarts"] == 0
    for victim in ("actors/0", "trainers/0"):
        kill(worker(before, victim)["pid"], signal.SIGSTOP)
        before = wait_for_recovery(command, before, victim)
    assert before["restarts"] == 2, before["messages"]
    interrupt(command)


@pytest.mark.parametrize("zygote", [pytest.param("running", marks=pytest.mark.slow), "stopped"])
def test_all_processes_end_when_the_supervisor_is_killed(terminal: Terminal, zygote: str) -> None:
    command = terminal.train(*GENTLE, *LONG, "--inference", "host")
    command.wait_for_steps(1)
    children = psutil.Process(command.process.pid).children(recursive=True)
    assert len(children) >= 3
    if zygote == "stopped":
        command.zygote().suspend()
    command.signal(signal.SIGKILL)
    wait_until_gone(terminal.processes)
    wait_until_gone(terminal.leftovers)
    command.end()


STAGES: dict[str, Callable[[Terminal], object]] = {
    "importing": lambda terminal: len(terminal.processes()) >= 2,  # the zygote starts first
    "with a directory": lambda terminal: (terminal.root / "run").exists(),
    "with a control socket": lambda terminal: terminal.leftovers(),
    "with a zygote": lambda terminal: (terminal.root / "run" / "logs" / "zygote.log").exists(),
    "with workers": lambda terminal: len(terminal.processes()) >= 4,
    "with logs": lambda terminal: any((terminal.root / "run" / "logs").glob("*.log")),
}
"""Stages of a run that is not ready yet."""


def begin(terminal: Terminal, stage: str) -> Command:
    command = terminal.train(*GENTLE, *LONG)
    wait_for(lambda: STAGES[stage](terminal), f"a run {stage}")
    return command


@pytest.mark.parametrize("stage", [pytest.param("with a zygote", marks=pytest.mark.slow), "with workers"])
def test_all_processes_end_when_the_supervisor_is_killed_during_startup(terminal: Terminal, stage: str) -> None:
    command = begin(terminal, stage)
    command.signal(signal.SIGKILL)
    wait_until_gone(terminal.processes)
    wait_until_gone(terminal.leftovers)
    command.end()


@pytest.mark.parametrize(
    ("number", "stage"),
    [
        (signal.SIGINT, "importing"),
        pytest.param(signal.SIGINT, "with a control socket", marks=pytest.mark.slow),
        (signal.SIGINT, "with workers"),
        pytest.param(signal.SIGTERM, "with a directory", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "with a zygote", marks=pytest.mark.slow),
        (signal.SIGTERM, "with logs"),
    ],
)
def test_a_signal_ends_the_run_at_any_stage(terminal: Terminal, number: signal.Signals, stage: str) -> None:
    command = begin(terminal, stage)
    command.signal(number)
    ended = command.end()
    assert ended.code in (130, -number), ended
    wait_until_gone(terminal.processes)
    wait_until_gone(terminal.leftovers)


def test_a_second_ctrl_c_ends_the_run_at_once(terminal: Terminal, tmp_path: Path) -> None:
    """An actor that hangs in its environment does not react to a request to stop: after one Ctrl-C the run would wait
    for it, and then print its report."""
    arguments = ("--env-arg", "fault=hang", "--env-arg", f"once={tmp_path}", "--lanes", "1", "--actors", "1")
    command = terminal.train(f"{BROKEN}:make", *LONG, *arguments)
    wait_for(lambda: (tmp_path / "hang").exists(), "an actor that hangs")
    trainer = psutil.Process(worker(command.wait(lambda status: True, "a status"), "trainers/0")["pid"])
    command.signal(signal.SIGINT)
    wait_for(lambda: not trainer.is_running(), "the end of the trainer")
    command.signal(signal.SIGINT)
    ended = command.end()
    assert ended.code == 130, ended
    assert "srl resume" not in ended.out, ended.out


ESCAPING = """
import subprocess
from srl.testing.environments import Tracer

def make():
    # Their parent ends at once; they have no variable of the run, and sessions of their own.
    command = ["/bin/sh", "-c", "sleep {seconds} & exec setsid sleep {seconds} &"]
    subprocess.run(command, env={{}}, start_new_session=True)
    return Tracer()
"""
PLAIN = """
import subprocess
from srl.testing.environments import Tracer

def make():
    subprocess.Popen(["sleep", "{seconds}"])
    return Tracer()
"""


def sleeping(seconds: int) -> list[psutil.Process]:
    """Return the processes that sleep for this time, which no other test uses. One that has ended has no arguments."""
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", str(seconds)]]


@pytest.mark.parametrize(
    "code", [pytest.param(PLAIN, marks=pytest.mark.slow), ESCAPING], ids=["child", "own session, parent and variables"]
)
def test_processes_that_a_worker_started_end_with_it(terminal: Terminal, tmp_path: Path, code: str) -> None:
    seconds = 100_000 + os.getpid()
    (tmp_path / "simulator.py").write_text(code.format(seconds=seconds))
    command = terminal.train(f"{tmp_path}/simulator.py:make", *LONG, "--lanes", "2", "--actors", "2")
    before = command.wait_for_steps(100)
    per_actor = 2 * (2 if code == ESCAPING else 1)
    wait_for(lambda: len(sleeping(seconds)) == 2 * per_actor, "both actors")
    started = sleeping(seconds)
    psutil.Process(worker(before, "actors/0")["pid"]).kill()
    wait_for_recovery(command, before, "actors/0")
    assert len(set(started) & set(sleeping(seconds))) == per_actor, "those of the other actor"
    wait_for(lambda: len(sleeping(seconds)) == 2 * per_actor, "both actors again")
    interrupt(command)
    wait_until_gone(lambda: sleeping(seconds))


@pytest.mark.parametrize("stopped", [pytest.param(True, marks=pytest.mark.slow), False])
def test_processes_that_an_environment_started_end_with_an_inline_run(tmp_path: Path, stopped: bool) -> None:
    """Those that the user's script or a callback starts do not."""
    seconds = 200_000 + os.getpid()
    (tmp_path / "simulator.py").write_text(ESCAPING.format(seconds=seconds))
    own = [subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)]

    class Starts(srl.Callback):
        def on_update(self, record: object) -> None:
            if len(own) == 1:
                assert sleeping(seconds)
                own.append(subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True))
                if stopped:
                    os.kill(os.getpid(), signal.SIGINT)

    try:
        srl.train(
            f"{tmp_path}/simulator.py:make", scheduler="inline", steps=400, lanes=2, root=tmp_path, callbacks=[Starts()]
        )
        wait_until_gone(lambda: sleeping(seconds))
        assert [process.poll() for process in own] == [None, None]
    finally:
        for process in own:
            process.kill()
            process.wait()


def test_a_killed_evaluator_is_replaced_and_other_workers_are_not_affected(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG, "--eval-every", "500", "--eval-episodes", "1", "--eval-share", "0.5")

    def evaluations(status: dict) -> int:
        return sum(policy["evaluation"]["count"] for policy in status["policies"].values() if policy["evaluation"])

    status = command.wait(evaluations, "an evaluation")
    kill(worker(status, "evaluators/0")["pid"])
    again = command.wait(
        lambda now: worker(now, "evaluators/0")["incarnation"] and evaluations(now) > evaluations(status),
        "an evaluation of the next evaluator",
    )
    assert again["state"] == "running"
    assert worker(again, "trainers/0")["incarnation"] == worker(again, "actors/0")["incarnation"] == 0
    interrupt(command)
