"""A flood of strangers at a controller's port: how much does it delay a host that joins?

    python benchmarks/flood.py --rate 2000 --seconds 5

A process opens connections that send nothing, garbage, a recorded knock, half of one, or the start of a TLS handshake,
at the given rate. Meanwhile hosts join one after the other: TCP, TLS, ticket, and the answer to their first message.
Prints the time of each join without and with the flood, the rate reached, and the controller's CPU, memory and
descriptors. Exits with code 1 if a host was delayed by a second or more.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import mmap
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from srl.schedulers.hosts.agent_connections import AgentConnections, listen_for_agents
from srl.schedulers.hosts.messages import AGENTS, AgentSettings, Join, JoinAccepted, Messages, codec, own_version
from srl.transports.join_ticket import Identity, JoinTicket
from srl.transports.tls import PREFIX, TlsTransport
from srl.transports.tls_channel import knock

PATIENCE = 30.0
MAX_DELAY = 1.0
OPEN = 400  # connections that a stranger keeps open


def attack(ticket: JoinTicket, rate: float, counter: mmap.mmap) -> None:
    """Open connections at this rate until killed, and count them."""
    host, port = ticket.address.rsplit(":", 1)
    recorded = knock(ticket, AGENTS)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # of TLS, without a knock
    kinds = (b"", os.urandom(300), recorded, recorded[:30], hello + os.urandom(300))
    opened: list[socket.socket] = []
    began, count = time.monotonic(), 0
    while True:
        while count < (time.monotonic() - began) * rate:
            sock = socket.socket()
            sock.setblocking(False)
            if sock.connect_ex((host, int(port))) not in (0, errno.EINPROGRESS):
                sock.close()
                continue
            opened.append(sock)
            if len(opened) > OPEN:
                opened.pop(0).close()
            late = opened[-min(len(opened), 20)]  # connected by now
            with contextlib.suppress(OSError):
                late.send(kinds[count % len(kinds)])
            count += 1
            counter[:8] = count.to_bytes(8, "little")
        time.sleep(0.002)


def in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def serve(agents: AgentConnections) -> None:
    while True:
        agents.poll(0.25)
        for host in list(agents.hosts.values()):
            if len(agents.hosts) > 10:
                agents.hosts.pop(host.name).channel.close()


def join(ticket: JoinTicket) -> float:
    """Return the seconds that a host needs to join. A host that is turned away tries again, as agents do."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        channel = None
        try:
            transport = TlsTransport(ticket, AGENTS, codec=codec, connect_wait=3.0)
            channel = transport.connect(f"{PREFIX}{ticket.address}", Messages)
            channel.send(Join("host", own_version(), time.monotonic_ns(), 1.0, 0.0, 1000))
            while time.monotonic() - began < PATIENCE:
                received = channel.receive()
                if received is not None and isinstance(received[0], JoinAccepted):
                    return time.monotonic() - began
                channel.flush()
                time.sleep(0.0005)
        except ConnectionError:
            time.sleep(0.1)
        finally:
            if channel is not None:
                channel.close()
    raise TimeoutError(f"no host joined within {PATIENCE:.0f} s")


def measure(ticket: JoinTicket, seconds: float) -> list[float]:
    taken, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        taken.append(join(ticket))
        time.sleep(0.1)
    return taken


def describe(what: str, taken: list[float]) -> str:
    median, longest = 1e3 * statistics.median(taken), 1e3 * max(taken)
    return f"{what}: {len(taken)} joins, median {median:.1f} ms, longest {longest:.1f} ms"


def flood(rate: float, seconds: float) -> tuple[list[float], list[float]]:
    """Return the times of joins without and with a flood."""
    with tempfile.TemporaryDirectory() as directory:
        identity = Identity.create(Path(directory) / "controller.pem")
        listener, join_file = listen_for_agents("flood", identity, Path(directory) / "join")
        agents = AgentConnections(AgentSettings("flood", bytes(32)), ["policy"], listener)
        ticket, counter = join_file.ticket(), mmap.mmap(-1, 8)
        children = [in_child(lambda: serve(agents))]
        try:
            controller = psutil.Process(children[0])
            calm = measure(ticket, seconds)
            print(describe("without strangers", calm), flush=True)
            memory, cpu, began = controller.memory_info().rss, sum(controller.cpu_times()[:2]), time.monotonic()
            children.append(in_child(lambda: attack(ticket, rate, counter)))
            busy = measure(ticket, seconds)
            reached = int.from_bytes(counter[:8], "little") / (time.monotonic() - began)
            print(describe(f"with {reached:,.0f} strangers per second", busy))
            used = (sum(controller.cpu_times()[:2]) - cpu) / (time.monotonic() - began)
            grown = (controller.memory_info().rss - memory) / 2**20
            print(f"controller: {100 * used:.0f} % of a core, {grown:+.1f} MB, {controller.num_fds()} descriptors")
            return calm, busy
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            agents.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=2000.0, help="strangers per second")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each of the two parts")
    options = parser.parse_args()
    without, during = flood(options.rate, options.seconds)
    sys.exit(max(during) - statistics.median(without) >= MAX_DELAY)
