"""A run over two hosts, in short: both are this machine, but share no runtime directory and talk over TCP."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from terminals import Command, Terminal, wait_for, worker

LONG = ("--steps", "1000000000", "--lanes", "8", "--horizon", "16")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


def train(terminal: Terminal, address: str, *arguments: str) -> Command:
    secret = str(terminal.root.parent / "secret")
    return terminal.train(
        "CartPole-v1", *LONG, "--scheduler", "hosts", "--bind", address, "--secret-file", secret, *arguments
    )


def agent(terminal: Terminal, address: str, name: str, *arguments: str) -> Command:
    secret = terminal.root.parent / "secret"
    wait_for(secret.exists, "the run made a secret")
    return terminal.start("agent", address, "--host", name, "--secret-file", str(secret), *arguments)


def hosts(status: dict[str, Any]) -> dict[str, str]:
    return {worker["name"]: worker["host"] for worker in status["workers"]}


def test_a_run_over_two_hosts_goes_on_when_one_is_lost_and_leaves_nothing(terminal: Terminal, address: str) -> None:
    command = train(terminal, address, "--hosts", "2", "--actors", "3", "--inference", "host", "--policies", "1")
    second = agent(terminal, address, "second", "--cpus", "3")
    status = command.wait(lambda status: status["steps"] > 2000, "it learns")
    places = hosts(status)
    assert len(set(places.values())) == 2, places
    assert all(worker["rss_mb"] > 1 for worker in status["workers"])
    secret = (terminal.root.parent / "secret").read_bytes()
    assert_not_told(terminal, secret)

    second.signal(signal.SIGKILL)
    second.end()
    after = command.wait(lambda status: "second" not in hosts(status).values(), "all workers are on one host")
    lost = sum(host == "second" for host in places.values())
    assert after["restarts"] >= lost
    assert "host second is lost" in " ".join(after["messages"])
    command.wait_for_steps(after["steps"] + 2000)

    third = agent(terminal, address, "third")
    command.wait(lambda status: "host third joined" in " ".join(status["messages"]), "a host joined")
    assert "actors: 3 -> 4" in terminal.run("scale", "run", "actors=+1").out
    command.wait(lambda status: worker(status, "actors/3")["host"] == "third", "the new actor is on the new host")
    too_many = terminal.run("scale", "run", "actors=+99")
    assert too_many.code == 2
    assert "no room is left" in too_many.err

    began = time.monotonic()
    assert terminal.run("stop", "run").code == 0
    assert command.end().code == 130
    assert third.end().code == 0
    assert time.monotonic() - began < 20
    logs = {path.name for path in (terminal.root / "run" / "logs").iterdir()} - {"agent.log"}
    assert any("actors" in name or "zygote" in name for name in logs) or not logs
    assert_not_in_files(terminal.root, secret)


def assert_not_told(terminal: Terminal, secret: bytes) -> None:
    """No process shows it to others of this machine."""
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


def test_what_keeps_hosts_from_joining_is_said_within_seconds(terminal: Terminal, address: str) -> None:
    nobody = terminal.start("agent", f"127.0.0.1:{free_port()}", "--secret-file", "/nonexistent").end()
    assert nobody.code == 2
    assert "no join secret at /nonexistent" in nobody.err

    command = train(terminal, address, "--hosts", "2", "--hosts-timeout", "600", "--actors", "1")
    secret = terminal.root.parent / "secret"
    wait_for(secret.exists, "the run made a secret")
    assert secret.stat().st_mode & 0o777 == 0o600
    gone = terminal.start("agent", f"127.0.0.1:{free_port()}", "--secret-file", str(secret), "--patience", "0").end()
    assert gone.code == 2
    assert "no controller at 127.0.0.1" in gone.err

    foreign = terminal.root.parent / "foreign"
    foreign.write_bytes(os.urandom(32))
    foreign.chmod(0o644)
    loose = terminal.start("agent", address, "--secret-file", str(foreign)).end()
    assert "mode 600" in loose.err
    foreign.chmod(0o600)
    command.wait(lambda status: "joined" in " ".join(status["messages"]), "the run listens")
    wrong = terminal.start("agent", address, "--secret-file", str(foreign)).end()
    assert wrong.code == 2
    assert "join secrets differ" in wrong.err

    command.signal(signal.SIGINT)
    assert command.end().code == 130


def test_a_run_whose_hosts_do_not_come_says_what_to_run_on_them(terminal: Terminal, address: str) -> None:
    ended = train(terminal, address, "--hosts", "2", "--hosts-timeout", "1", "--actors", "1").end()
    assert ended.code == 1, ended.text
    assert "of 2 hosts joined within 1 s" in ended.err
    assert f"srl agent {address}" in ended.err
    assert json.loads((terminal.root / "run" / "config.json").read_text())["environment"] == "CartPole-v1"


def test_resources_that_no_host_has_are_refused_at_once(terminal: Terminal, address: str) -> None:
    ended = train(terminal, address, "--actors", str(psutil.cpu_count() + 5)).end()
    assert ended.code == 1
    assert "no room is left for actors/" in ended.err
