"""Kills in a running job: it goes on, nothing committed is lost, and nothing is left behind."""

import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support import faulty_environments
from support.terminals import GENTLE, Command, Terminal, kill, wait_for, wait_until_gone, worker

BROKEN = faulty_environments.__file__
LONG = ("--steps", "1000000000")


def samples_flow_again(command: Command, before: dict, replaced: str) -> dict:
    """Wait for the replacement and for an update that comes after it; versions and steps never go back."""
    old = worker(before, replaced)["incarnation"]
    seen = before["version"]

    def flowing(status: dict) -> bool:
        nonlocal seen
        assert status["version"] >= seen, f"version went back from {seen} to {status['version']}"
        seen = status["version"]
        place = worker(status, replaced)
        return place["incarnation"] > old and place["state"] == "running" and status["version"] > before["version"] + 1

    after = command.wait(flowing, f"samples flow again after the death of {replaced}")
    assert after["steps"] >= before["steps"]
    return after


def finish(command: Command) -> None:
    """End a run by hand, well."""
    command.signal(signal.SIGINT)
    ended = command.end()
    assert ended.code == 130, ended.text
    assert "Traceback" not in ended.text, ended.text


@pytest.mark.parametrize(
    ("options", "victims"),
    [
        (("--inference", "inline", "--actors", "2", "--max-lag", "0"), ["actors/0", "trainers/0", "actors/1"]),
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
        before = samples_flow_again(command, before, victim)
        assert before["restarts"] == number
    finish(command)


def test_the_death_of_the_zygote_costs_workers_not_updates(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG)
    before = command.wait_for_steps(200)
    command.zygote().kill()
    after = samples_flow_again(command, before, "trainers/0")
    assert worker(after, "actors/0")["incarnation"] == 1
    finish(command)


def test_when_one_of_two_trainers_is_killed_both_begin_again_from_the_last_update(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG, "--trainers", "2")
    before = command.wait_for_steps(200)
    kill(worker(before, "trainers/1")["pid"])
    after = samples_flow_again(command, before, "trainers/1")
    assert worker(after, "trainers/0")["incarnation"] == 1
    kill(worker(after, "trainers/0")["pid"])
    samples_flow_again(command, after, "trainers/1")
    finish(command)


def test_a_run_that_lost_workers_finishes_and_has_learned_every_step_once(terminal: Terminal) -> None:
    command = terminal.train("CartPole-v1", "--steps", "150000", "--scheduler", "processes")
    for victim in ("trainers/0", "actors/0"):
        status = command.wait_for_steps(10_000)
        kill(worker(status, victim)["pid"])
        samples_flow_again(command, status, victim)
    ended = command.end()
    assert ended.code == 0, ended.text
    assert "restarted workers 2" in ended.out, ended.out


@pytest.mark.slow
def test_a_frozen_worker_is_replaced_and_one_that_waits_is_not(terminal: Terminal) -> None:
    """A trainer waits longer for its batch. Then the actor is frozen in a step, and the trainer as it waits."""
    slow = ("srl.testing.environments:slow", "--env-arg", "seconds=0.025", "--lanes", "1", "--actors", "1")
    command = terminal.train(*slow, *LONG, "--recipe", "none", "--horizon", "100", "--hang-timeout", "2")
    before = command.wait(lambda status: status["version"] >= 1, "an update")
    assert before["restarts"] == 0
    for victim in ("actors/0", "trainers/0"):
        kill(worker(before, victim)["pid"], signal.SIGSTOP)
        before = samples_flow_again(command, before, victim)
    assert before["restarts"] == 2, before["messages"]
    finish(command)


def test_a_killed_supervisor_takes_everything_along(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG, "--inference", "host")
    command.wait_for_steps(1)
    children = psutil.Process(command.process.pid).children(recursive=True)
    assert len(children) >= 3
    command.signal(signal.SIGKILL)
    wait_until_gone(terminal.processes)
    wait_until_gone(terminal.leftovers)
    command.end()


STAGES: dict[str, Callable[[Terminal], object]] = {
    "as it loads": lambda terminal: len(terminal.processes()) >= 2,  # the zygote is begun first of all
    "with a directory": lambda terminal: (terminal.root / "run").exists(),
    "with a door": lambda terminal: terminal.leftovers(),
    "with a zygote": lambda terminal: (terminal.root / "run" / "logs" / "zygote.log").exists(),
    "with workers": lambda terminal: len(terminal.processes()) >= 4,
    "with logs": lambda terminal: any((terminal.root / "run" / "logs").glob("*.log")),
}
"""How far a run has come that is not ready yet; on each of these somebody may lose patience with it."""


def begin(terminal: Terminal, stage: str) -> Command:
    command = terminal.train(*GENTLE, *LONG)
    wait_for(lambda: STAGES[stage](terminal), f"a run {stage}")
    return command


@pytest.mark.parametrize("stage", ["with a zygote", "with workers"])
def test_a_supervisor_killed_while_it_starts_takes_everything_along(terminal: Terminal, stage: str) -> None:
    command = begin(terminal, stage)
    command.signal(signal.SIGKILL)
    wait_until_gone(terminal.processes)
    wait_until_gone(terminal.leftovers)
    command.end()


@pytest.mark.parametrize(
    ("number", "stage"),
    [
        (signal.SIGINT, "as it loads"),
        pytest.param(signal.SIGINT, "with a door", marks=pytest.mark.slow),
        (signal.SIGINT, "with workers"),
        (signal.SIGTERM, "with a directory"),
        pytest.param(signal.SIGTERM, "with a zygote", marks=pytest.mark.slow),
        (signal.SIGTERM, "with logs"),
    ],
)
def test_a_signal_at_any_moment_ends_the_run(terminal: Terminal, number: signal.Signals, stage: str) -> None:
    command = begin(terminal, stage)
    command.signal(number)
    ended = command.end()
    assert ended.code in (130, -number), ended
    wait_until_gone(terminal.processes)
    wait_until_gone(terminal.leftovers)


def test_a_second_ctrl_c_leaves_at_once(terminal: Terminal, tmp_path: Path) -> None:
    """Actors that hang in their environment do not hear that they shall stop: after one Ctrl-C the run would wait for
    them, and then report."""
    arguments = ("--env-arg", "fault=hang", "--env-arg", f"once={tmp_path}", "--lanes", "1", "--actors", "1")
    command = terminal.train(f"{BROKEN}:make", *LONG, *arguments)
    wait_for(lambda: (tmp_path / "hang").exists(), "an actor that hangs")
    trainer = psutil.Process(worker(command.wait(lambda status: True, "a status"), "trainers/0")["pid"])
    command.signal(signal.SIGINT)
    wait_for(lambda: not trainer.is_running(), "a trainer that was told to stop")
    command.signal(signal.SIGINT)
    ended = command.end()
    assert ended.code == 130, ended
    assert "srl resume" not in ended.out, ended.out


def test_what_a_worker_started_ends_with_it(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "simulator.py").write_text(
        "import subprocess\n"
        "from srl.testing.environments import Tracer\n"
        "def make():\n"
        "    subprocess.Popen(['sleep', '1000'])\n"
        "    return Tracer()\n"
    )
    command = terminal.train(f"{tmp_path}/simulator.py:make", *LONG, "--lanes", "2")
    before = command.wait_for_steps(100)
    actor = psutil.Process(worker(before, "actors/0")["pid"])
    simulators = actor.children()
    assert len(simulators) == 2
    actor.kill()
    samples_flow_again(command, before, "actors/0")
    wait_until_gone(lambda: [simulator for simulator in simulators if simulator.is_running()])
    finish(command)


def test_an_evaluator_that_dies_is_replaced_and_disturbs_nobody(terminal: Terminal) -> None:
    command = terminal.train(*GENTLE, *LONG, "--eval-every", "500", "--eval-episodes", "1", "--eval-share", "0.5")
    status = command.wait(lambda status: status["evaluation"], "an evaluation")
    kill(worker(status, "evaluators/0")["pid"])
    again = command.wait(
        lambda now: (
            worker(now, "evaluators/0")["incarnation"] and now["evaluation"]["count"] > status["evaluation"]["count"]
        ),
        "the next evaluator works",
    )
    assert again["state"] == "running"
    assert worker(again, "trainers/0")["incarnation"] == worker(again, "actors/0")["incarnation"] == 0
    finish(command)
