"""How a host comes to serve a run: it dials the controller, says what it offers, and becomes an agent."""

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
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil

from srl.api.transport import ChannelClosed, PeerSilent
from srl.base.process import signal_on_parent_death
from srl.schedulers.agent.agent import Agent
from srl.schedulers.hosts.messages import AGENTS, Join, Messages, Refused, Welcome, codec, own_version
from srl.transports.tcp import PREFIX, TcpTransport

JOIN_SECONDS = 30.0
"""For an answer: a controller that takes a run over lets the run's own hosts in first."""
RETRY_SECONDS = 0.5
REACH_SECONDS = 3.0
AGAIN_SECONDS = 1.0
"""The same for a controller that was there before: the kernel repeats itself ever more slowly, a new call is heard
sooner when the network is back."""
REDIAL_PATIENCE = 0.1
REFUSED = 2
"""The exit code of an agent that was not let in."""


class JoinError(ConnectionError):
    """The controller does not want this host; the message says why."""


class Unreachable(JoinError):
    """Nobody is there."""


@dataclass(frozen=True)
class Offer:
    """What this host gives to a run. None: all that it has."""

    host: str = ""
    cpus: float | None = None
    gpus: float | None = None
    memory_mb: int | None = None
    labels: tuple[str, ...] = ()

    def join(self) -> Join:
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


def join(address: str, secret: bytes, offer: Offer, reach: float = REACH_SECONDS) -> Agent:
    """Become an agent of the run whose controller listens at `address` (`host:port`). Raises JoinError."""
    where = f"{PREFIX}{address.removeprefix(PREFIX)}"
    transport = TcpTransport(secret, AGENTS, encrypt=True, codec=codec, connect_wait=reach, connect_timeout=reach)
    try:
        channel = transport.connect(where, Messages)
    except ChannelClosed as error:
        raise Unreachable(f"no controller at {address}: {error}") from error
    try:
        channel.send(offer.join())
        deadline = time.monotonic() + JOIN_SECONDS
        while (received := channel.receive()) is None:
            if time.monotonic() > deadline:
                raise JoinError(f"{address} did not answer within {JOIN_SECONDS:.0f} s: is it a controller of srl?")
            channel.flush()
            select.select([channel], [], [], 0.1)
        message = received[0]
        if isinstance(message, Refused):
            raise JoinError(message.text)
        if not isinstance(message, Welcome):
            raise JoinError(f"{address} does not behave as a controller")
        again = TcpTransport(secret, AGENTS, encrypt=True, codec=codec, connect_wait=REDIAL_PATIENCE)
        return Agent(channel, message, channel.local_host, offer.join, lambda: again.connect(where, Messages))
    except PeerSilent as error:
        channel.close()
        raise Unreachable(f"no controller at {address}: {error}") from error
    except ChannelClosed as error:
        channel.close()
        raise JoinError(
            f"{address} let us not in: {error}. The join secrets differ, or the run is over; --secret-file must be a "
            "copy of the one where `srl train` runs"
        ) from error
    except BaseException:
        channel.close()
        raise


def keep_joining(address: str, secret: bytes, offer: Offer, patience: float, tell: Callable[[str], None]) -> int:
    """Serve until the run is over, and join again when the connection is lost. Raises JoinError after `patience`
    seconds in vain, at once if we are not wanted."""
    deadline, reach = time.monotonic() + patience, REACH_SECONDS
    while True:
        try:
            agent = join(address, secret, offer, reach)
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
            continue
        tell(f"{agent.host} serves {agent.run}")
        with leaving_at_sigterm(agent):
            served = agent.serve()
        if served:
            tell(f"{agent.host} left {agent.run} as it was asked to" if agent.leaving else f"{agent.run} is over")
            return 0
        tell(f"lost the controller of {agent.run}; its workers were ended. Trying to join again")
        deadline, reach = time.monotonic() + patience, AGAIN_SECONDS


@contextlib.contextmanager
def leaving_at_sigterm(agent: Agent) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are for the main thread
        return
    before = signal.signal(signal.SIGTERM, lambda *_: agent.leave())
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Orders(msgspec.Struct):
    """What a process that shall be an agent reads from its standard input: nothing of it is an argument."""

    address: str
    secret: bytes
    host: str = ""
    cpus: float | None = None
    gpus: float | None = None
    outlives: bool = False
    """Does it go on when whoever started it dies?"""


def main() -> None:
    """The agent of the controller's own host, and those that engines start."""
    orders = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Orders)
    if not orders.outlives:
        signal_on_parent_death(15)
    try:
        agent = join(orders.address, orders.secret, Offer(orders.host, orders.cpus, orders.gpus))
    except JoinError as error:
        print(f"srl agent: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, Unreachable) else REFUSED)
    with leaving_at_sigterm(agent):
        served = agent.serve()
    sys.exit(0 if served else 1)


if __name__ == "__main__":
    main()
