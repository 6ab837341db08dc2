"""Runs over hosts. Both hosts are this machine, but they share no runtime directory and communicate over TCP."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

from support.terminals import GENTLE, Terminal, wait_for, worker

LONG = ("--steps", "1000000000")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def hosts(status: dict[str, Any]) -> dict[str, str]:
    return {worker["name"]: worker["host"] for worker in status["workers"]}


def test_a_run_over_two_hosts_survives_the_loss_of_one_and_leaves_nothing_behind(terminal: Terminal) -> None:
    shape = ("--hosts", "2", "--hosts-timeout", "600", "--actors", "3", "--inference", "host", "--policies", "1")
    command = terminal.train_over_hosts(*GENTLE, *LONG, *shape)
    assert_join_errors_say_what_is_wrong(terminal)
    second = terminal.join(command, "second", "--cpus", "3")
    status = command.wait_for_steps(500)
    worker_ids = hosts(status)
    assert len(set(worker_ids.values())) == 2, worker_ids
    assert all(worker["rss_mb"] > 1 for worker in status["workers"])
    secret = terminal.secret.read_bytes()
    assert_not_visible(terminal, secret)

    second.signal(signal.SIGKILL)
    second.end()
    after = command.wait(lambda status: "second" not in hosts(status).values(), "all workers are on one host")
    lost = sum(host == "second" for host in worker_ids.values())
    assert after["restarts"] >= lost
    assert "host second is lost" in " ".join(after["messages"])
    command.wait_for_steps(after["steps"] + 500)

    third = terminal.join(command, "third", "--cpus", "4")
    crowded = max(0, len(worker_ids) - len(os.sched_getaffinity(0)))
    command.wait(
        lambda status: list(hosts(status).values()).count("third") == crowded,
        "workers that shared the CPUs of the first host moved to the third",
    )
    assert "actors: 3 -> 4" in terminal.run("scale", "run", "actors=+1").out
    command.wait(lambda status: worker(status, "actors/3")["host"] == "third", "the new actor is on the new host")
    refused = terminal.run("scale", "run", "actors=+99")
    assert refused.code == 2
    assert "no host has room for" in refused.err

    assert terminal.run("stop", "run").code == 0
    assert command.end().code == 130
    assert third.end().code == 0
    logs = {path.name for path in (terminal.root / "run" / "logs").iterdir()} - {"agent.log"}
    assert any("actors" in name or "zygote" in name for name in logs) or not logs
    assert_not_in_files(terminal.root, secret)


def assert_not_visible(terminal: Terminal, secret: bytes) -> None:
    """The secret is in no command line and no environment."""
    for process in terminal.processes():
        for what in ("cmdline", "environ"):
            try:
                content = Path(f"/proc/{process.pid}/{what}").read_bytes()
            except OSError:
                continue
            assert secret not in content
            assert secret.hex().encode() not in content


def assert_not_in_files(root: Path, secret: bytes) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert secret not in content, path
            assert secret.hex().encode() not in content, path


def assert_join_errors_say_what_is_wrong(terminal: Terminal) -> None:
    without_secret = terminal.run("agent", f"127.0.0.1:{free_port()}", "--secret-file", "/nonexistent")
    assert without_secret.code == 2
    assert "no join secret at /nonexistent" in without_secret.err

    secret = terminal.secret
    wait_for(secret.exists, "the secret of the run")
    assert secret.stat().st_mode & 0o777 == 0o600
    gone = terminal.run("agent", f"127.0.0.1:{free_port()}", "--secret-file", str(secret), "--patience", "0")
    assert gone.code == 2
    assert "no controller at 127.0.0.1" in gone.err

    foreign = terminal.root.parent / "foreign"
    foreign.write_bytes(os.urandom(32))
    foreign.chmod(0o644)
    address = wait_for(terminal.controller_record, "an address to join")["cluster"]["address"]
    assert "mode 600" in terminal.run("agent", address, "--secret-file", str(foreign)).err
    foreign.chmod(0o600)
    wrong = terminal.run("agent", address, "--secret-file", str(foreign))
    assert wrong.code == 2
    assert "join secrets differ" in wrong.err


def test_a_run_whose_hosts_do_not_join_says_what_to_run_on_them(terminal: Terminal) -> None:
    ended = terminal.train_over_hosts(*GENTLE, *LONG, "--hosts", "2", "--hosts-timeout", "1").end()
    assert ended.code == 1, ended.text
    assert "of 2 hosts joined within 1 s" in ended.err
    assert "srl agent 127.0.0.1:" in ended.err
    assert json.loads((terminal.root / "run" / "config.json").read_text())["environment"] == GENTLE[0]


def test_resources_that_no_host_has_are_refused_at_once(terminal: Terminal) -> None:
    ended = terminal.train_over_hosts(*GENTLE, *LONG, "--actors", str((os.cpu_count() or 1) + 5)).end()
    assert ended.code == 1
    assert "no host has room for actors/" in ended.err
