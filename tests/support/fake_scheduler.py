"""A scheduler without processes: a test decides what happens to its workers."""

from __future__ import annotations

from collections.abc import Sequence

from srl.api.control import FromWorker, Ready, ToWorker
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent, OrphanWorker, Scheduler, TakeoverRecord, Usage, WorkerMessage
from srl.api.worker import Place, WorkerConfig
from srl.base.clock import ManualClock
from srl.base.meter import Counter, Meter


class FakeScheduler(Scheduler):
    """Records calls. Workers become ready at once unless `ready` is false. A poll advances the clock by its timeout;
    all workers except for those in `stuck` make progress."""

    def __init__(self, clock: ManualClock, ready: bool = True) -> None:
        self.clock = clock
        self.ready = ready
        self.room = 1000
        self.started: list[Place] = []
        self.configs: dict[Place, WorkerConfig] = {}
        self.live: dict[Place, Meter] = {}
        self.meters: dict[Place, Meter] = {}
        self.sent: list[tuple[Place, ToWorker]] = []
        self.killed: list[Place] = []
        self.stopped: set[Place] = set()
        """Processes that the kernel reports as stopped."""
        self.stuck: set[str] = set()
        self.orphans: list[OrphanWorker] = []
        self.closed = False
        self.events: list[Event] = []

    # What a test does

    def place(self, name: str) -> Place:
        """The live worker with this name."""
        return next(place for place in self.live if place.name == name)

    def send_from(self, name: str, message: FromWorker) -> None:
        self.events.append(WorkerMessage(self.place(name), message))

    def die(self, name: str, reason: str = "killed", clean: bool = False, blameless: bool = False) -> None:
        place = self.place(name)
        del self.live[place]
        self.events.append(Died(place, reason, clean, blameless))

    def report(self, text: str, fatal: bool = False) -> None:
        self.events.append(HostEvent(text, fatal))

    def names(self) -> list[str]:
        return sorted(place.name for place in self.live)

    # What the controller calls

    def start(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        self.started.append(place)
        self.configs[place] = config
        self.live[place] = self.meters[place] = Meter.unshared()
        if self.ready:
            self.events.append(WorkerMessage(place, Ready()))

    def send(self, places: Sequence[Place], message: ToWorker) -> None:
        self.sent += [(place, message) for place in places]

    def kill(self, place: Place) -> None:
        self.killed.append(place)
        if place in self.live:
            del self.live[place]
            self.events.append(Died(place, "killed"))

    def poll(self, timeout: float) -> list[Event]:
        self.clock.advance(timeout)
        for place, meter in self.live.items():
            if place.name not in self.stuck:
                meter.add(Counter.PROGRESS)
        events, self.events = self.events, []
        return events

    def meter(self, place: Place) -> Meter:
        return self.meters[place]

    def close(self) -> None:
        self.closed = True

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        if len(self.live) + len(wanted) > self.room:
            raise ValueError(f"there is room for {self.room} workers")

    def pid(self, place: Place) -> int:
        return 1000 + self.started.index(place) if place in self.live and place in self.started else 0

    def usage(self, place: Place) -> Usage:
        return Usage(stopped=place in self.stopped)

    def dump(self, place: Place) -> str:
        return f"stacks of {place.name}"

    def takeover_record(self) -> TakeoverRecord | None:
        return TakeoverRecord("127.0.0.1:1", ["here"])

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        return self.orphans

    def adopt(self, place: Place, config: WorkerConfig, resources: Resources, seed: int) -> None:
        self.live[place] = self.meters[place] = Meter.unshared()
