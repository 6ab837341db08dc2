"""The scheduler over several hosts: agents dial in, workers are placed on them, what happens there is told here."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.control import Ready, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.scheduler import (
    Died,
    Event,
    HostEvent,
    OrphanWorker,
    Scheduler,
    TakeoverRecord,
    Usage,
    WorkerMessage,
)
from srl.api.transport import Listener
from srl.api.worker import Place, WorkerConfig
from srl.base.config import to_data
from srl.base.meter import Meter
from srl.schedulers.agent.logs import append
from srl.schedulers.engines.base import Engine
from srl.schedulers.hosts.adoption import AdoptableWorkers
from srl.schedulers.hosts.fleet import Fleet, Hosting, Joined, JoinRefused, Lost, News, Returned, Word
from srl.schedulers.hosts.gauge_table import FleetBoard
from srl.schedulers.hosts.keeping import StateReplica
from srl.schedulers.hosts.losses import DESERTED_SECONDS, Losses
from srl.schedulers.hosts.messages import (
    AskDump,
    Beat,
    Begin,
    Dump,
    End,
    Gone,
    Heard,
    Leaving,
    LogText,
    Signal,
    State,
    Tagged,
    Tell,
)
from srl.schedulers.hosts.placement import NoRoom, Room, check_all, choose, lacking, relief
from srl.schedulers.hosts.starts import Starts
from srl.schedulers.hosts.version_archive import VersionArchive
from srl.schedulers.hosts.waiting import Waits
from srl.schedulers.local.run_memory import RunMemory

NO_USAGE = Usage()
DUMP_SECONDS = 3.0


@dataclass
class _Worker:
    place: Place
    config: Any
    policy: str
    resources: Resources
    seed: int
    row: int
    """Of the board: its gauges and what it takes."""
    host: str = ""
    """Empty while it waits for a place, and after its death."""
    alive: bool = True


class HostsScheduler(Scheduler):
    """Waits for `num_hosts` agents, at most `patience` seconds, before the first worker is placed."""

    def __init__(
        self,
        hosting: Hosting,
        memory: RunMemory,
        listener: Listener,
        join_secret: bytes,
        engine: Engine,
        num_hosts: int,
        logs: Path,
        patience: float = 60.0,
    ) -> None:
        self._num_hosts = num_hosts
        self._engine = engine
        self._logs = logs
        self._patience = patience
        self._deadline = time.monotonic() + patience
        self._open = hosting.attach is not None
        """Are workers placed? From the beginning if they are there already."""
        self._given_up = False
        self._outlived = hosting.headless > 0
        self._workers: dict[tuple[str, int], _Worker] = {}
        self._unplaced: set[tuple[str, int]] = set()
        self._board = FleetBoard()
        self._plain: dict[int, tuple[WorkerConfig, Any]] = {}
        self._former: dict[tuple[str, int], str] = {}
        self._events: deque[Event] = deque()
        self._dumps: dict[Place, str] = {}
        self._survivors = AdoptableWorkers()
        self._closed = False
        self.address = listener.address.removeprefix("tcp:")
        policies = list(memory.commits)
        self._archive = VersionArchive(policies, hosting.keep_up)
        self._fleet = Fleet(hosting, policies, listener, self._archive.gifts)
        self._keeper = StateReplica(memory, self._fleet, self._archive)
        self._losses, self._starts, self._waits = Losses(), Starts(), Waits()
        self._reported: dict[str, int] = {}
        if num_hosts > 1 and hosting.attach is None:
            self._events.append(HostEvent(f"waiting for {num_hosts} hosts; {engine.hint(self.address)}"))
        try:
            engine.start(self.address, join_secret)
        except BaseException:
            self.close()
            raise

    # Workers

    def start(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        worker = self._enlist(place, config, resources, seed)
        self._unplaced.add((place.group, place.index))
        if self._open:
            self._place(worker)

    def _enlist(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> _Worker:
        if id(config) not in self._plain:  # one for a whole group
            self._plain[id(config)] = config, to_data(config)
        key = (place.group, place.index)
        data, policy = self._plain[id(config)][1], config.committed_policy()
        worker = _Worker(place, data, policy, resources, seed, self._board.row(key))
        self._workers[key] = worker
        return worker

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not set(hosts) <= set(self._fleet.hosts):
            for news in self._fleet.poll(0.05):
                if not isinstance(news, Word) or not self._survivors.defer(news):
                    self._take_in(news)
        self._fleet.close_to_returners()
        if not self._survivors.hosts:
            raise ConnectionError(f"no host of the run reconnected within {timeout:.0f} s")
        return self._survivors.workers()

    def adopt(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        worker = self._enlist(place, config, resources, seed)
        host = self._fleet.hosts.get(self._survivors.adopt(place))
        if host is None:
            self._bury(worker, Died(place, "its host was lost again", blameless=True))
            return
        worker.host = self._former[(place.group, place.index)] = host.name
        host.room.take(resources)
        if worker.policy and place.index == 0:
            self._fleet.lead({worker.policy: worker.host})

    def finish_adoption(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for word in self._survivors.deferred():
            self._hear(word)
        while time.monotonic() < deadline and any(
            host.roster is None for host in self._fleet.hosts.values() if host.name in self._survivors.hosts
        ):
            for news in self._fleet.poll(0.05):
                self._take_in(news)

    def hosts(self) -> list[str]:
        return [room.host for room in self._rooms()]

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        """Raises NoRoom if these do not fit beside what runs already."""
        if self._open:
            check_all(self._rooms(), list(wanted))

    def _rooms(self) -> list[Room]:
        return [host.room for host in self._fleet.hosts.values() if host.relay]

    def _place(self, worker: _Worker) -> None:
        place = worker.place
        key = (place.group, place.index)
        stretch = place.incarnation > 0 and not self._losses.hold(time.monotonic(), len(self._fleet.hosts))
        room = choose(self._rooms(), worker.resources, self._former.get(key, ""), stretch)
        if room is None:
            return  # until a host joins, or another worker leaves
        together = not place.incarnation or bool(worker.policy)  # trainers meet while they are built
        if not together and not self._starts.begin(room.host, key, time.monotonic()):
            return  # until others there are ready
        room.take(worker.resources)
        worker.host = self._former[key] = room.host
        self._unplaced.discard(key)
        self._board.meter(worker.row).reset()
        if worker.policy:
            self._keeper.entrust(worker.policy, room.host)
            if place.index == 0:
                self._fleet.lead({worker.policy: room.host})
        self._fleet.send(room.host, Begin(place, worker.config, worker.resources.niceness, worker.seed))

    def _place_waiting(self) -> None:
        for key in sorted(self._unplaced):
            self._place(self._workers[key])
        reasons = {}
        for key in self._waits.late(self._unplaced, time.monotonic()):
            worker = self._workers[key]
            if why := lacking(self._rooms(), worker.resources, stretch=worker.place.incarnation > 0):
                reasons[key] = why
        self._events.extend(HostEvent(line) for line in self._waits.tell(reasons))

    def send(self, places: Sequence[Place], message: ToWorker) -> None:
        by_host: dict[str, list[Place]] = {}
        for place in places:
            worker = self._worker(place)
            if worker is not None and worker.host:
                by_host.setdefault(worker.host, []).append(place)
        for name, theirs in by_host.items():
            self._fleet.send(name, Tell(theirs, message))

    def kill(self, place: Place) -> None:
        worker = self._worker(place)
        if worker is None or not worker.alive:
            return
        if worker.host:
            self._fleet.send(worker.host, End(place))
        else:
            self._bury(worker, Died(place, "had no place yet"))

    def signal(self, place: Place, number: int) -> None:
        worker = self._worker(place)
        if worker is not None and worker.host:
            self._fleet.send(worker.host, Signal(place, number))

    def _worker(self, place: Place) -> _Worker | None:
        worker = self._workers.get((place.group, place.index))
        return worker if worker is not None and worker.place == place else None

    def _bury(self, worker: _Worker, died: Died) -> None:
        if not worker.alive:
            return
        self._starts.over(worker.host, (worker.place.group, worker.place.index))
        host = self._fleet.hosts.get(worker.host)
        if host is not None:
            host.room.give_back(worker.resources)
        worker.alive, worker.host = False, ""
        self._board.left(worker.row)
        self._unplaced.discard((worker.place.group, worker.place.index))
        self._events.append(died)

    # News

    def poll(self, timeout: float) -> list[Event]:
        for news in self._fleet.poll(0.0 if self._events else timeout):
            self._take_in(news)
        if not self._open and not self._given_up:
            self._open_if_complete()
        elif not self._given_up:
            self._place_waiting()
            if self._losses.deserted(time.monotonic(), len(self._fleet.hosts)):
                hint = self._engine.hint(self.address)
                self._give_up(f"no host is left, and none came for {DESERTED_SECONDS:.0f} s; {hint}")
        problem = self._engine.poll()
        if problem is not None:
            self._events.append(HostEvent(problem, fatal=not self._open and self._engine.in_vain()))
        events = list(self._events)
        self._events.clear()
        self._reported = self._fleet.told()
        return events

    def takeover_record(self) -> TakeoverRecord | None:
        return TakeoverRecord(self.address, self.hosts(), self._reported) if self._outlived else None

    def takeover_recorded(self, record: TakeoverRecord) -> None:
        self._fleet.written_down(record.reports)

    def _take_in(self, news: News) -> None:
        if isinstance(news, Word):
            self._hear(news)
        elif isinstance(news, Joined):
            room = self._fleet.hosts[news.host].room if news.host in self._fleet.hosts else None
            if room is not None:
                self._events.append(HostEvent(f"host {news.host} joined: {room.cpus:g} CPUs, {room.gpus:g} GPUs"))
                self._relieve()
        elif isinstance(news, Returned):
            self._events.append(HostEvent(f"host {news.host} is back with {len(news.workers)} workers"))
            self._survivors.came(news.host, news.workers)
        elif isinstance(news, JoinRefused):
            self._events.append(HostEvent(news.text, fatal=not self._open))
        elif isinstance(news, Lost):
            self._losses.lost(time.monotonic())
            self._survivors.lost(news.host)
            lost = [worker for worker in self._workers.values() if worker.host == news.host]
            self._events.append(HostEvent(f"host {news.host} is lost with {len(lost)} workers: {news.reason}"))
            for worker in lost:
                self._bury(worker, Died(worker.place, f"its host {news.host} is lost", blameless=True))

    def _relieve(self) -> None:
        """There is room again: workers that share CPUs since their host was lost leave in good order, as if preempted,
        and begin anew there. Trainers stay."""
        movable = [worker for worker in self._workers.values() if worker.host and not worker.policy]
        for index in relief(self._rooms(), [(worker.host, worker.resources) for worker in movable]):
            self.signal(movable[index].place, signal.SIGTERM)

    def _open_if_complete(self) -> None:
        rooms = self._rooms()
        if len(rooms) >= self._num_hosts:
            waiting = [(worker.place.name, worker.resources) for worker in self._workers.values()]
            try:
                check_all(rooms, waiting)
            except NoRoom as error:
                self._give_up(str(error))
                return
            self._open = True
            self._place_waiting()
        elif time.monotonic() > self._deadline:
            names = ", ".join(room.host for room in rooms) or "none"
            self._give_up(
                f"{len(rooms)} of {self._num_hosts} hosts joined within {self._patience:.0f} s ({names}); "
                f"{self._engine.hint(self.address)}"
            )

    def _give_up(self, reason: str) -> None:
        self._given_up = True
        self._events.append(HostEvent(reason, fatal=True))

    def _hear(self, word: Word) -> None:
        message, host = word.message, self._fleet.hosts.get(word.host)
        match message:
            case Heard():
                if isinstance(message.message, Ready):
                    self._starts.over(word.host, (message.place.group, message.place.index))
                self._events.append(WorkerMessage(message.place, message.message))
            case Gone():
                worker = self._worker(message.place)
                if host is not None:
                    self._board.hear_last(host, self._row(message.place, word.host), word.arrays)
                if worker is not None:
                    self._bury(worker, Died(message.place, message.reason, message.clean, message.blameless))
            case Beat() if host is not None:
                places = message.places
                rows = None if places is None else [self._row(place, word.host) for place in places]
                self._board.hear(host, rows, word.arrays)
            case LogText():
                append(self._logs, message)
            case Dump():
                self._dumps[message.place] = message.text
            case Leaving():
                self._events.append(HostEvent(f"host {word.host} was asked to leave; its workers go elsewhere"))
                if host is not None:
                    host.room.closed = True
            case Tagged():
                self._keeper.keep_evaluated(message, word.arrays)
            case State():
                self._keeper.keep(word.host, message, word.arrays)

    def _row(self, place: Place, name: str) -> int:
        """Of a worker on this host; -1: there is none."""
        worker = self._worker(place)
        return worker.row if worker is not None and worker.host == name else -1

    # What others ask

    def meter(self, place: Place) -> Meter:
        worker = self._worker(place)
        return self._board.meter(worker.row) if worker is not None else Meter.unshared()

    def pid(self, place: Place) -> int:
        worker = self._worker(place)
        return self._board.pid(worker.row) if worker is not None else 0

    def usage(self, place: Place) -> Usage:
        worker = self._worker(place)
        return self._board.usage(worker.row, worker.host) if worker is not None else NO_USAGE

    def parameters(self) -> Mapping[str, ParameterStore]:
        return self._archive.stores

    def dump(self, place: Place) -> str:
        worker = self._worker(place)
        if worker is None or not worker.host:
            return ""
        self._fleet.send(worker.host, AskDump(place))
        deadline = time.monotonic() + DUMP_SECONDS
        while place not in self._dumps and worker.host and time.monotonic() < deadline:
            for news in self._fleet.poll(0.05):
                self._take_in(news)
        return self._dumps.pop(place, "")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for word in self._fleet.close():
            append(self._logs, word.message)
        self._engine.close()
        self._archive.close()
