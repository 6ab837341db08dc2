"""Faults that `srl chaos` injects into the connections and processes of a host."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest
from support.waiting import wait_for

from srl.api.control import InjectFault
from srl.base.meter import Counter, Meter
from srl.workers.fault_injection import SLOW_LINK_RATE, SO_MAX_PACING_RATE, Faults, freeze


@pytest.fixture
def connection() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        with accepted:
            yield client


def rate(sock: socket.socket) -> int:
    return sock.getsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE)


def test_a_slow_link_limits_each_connection_until_it_ends(connection: socket.socket) -> None:
    before, faults = rate(connection), Faults(meter := Meter.unshared())
    faults.add(InjectFault("slow-link", 60.0))
    faults.apply()
    assert rate(connection) == SLOW_LINK_RATE
    assert meter.get(Counter.DISTURBED_CONNECTIONS) >= 2  # both ends are in this process
    faults.add(InjectFault("slow-link", -1.0))
    faults.apply()
    assert rate(connection) == before
    assert not faults


def test_a_partition_closes_each_connection(connection: socket.socket) -> None:
    faults = Faults(meter := Meter.unshared())
    faults.add(InjectFault("partition", 60.0))
    faults.apply()
    assert connection.recv(1) == b""
    assert meter.get(Counter.DISTURBED_CONNECTIONS) >= 1


def test_frozen_processes_continue_after_some_seconds() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        process = psutil.Process(child.pid)
        freeze([child.pid], 0.2)
        wait_for(lambda: process.status() == psutil.STATUS_STOPPED, "the process to be frozen")
        wait_for(lambda: process.status() == psutil.STATUS_SLEEPING, "the process to continue")
        child.kill()


def test_a_process_can_freeze_itself() -> None:
    code = "import os; from srl.workers.fault_injection import freeze; freeze([os.getpid()], 0.1); print('continued')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "continued\n"
