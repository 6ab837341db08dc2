"""Data-parallel trainers on two hosts: added and removed during the run, equal at every update."""

from __future__ import annotations

import signal

import pytest
from support.terminals import GENTLE, Terminal, kill, worker

from srl.storage.update_journal import check, read, updates

LONG = ("--steps", "1000000000", "--journal", "--batch", "128")


@pytest.mark.slow
def test_trainers_on_two_hosts_are_scaled_and_stay_equal(terminal: Terminal) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG, "--hosts", "2")
    second = terminal.join(command, "second", "--cpus", "1")
    before = command.wait(lambda status: status["version"] > 3, "updates of one trainer")
    odd = terminal.run("scale", "run", "trainers=3")
    assert odd.code == 2
    assert "use one of 1, 2" in odd.err

    assert "trainers: 1 -> 2" in terminal.run("scale", "run", "trainers=+1").out
    two = command.wait(
        lambda status: len(status["workers"]) == 3 and worker(status, "trainers/1")["progress"] > 5,
        "updates of both",
    )
    assert worker(two, "trainers/0")["host"] != worker(two, "trainers/1")["host"]
    assert two["version"] > before["version"]
    kill(worker(two, "trainers/1")["pid"])
    again = command.wait(lambda status: worker(status, "trainers/1")["incarnation"] > 1, "a replacement")
    command.wait(lambda status: status["version"] > again["version"] + 3, "more updates")
    assert "trainers: 2 -> 1" in terminal.run("scale", "run", "trainers=1").out
    one = command.wait(lambda status: len(status["workers"]) == 2, "one trainer less")
    command.wait(lambda status: status["version"] > one["version"] + 3, "updates of the remaining trainer")

    command.signal(signal.SIGINT)
    assert command.end().code == 130
    assert second.end().code == 0
    entries = updates(read(terminal.root / "run" / "journal.jsonl"))
    assert check(entries, max_lag=1) == []
    assert {entry.rank for entry in entries} == {0, 1}
