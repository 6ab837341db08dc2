"""Runs over hosts. Both hosts are this machine, but they share no runtime directory and communicate over TCP."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from support.terminals import GENTLE, Terminal, wait_for, wait_until_gone, worker

from srl.transports.join_ticket import Identity, JoinTicket, read_ticket

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
    secret = read_ticket(terminal.join_file).proof
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
    assert "actors: 3 -> 4" in terminal.call("scale", "run", "actors=+1").out
    command.wait(lambda status: worker(status, "actors/3")["host"] == "third", "the new actor is on the new host")
    refused = terminal.call("scale", "run", "actors=+99")
    assert refused.code == 2
    assert "no host has room for" in refused.err

    assert terminal.call("stop", "run").code == 0
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
            assert not any(form in content for form in forms(secret))


def assert_not_in_files(root: Path, secret: bytes) -> None:
    """Nothing that admits hosts is left when the run has ended."""
    for path in root.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in forms(secret)), path
            assert b"PRIVATE KEY" not in content, path


def forms(secret: bytes) -> tuple[bytes, ...]:
    return secret, secret.hex().encode(), base64.b64encode(secret)


def assert_join_errors_say_what_is_wrong(terminal: Terminal) -> None:
    missing = terminal.run("agent", "/nonexistent", "--patience", "0")
    assert missing.code == 2
    assert "no join file at /nonexistent" in missing.err

    file = terminal.join_file
    wait_for(file.exists, "the join file of the run")
    for private in (file, file.with_name("controller.pem")):
        assert private.stat().st_mode & 0o777 == 0o600
    elsewhere = f"127.0.0.1:{free_port()}"
    gone = terminal.run("agent", str(file), "--address", elsewhere, "--patience", "0")
    assert gone.code == 2
    assert f"no controller at {elsewhere}" in gone.err

    ticket = read_ticket(file)
    mine = Identity(file.with_name("controller.pem"))
    expired = write_ticket(terminal, replace(ticket, expires=1000, proof=mine.proof(1000)))
    assert "the join file has expired" in terminal.run("agent", expired).err
    foreign = Identity.create(terminal.root.parent / "foreign.pem")
    wrong = write_ticket(terminal, replace(ticket, proof=foreign.proof(ticket.expires)))
    assert "not one of this run" in terminal.run("agent", wrong).err
    impostor = write_ticket(terminal, replace(ticket, fingerprint=foreign.fingerprint))
    refused = terminal.run("agent", impostor)
    assert refused.code == 2
    assert "has another certificate" in refused.err
    Path(impostor).chmod(0o644)
    assert "mode 600" in terminal.run("agent", impostor).err


def write_ticket(terminal: Terminal, ticket: JoinTicket) -> str:
    path = terminal.root.parent / "copy"
    path.touch(mode=0o600)
    path.write_bytes(msgspec.json.encode(ticket))
    return str(path)


def test_a_run_whose_hosts_do_not_join_says_what_to_run_on_them(terminal: Terminal) -> None:
    ended = terminal.train_over_hosts(*GENTLE, *LONG, "--hosts", "2", "--hosts-timeout", "1").end()
    assert ended.code == 1, ended.text
    assert "of 2 hosts joined within 1 s" in ended.err
    assert f"srl agent {terminal.join_file}" in ended.err
    assert json.loads((terminal.root / "run" / "config.json").read_text())["environment"] == GENTLE[0]


@pytest.mark.slow
def test_resources_that_no_host_has_are_refused_at_once(terminal: Terminal) -> None:
    ended = terminal.train_over_hosts(*GENTLE, *LONG, "--actors", str((os.cpu_count() or 1) + 5)).end()
    assert ended.code == 1
    assert "no host has room for actors/" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize("workers_too", [False, True])
def test_a_frozen_agent_is_lost_within_seconds_and_fenced(terminal: Terminal, workers_too: bool) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG, "--hosts", "2", "--hosts-timeout", "600", "--actors", "3")
    second = terminal.join(command, "second", "--cpus", "3")
    command.wait_for_steps(500)
    agent = psutil.Process(second.process.pid)
    processes = [agent, *(agent.children(recursive=True) if workers_too else ())]
    workers = [process for process in agent.children(recursive=True) if process not in agent.children()]
    assert workers
    for process in processes:
        process.suspend()
    began = time.monotonic()
    lost = command.wait(lambda status: "its agent is frozen" in " ".join(status["messages"]), "the host is lost")
    print(f"lost after {time.monotonic() - began:.1f} s")
    command.wait(lambda status: "second" not in hosts(status).values(), "its workers are replaced")
    command.wait_for_steps(lost["steps"] + 500)
    if not workers_too:
        wait_until_gone(lambda: [process for process in workers if process.is_running()])  # they need no agent for this
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
    wait_until_gone(lambda: [process for process in workers if process.is_running()])
    command.wait(lambda status: " ".join(status["messages"]).count("host second joined") == 2, "it joins again")
    assert terminal.call("stop", "run").code == 0
    assert command.end().code == 130
    assert second.end().code == 0


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="a time namespace needs root")
@pytest.mark.parametrize("seconds", [100_000, -3_000])
def test_clocks_of_hosts_may_differ(terminal: Terminal, seconds: int) -> None:
    command = terminal.train_over_hosts(*GENTLE, *LONG, "--hosts", "2", "--hosts-timeout", "600", "--actors", "3")
    clock = ("--monotonic", str(seconds), "--boottime", str(seconds))
    second = terminal.join(command, "second", "--cpus", "3", enter=("unshare", "--time", "--fork", *clock))
    first = command.wait_for_steps(500)
    assert "second" in hosts(first).values()
    began = time.monotonic()
    later = command.wait(lambda _: time.monotonic() > began + 20.0, "longer than all timeouts of hosts and workers")
    assert later["restarts"] == 0
    assert "lost" not in " ".join(later["messages"])
    assert later["steps"] > first["steps"]
    assert all(0.0 <= share <= 1.0 for worker in later["workers"] for share in worker["busy"].values())
    assert terminal.call("stop", "run").code == 0
    assert command.end().code == 130
    assert second.end().code == 0
