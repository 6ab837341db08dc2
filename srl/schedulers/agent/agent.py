"""The agent of a host: runs there what the controller of a run asks for, and tells what happens."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from srl.api.control import Evaluated, Published, Ready, Register, Stop
from srl.api.scheduler import Died, Event, OrphanWorker, WorkerMessage
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import Place
from srl.base.meter import WORDS
from srl.base.tree import Array
from srl.parameters.relay import ParameterRelay
from srl.schedulers.agent.connection import ControllerLine
from srl.schedulers.agent.logs import GrowingLogs
from srl.schedulers.agent.state_upload import Shipping
from srl.schedulers.hosts.messages import (
    BEAT_SECONDS,
    USAGE,
    AskDump,
    Beat,
    Begin,
    Dump,
    End,
    Follow,
    Gone,
    Heard,
    Join,
    Kept,
    Leave,
    Leaving,
    Rejoin,
    Relay,
    Signal,
    State,
    Tagged,
    Tell,
    Welcome,
    codec,
)
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.runtime_dir import make_runtime
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.schedulers.local.zygote import Network
from srl.transports.tcp import TcpTransport
from srl.workers.doorbells import Doorbells
from srl.workers.evaluator import EVALUATED

DRAIN_SECONDS = 4.0


class Agent:
    def __init__(
        self, channel: Channel, welcome: Welcome, bind: str, join: Callable[[], Join], dial: Callable[[], Channel]
    ) -> None:
        self.run = welcome.run
        self.host = welcome.host
        self._secret = welcome.secret
        self._join = join
        self._held: dict[Place, OrphanWorker] = {}
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
        self._shipping = Shipping(self._memory.commits, self._line, self._relay)
        self._beaten = 0.0
        self.leaving = 0.0
        """When we were asked to leave; 0: never."""
        self._told_to_leave = False
        self._listed: list[Place] | None = None
        self._line.send(Relay(self._relay.address))

    def serve(self) -> bool:
        """Until the run is over (True) or the controller is lost for good (False); nothing is left behind."""
        try:
            while not self._drained():
                for event in self._processes.poll(BEAT_SECONDS):
                    self._pass_on(event)
                self._bells.wait(0)
                if not self._obey():
                    return True
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._memory.bell)
                self._shipping.ship()
                self._relay.poll()
                self._beat()
                if self._line.redial(self._greeting):
                    self._come_back()
            return True
        except ChannelClosed:
            return False
        finally:
            self.close()

    def leave(self) -> None:
        """This host is wanted elsewhere (a preemption, SIGTERM): let the workers leave in good order, hand the last
        committed states over, and go. The run goes on on other hosts. Safe in a signal handler."""
        self.leaving = self.leaving or time.monotonic()
        self._bells.ring()

    def _drained(self) -> bool:
        if not self.leaving:
            return False
        if not self._told_to_leave:
            self._told_to_leave = True
            self._line.send(Leaving())
            self._processes.send(self._processes.places(), Stop())
        late = time.monotonic() - self.leaving > DRAIN_SECONDS
        return late or self._line.channel is None or not (self._processes.places() or self._shipping.under_way)

    def close(self) -> None:
        self._processes.close()
        self._relay.close()
        self._bells.close()
        self._memory.close()
        shutil.rmtree(self._runtime, ignore_errors=True)
        self._line.close()

    def _greeting(self) -> Rejoin:
        join = msgspec.structs.replace(self._join(), host=self.host)
        return Rejoin(join, self.run, self._secret, self._relay.address, list(self._held.values()))

    def _come_back(self) -> None:
        """A new controller: it gets the news, and the committed states, which its predecessor held."""
        self._line.repeat_news()
        self._listed = None
        alive = set(self._processes.places())
        self._held = {place: held for place, held in self._held.items() if place in alive}
        self._shipping.begin_anew()

    # To the controller

    def _pass_on(self, event: Event) -> None:
        if isinstance(event, WorkerMessage):
            self._note(event.place, event.message)
            if isinstance(event.message, Evaluated):
                self._ship_evaluated(event.message)
            self._line.tell(Heard(event.place, event.message))
        elif isinstance(event, Died):
            self._ship_logs()  # before the report, so that it is there when somebody looks
            words = self._processes.meter(event.place).words()
            gone = Gone(event.place, event.reason, event.clean, event.blameless)
            if self.leaving:
                gone = Gone(event.place, "its host was asked to leave", clean=False, blameless=True)
            if self._line.tell(gone, [words[None]]):
                self._held.pop(event.place, None)

    def _ship_evaluated(self, message: Evaluated) -> None:
        """The controller keeps the best on disk; what was evaluated here lies here."""
        pulled = self._memory.parameters[message.policy].pull(EVALUATED)
        if pulled is not None and pulled[0] == message.version:
            self._line.send(Tagged(message.policy, message.version, EVALUATED), [pulled[1]])

    def _note(self, place: Place, message: Message) -> None:
        held = self._held.get(place)
        if held is not None and isinstance(message, Ready):
            self._held[place] = msgspec.structs.replace(held, ready=True)
        elif held is not None and isinstance(message, Register):
            held.endpoints[message.name] = message.address

    def _beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten < BEAT_SECONDS or self._line.channel is None:
            return
        self._beaten = now
        places = self._processes.places()
        usages = [(self._processes.pid(place), self._processes.usage(place)) for place in places]
        figures = [(pid, usage.cpu_percent, usage.rss_mb, usage.stopped) for pid, usage in usages]
        pages = [self._processes.meter(place).words() for place in places]
        arrays = [
            np.array(pages, np.int64).reshape(-1, WORDS),
            np.array(figures, np.float64).reshape(-1, len(USAGE)),
        ]
        self._line.send(Beat(None if places == self._listed else places), arrays)
        self._listed = places
        self._ship_logs()

    def _ship_logs(self) -> None:
        channel = self._line.channel
        if channel is not None:
            with contextlib.suppress(ChannelClosed):  # the line finds out by itself
                self._logs.ship(channel)

    # From the controller

    def _obey(self) -> bool:
        for message, arrays in self._line.receive():
            if isinstance(message, Leave):
                return False
            self._do(message, arrays)
        if self._line.channel is None:
            self._shipping.let_go()
        return True

    def _do(self, message: Any, arrays: list[Array]) -> None:
        match message:
            case Beat():
                self._line.forget(message.safe)
            case Begin():
                self._held[message.place] = OrphanWorker(message.place, False, {})
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
                self._shipping.arrived(message.policy, message.version)
            case Tagged():
                store = self._memory.parameters[message.policy]
                if message.version > store.version:
                    store.push(message.version, arrays[0], (message.tag,) if message.tag else ())
            case State():
                snapshot = self._memory.commits[message.policy]
                if message.version > snapshot.version:
                    snapshot.write(message.version, dict(zip(message.keys, arrays, strict=True)), message.facts)

    def _wake_workers(self) -> None:
        self._processes.send(self._processes.places(), Published())
