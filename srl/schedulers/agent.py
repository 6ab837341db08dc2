"""The agent of a host: runs there what the controller of a run asks for, and tells what happens."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil

from srl.api.control import Published, Ready, Register
from srl.api.scheduler import Died, Event, Said
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import Place
from srl.base.meter import WORDS
from srl.base.parenthood import signal_at_parents_death
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent_line import ControllerLine
from srl.schedulers.agent_logs import GrowingLogs
from srl.schedulers.agent_messages import (
    AGENTS,
    BEAT_SECONDS,
    AskDump,
    Beat,
    Begin,
    Dump,
    End,
    Follow,
    Gone,
    Heard,
    Held,
    Join,
    Kept,
    Leave,
    Messages,
    Refused,
    Rejoin,
    Relay,
    Signal,
    State,
    Tell,
    Welcome,
    codec,
    own_version,
)
from srl.schedulers.memory import RunMemory
from srl.schedulers.processes import ProcessScheduler
from srl.schedulers.runtime import make_runtime
from srl.schedulers.zygote import Network
from srl.transports.tcp import PREFIX, TcpTransport
from srl.workers.doorbells import Doorbells

JOIN_SECONDS = 10.0
RETRY_SECONDS = 0.5
REACH_SECONDS = 3.0
REDIAL_PATIENCE = 0.1


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


def join(address: str, secret: bytes, offer: Offer) -> Agent:
    """Become an agent of the run whose controller listens at `address` (`host:port`). Raises JoinError."""
    where = f"{PREFIX}{address.removeprefix(PREFIX)}"
    transport = TcpTransport(secret, AGENTS, encrypt=True, codec=codec, patience=REACH_SECONDS)
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
        again = TcpTransport(secret, AGENTS, encrypt=True, codec=codec, patience=REDIAL_PATIENCE)
        return Agent(channel, message, channel.local_host, offer, lambda: again.connect(where, Messages))
    except ChannelClosed as error:
        channel.close()
        raise JoinError(
            f"{address} let us not in: {error}. The join secrets differ, or the run is over; --secret-file must be a "
            "copy of the one where `srl train` runs"
        ) from error
    except BaseException:
        channel.close()
        raise


@dataclass
class _Shipping:
    """How far a policy's committed states have come."""

    sent: int = -1
    under_way: dict[int, Array] = field(default_factory=dict)
    """version -> its parameters, until the controller has the state that belongs to them."""


class Agent:
    def __init__(
        self, channel: Channel, welcome: Welcome, bind: str, offer: Offer, dial: Callable[[], Channel]
    ) -> None:
        self.run = welcome.run
        self.host = welcome.host
        self._secret = welcome.secret
        self._offer = offer
        self._held: dict[Place, Held] = {}
        self._memory = RunMemory.create(welcome.policies, with_bell=True)
        self._runtime = make_runtime(welcome.run)
        logs = self._runtime / "logs"
        logs.mkdir()
        self._logs = GrowingLogs(logs, welcome.host)
        network = Network(welcome.secret, bind, welcome.host, welcome.encrypt)
        self._processes = ProcessScheduler(
            welcome.run, self._memory, self._runtime, logs, welcome.preload, welcome.path, network
        )
        self._bells = Doorbells()
        self._line = ControllerLine(channel, dial, welcome.headless, self._bells.watch)
        self._bells.watch_fd(self._memory.bell)
        self._processes.watch(self._bells.fileno())
        transport = TcpTransport(welcome.secret, welcome.run, bind, encrypt=welcome.encrypt, codec=codec)
        self._relay = ParameterRelay(transport, self._memory.parameters, self._bells.watch, self._wake_workers)
        self._shipping = {policy: _Shipping() for policy in welcome.policies}
        self._beaten = 0.0
        self._line.send(Relay(self._relay.address))

    def serve(self) -> bool:
        """Until the run is over (True) or the controller is lost for good (False); nothing is left behind."""
        try:
            while True:
                for event in self._processes.poll(BEAT_SECONDS):
                    self._pass_on(event)
                self._bells.wait(0)
                if not self._obey():
                    return True
                self._ship_states()
                self._relay.poll()
                self._beat()
                if self._line.redial(self._greeting):
                    self._come_back()
        except ChannelClosed:
            return False
        finally:
            self.close()

    def close(self) -> None:
        self._processes.close()
        self._relay.close()
        self._bells.close()
        self._memory.close()
        shutil.rmtree(self._runtime, ignore_errors=True)
        self._line.close()

    def _greeting(self) -> Rejoin:
        join = msgspec.structs.replace(self._offer.join(), host=self.host)
        return Rejoin(join, self.run, self._secret, self._relay.address, list(self._held.values()))

    def _come_back(self) -> None:
        """A new controller: it gets the news, and the committed states, which its predecessor held."""
        self._line.tell_news()
        alive = set(self._processes.places())
        self._held = {place: held for place, held in self._held.items() if place in alive}
        for shipping in self._shipping.values():
            shipping.sent = -1
            shipping.under_way.clear()

    # To the controller

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, Said):
            self._note(event.place, event.message)
            self._line.send(Heard(event.place, event.message))
        elif isinstance(event, Died):
            self._ship_logs()  # before the report, so that it is there when somebody looks
            words = self._processes.meter(event.place).words()
            if self._line.send(Gone(event.place, event.reason, event.clean), [words[None]]):
                self._held.pop(event.place, None)

    def _note(self, place: Place, message: Message) -> None:
        held = self._held.get(place)
        if held is not None and isinstance(message, Ready):
            self._held[place] = msgspec.structs.replace(held, ready=True)
        elif held is not None and isinstance(message, Register):
            held.names[message.name] = message.address

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten < BEAT_SECONDS or self._line.channel is None:
            return
        self._beaten = now
        places = self._processes.places()
        usages = [self._processes.usage(place) for place in places]
        pages = [self._processes.meter(place).words() for place in places]
        beat = Beat(
            places,
            [self._processes.pid(place) for place in places],
            [usage.cpu_percent for usage in usages],
            [usage.rss_mb for usage in usages],
            [usage.stopped for usage in usages],
        )
        self._line.send(beat, [np.stack(pages) if pages else np.zeros((0, WORDS), np.int64)])
        self._ship_logs()

    def _ship_logs(self) -> None:
        channel = self._line.channel
        if channel is not None:
            with contextlib.suppress(ChannelClosed):  # the line finds out by itself
                self._logs.ship(channel)

    def _ship_states(self) -> None:
        """A version leaves this host only after the controller holds the state that made it, if there is one."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._memory.bell)
        for policy, shipping in self._shipping.items():
            snapshot = self._memory.commits[policy]
            if shipping.under_way or snapshot.version <= shipping.sent:
                continue
            committed = snapshot.read()
            if committed is not None:
                version, state, facts = committed
                shipping.sent = version
                if self._line.send(State(policy, version, facts, list(state)), list(state.values())):
                    shipping.under_way[version] = state["parameters"]
                else:
                    self._relay.offer(policy, version, state["parameters"])

    # From the controller

    def _obey(self) -> bool:
        for message, arrays in self._line.receive():
            if isinstance(message, Leave):
                return False
            self._do(message, arrays)
        if self._line.channel is None:
            for shipping in self._shipping.values():
                shipping.under_way.clear()
        return True

    def _do(self, message: Any, arrays: list[Array]) -> None:
        match message:
            case Begin():
                self._held[message.place] = Held(message.place, False, {})
                self._processes.launch(message.place, message.config, message.niceness, message.seed)
            case Tell():
                self._processes.send(message.places, message.message)
            case End():
                self._processes.kill(message.place)
            case Signal():
                self._processes.signal(message.place, message.number)
            case AskDump():
                self._line.send(Dump(message.place, self._processes.dump(message.place)))
            case Follow():
                self._relay.follow(message.policy, message.address)
            case Kept():
                shipping = self._shipping[message.policy]
                parameters = shipping.under_way.pop(message.version, None)
                if parameters is not None:
                    self._relay.offer(message.policy, message.version, parameters)
            case State():
                snapshot = self._memory.commits[message.policy]
                if message.version > snapshot.version:
                    snapshot.write(message.version, dict(zip(message.keys, arrays, strict=True)), message.facts)

    def _wake_workers(self) -> None:
        self._processes.send(self._processes.places(), Published())


def keep_joining(address: str, secret: bytes, offer: Offer, patience: float, tell: Callable[[str], None]) -> int:
    """Serve until the run is over, and join again when the connection is lost. Raises JoinError after `patience`
    seconds in vain, at once if we are not wanted."""
    deadline = time.monotonic() + patience
    while True:
        try:
            agent = join(address, secret, offer)
        except Unreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)
            continue
        tell(f"{agent.host} serves {agent.run}")
        if agent.serve():
            tell(f"{agent.run} is over")
            return 0
        tell(f"lost the controller of {agent.run}; its workers were ended. Trying to join again")
        deadline = time.monotonic() + patience


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
        signal_at_parents_death(15)
    try:
        agent = join(orders.address, orders.secret, Offer(orders.host, orders.cpus, orders.gpus))
    except JoinError as error:
        print(f"srl agent: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0 if agent.serve() else 1)


if __name__ == "__main__":
    main()
