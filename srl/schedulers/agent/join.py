"""Joining a run: a host connects to the controller, reports its resources, and becomes an agent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import psutil

from srl.api.transport import ChannelClosed
from srl.base.process import signal_on_parent_death
from srl.schedulers.agent.agent import Agent
from srl.schedulers.hosts.messages import AGENTS, Join, JoinAccepted, Messages, Refused, codec, own_version
from srl.schedulers.local.zygote_launch import start_early
from srl.transports.join_ticket import NEVER, JoinTicket
from srl.transports.tls import PREFIX, TlsTransport
from srl.transports.tls_channel import JoinFileRefused

ANSWER_SECONDS = 30.0  # long, because a controller that takes over a run readmits the run's hosts first
RETRY_SECONDS = 0.5
CONNECT_SECONDS = 3.0
REJOIN_CONNECT_SECONDS = 1.0
"""Connect timeout for a controller that was reachable before. It is short because the kernel retries at growing
intervals: once the network is back, a new attempt succeeds sooner."""
REFUSED = 2  # exit code of an agent that the controller refused


class JoinError(ConnectionError):
    """The controller refused this host; the message says why."""


class NoController(JoinError):
    """No controller can be reached at the address."""


@dataclass(frozen=True)
class HostResources:
    """Resources that a host offers to a run; None stands for all it has."""

    host: str = ""
    cpus: float | None = None
    gpus: float | None = None
    memory_mb: int | None = None
    labels: tuple[str, ...] = ()

    def join_message(self) -> Join:
        cpus = float(len(os.sched_getaffinity(0))) if self.cpus is None else self.cpus
        memory_mb = psutil.virtual_memory().total >> 20 if self.memory_mb is None else self.memory_mb
        host = self.host or socket.gethostname().split(".")[0]
        gpus = float(_num_gpus()) if self.gpus is None else self.gpus
        return Join(host, own_version(), time.monotonic_ns(), cpus, gpus, memory_mb, list(self.labels))


def _num_gpus() -> int:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([device for device in visible.split(",") if device.strip()])
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


def join(ticket: JoinTicket, resources: HostResources, connect_seconds: float = CONNECT_SECONDS) -> Agent:
    """Join a run, and return the agent. Raises JoinError."""
    address = ticket.address
    transport = TlsTransport(ticket, AGENTS, codec=codec, connect_wait=connect_seconds, connect_timeout=connect_seconds)
    try:
        channel = transport.connect(f"{PREFIX}{address}", Messages)
    except ChannelClosed as error:
        raise NoController(f"no controller at {address}: {error}") from error
    try:
        channel.send(resources.join_message())
        deadline = time.monotonic() + ANSWER_SECONDS
        while (received := channel.receive()) is None:
            if time.monotonic() > deadline:
                raise JoinError(f"{address} did not answer within {ANSWER_SECONDS:.0f} s; is it the address of a run?")
            channel.flush()
            select.select([channel], [], [], 0.1)
        message = received[0]
        if isinstance(message, Refused):
            raise JoinError(message.text)
        if not isinstance(message, JoinAccepted):
            raise JoinError(f"{address} is not a controller: it answered a join with {type(message).__name__}")
        again = TlsTransport(_own(ticket, message.settings.proof), AGENTS, codec=codec)
        connect = partial(again.connect, channel.peer, Messages)
        return Agent(channel, message, channel.local_host, resources.join_message, connect)
    except JoinFileRefused as error:
        channel.close()
        raise JoinError(str(error)) from error
    except ChannelClosed as error:  # the controller ended, or made room for other connections
        channel.close()
        raise NoController(f"no controller at {address}: {error}") from error
    except BaseException:
        channel.close()
        raise


def keep_joining(
    read: Callable[[], JoinTicket], resources: HostResources, patience: float, log: Callable[[str], None]
) -> int:
    """Serve until the run ends, rejoining when the connection is lost, and return the exit code. `read` is called
    before each attempt, so that an agent may start before its run and finds a controller that moved. Raises JoinError
    if the controller cannot be reached for `patience` seconds, or refuses this host."""
    deadline, connect_seconds = time.monotonic() + patience, CONNECT_SECONDS
    own: JoinTicket | None = None
    while True:
        start_early()  # it imports torch while this host waits for the controller
        try:
            ticket = _current_ticket(read, own)
            agent = join(ticket, resources, connect_seconds)
        except NoController:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
            continue
        own = _own(ticket, agent.proof)
        log(f"{agent.host} joined run {agent.run}")
        with leaving_at_sigterm(agent):
            served = agent.serve()
        if served:
            log(f"{agent.host} left run {agent.run} as requested" if agent.leaving else f"run {agent.run} has ended")
            return 0
        log(f"lost the controller of {agent.run}; ended its workers on this host and trying to join again")
        deadline, connect_seconds = time.monotonic() + patience, REJOIN_CONNECT_SECONDS


def _own(ticket: JoinTicket, proof: bytes) -> JoinTicket:
    """Return the ticket of a host of the run, which does not expire."""
    return replace(ticket, expires=NEVER, proof=proof)


def _current_ticket(read: Callable[[], JoinTicket], own: JoinTicket | None) -> JoinTicket:
    """Return the ticket in the join file. A host of the run keeps its own."""
    try:
        ticket = read()
    except FileNotFoundError as error:
        if own is None:
            raise NoController(f"no join file at {error.filename}; `srl train` prints the path of its own") from error
        return own
    return ticket if own is None or own.fingerprint != ticket.fingerprint else replace(own, address=ticket.address)


@contextlib.contextmanager
def leaving_at_sigterm(agent: Agent) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    before = signal.signal(signal.SIGTERM, lambda *_: agent.leave())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class AgentInput(msgspec.Struct):
    """Input of an agent process, passed on standard input because command-line arguments are visible to other users."""

    ticket: JoinTicket
    host: str = ""
    cpus: float | None = None
    gpus: float | None = None
    outlives_parent: bool = False


def main() -> None:
    """Run an agent that was started by a controller or an engine."""
    given = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=AgentInput)
    if not given.outlives_parent:
        signal_on_parent_death(signal.SIGTERM)
    try:
        agent = join(given.ticket, HostResources(given.host, given.cpus, given.gpus))
    except JoinError as error:
        print(f"srl agent: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, NoController) else REFUSED)
    with leaving_at_sigterm(agent):
        served = agent.serve()
    sys.exit(0 if served else 1)


if __name__ == "__main__":
    main()
