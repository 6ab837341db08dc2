"""Who is asked to leave (SIGTERM) leaves in good order, and its place is filled; the best parameters are kept."""

from __future__ import annotations

import signal

import pytest
from support.terminals import GENTLE, Terminal, kill, wait_for, worker

LONG = ("--steps", "1000000000", "--journal")
EVALUATE = ("--eval-every", "100", "--eval-episodes", "1", "--eval-share", "0.5")


@pytest.mark.slow
def test_a_host_that_is_preempted_hands_its_work_over(terminal: Terminal) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG, *EVALUATE, "--hosts", "2")
    second = terminal.join(command, "second", "--cpus", "8")
    before = command.wait(lambda status: status["version"] > 3, "it learns")
    names = [one["name"] for one in before["workers"] if one["host"] == "second"]
    assert names

    second.signal(signal.SIGTERM)
    ended = second.end()
    assert ended.code == 0, ended.text
    assert "second left run as it was asked to" in ended.out
    moved = command.wait(
        lambda status: (
            all(worker(status, name)["host"] not in ("", "second") for name in names)
            and status["version"] > before["version"] + 3
        ),
        "its workers go on elsewhere",
    )
    kill(worker(moved, "actors/0")["pid"], signal.SIGTERM)
    again = command.wait(
        lambda status: worker(status, "actors/0")["incarnation"] > worker(moved, "actors/0")["incarnation"],
        "an actor that was asked to leave is replaced",
    )
    command.wait(lambda status: status["version"] > again["version"] + 3, "it goes on")

    best = terminal.root / "run" / "checkpoints" / "best"
    wait_for(lambda: best.is_dir() and list(best.iterdir()), "the best parameters are kept, wherever they were found")
    command.signal(signal.SIGINT)
    assert command.end().code == 130
