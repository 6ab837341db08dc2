"""The command of a run over hosts is killed. Its workers go on, and another command takes them over."""

from __future__ import annotations

import signal

import psutil
import pytest
from support.terminals import GENTLE, Command, Terminal, kill, wait_for, wait_until_gone, worker

from srl.storage.update_journal import check, read

LONG = ("--steps", "1000000000", "--journal")


def attach(terminal: Terminal) -> Command:
    return terminal.start("attach", "run", "--root", str(terminal.root))


def agents(terminal: Terminal) -> list[psutil.Process]:
    """Agents that the commands of this terminal started."""
    return [process for process in terminal.processes() if "srl.schedulers.agent.join" in process.cmdline()]


def test_workers_outlive_their_controller_and_another_one_takes_them_over(terminal: Terminal) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG)
    before = command.wait(lambda status: status["steps"] > 500 and terminal.controller_record(), "training")
    twice = terminal.call("attach", "run", "--root", str(terminal.root))
    assert twice.code == 2
    assert "run is already running" in twice.err
    command.signal(signal.SIGKILL)
    command.end()

    second = attach(terminal)
    first = second.wait(lambda status: status["state"] == "running", "the takeover")
    assert first["steps"] >= before["steps"]
    after = second.wait(lambda status: status["version"] > first["version"] + 10, "more updates")
    assert after["restarts"] == 0
    assert after["steps"] > before["steps"]
    for name in ("actors/0", "trainers/0"):
        assert worker(after, name)["pid"] == worker(before, name)["pid"]
    assert "takeover: 2 workers continue, 0 are restarted" in after["messages"]

    kill(worker(after, "actors/0")["pid"])
    second.wait(lambda status: worker(status, "actors/0")["incarnation"] == 1, "a replacement of the killed actor")
    assert terminal.call("stop", "run").code == 0
    assert second.end().code == 130
    wait_until_gone(terminal.processes)
    assert check(read(terminal.root / "run" / "journal.jsonl"), max_lag=1) == []


@pytest.mark.slow
def test_workers_of_lost_hosts_restart_from_the_checkpoint_after_a_takeover(terminal: Terminal) -> None:
    shape = ("--hosts", "2", "--hosts-timeout", "600", "--checkpoint-seconds", "0.5")
    command = terminal.train_over_hosts(*GENTLE, *LONG[:2], *shape)
    second = terminal.join(command, "second", "--cpus", "2")
    saved = terminal.root / "run" / "checkpoints"
    before = command.wait(
        lambda status: status["version"] > 20 and terminal.controller_record() and any(saved.glob("*")), "training"
    )
    assert worker(before, "trainers/0")["host"] == "second"
    command.signal(signal.SIGKILL)
    command.end()
    second.signal(signal.SIGKILL)
    second.end()

    successor = attach(terminal)
    after = successor.wait(lambda status: status["version"] > before["version"] + 20, "updates on the remaining host")
    assert worker(after, "trainers/0")["incarnation"] > 100
    assert worker(after, "actors/0")["incarnation"] == 0

    (agent,) = agents(terminal)
    agent.kill()
    successor.wait(lambda status: status["version"] > after["version"] + 20, "updates after its restart")
    assert terminal.call("stop", "run").code == 0
    assert successor.end().code == 130


@pytest.mark.slow
def test_without_a_headless_time_everything_ends_with_the_controller(terminal: Terminal) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG, "--headless", "0")
    command.wait_for_steps(100)
    command.signal(signal.SIGKILL)
    command.end()
    wait_until_gone(terminal.processes)
    nothing = attach(terminal).end()
    assert nothing.code == 1
    assert "cannot take over" in nothing.err
    assert "srl resume run" in nothing.err
    terminal.run("ps")  # removes the sockets of the dead controller


@pytest.mark.slow
def test_a_takeover_fails_if_the_agents_are_gone(terminal: Terminal) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG)
    command.wait(lambda status: status["steps"] > 100 and terminal.controller_record(), "training")
    left = agents(terminal)
    command.signal(signal.SIGKILL)
    command.end()
    for agent in left:
        agent.kill()
    wait_for(lambda: not any(agent.is_running() for agent in left), "the end of the agents")
    ended = attach(terminal).end()
    assert ended.code == 1, ended.text
    assert "its agents are gone" in ended.err
