"""A preempted host or worker (SIGTERM) ends in good order and is replaced; the best parameters are kept."""

from __future__ import annotations

import signal

import pytest
from support.terminals import GENTLE, Terminal, kill, wait_for, worker

LONG = ("--steps", "1000000000", "--journal")
EVALUATE = ("--eval-every", "100", "--eval-episodes", "1", "--eval-share", "0.5")


@pytest.mark.slow
def test_the_workers_of_a_preempted_host_move_to_another(terminal: Terminal) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG, *EVALUATE, "--hosts", "2")
    second = terminal.join(command, "second", "--cpus", "8")
    before = command.wait(lambda status: status["version"] > 3, "training")
    names = [one["name"] for one in before["workers"] if one["host"] == "second"]
    assert names

    second.signal(signal.SIGTERM)
    ended = second.end()
    assert ended.code == 0, ended.text
    assert "second left run run as requested" in ended.out
    moved = command.wait(
        lambda status: (
            all(worker(status, name)["host"] not in ("", "second") for name in names)
            and status["version"] > before["version"] + 3
        ),
        "its workers on the other host",
    )
    kill(worker(moved, "actors/0")["pid"], signal.SIGTERM)
    again = command.wait(
        lambda status: worker(status, "actors/0")["incarnation"] > worker(moved, "actors/0")["incarnation"],
        "a replacement of the preempted actor",
    )
    command.wait(lambda status: status["version"] > again["version"] + 3, "more updates")

    best = terminal.root / "run" / "checkpoints" / "best"
    wait_for(lambda: best.is_dir() and list(best.iterdir()), "the best parameters, from whichever host")
    command.signal(signal.SIGINT)
    assert command.end().code == 130
