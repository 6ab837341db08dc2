"""A scheduler without processes: a test decides what happens to its workers."""

from __future__ import annotations

from collections.abc import Sequence

from srl.api.control import FromWorker, Ready, ToWorker
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent, OrphanWorker, Scheduler, TakeoverRecord, Usage, WorkerMessage
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.meter import Counter, Meter
from support.manual_clock import ManualClock


class FakeScheduler(Scheduler):
    """Records calls. Workers become ready at once unless `ready` is false. A poll advances the clock by its timeout;
    all workers except for those in `stuck` make progress."""

    def __init__(self, clock: ManualClock, ready: bool = True) -> None:
        self.clock = clock
        self.ready = ready
        self.room = 1000
        self.started: list[WorkerId] = []
        self.configs: dict[WorkerId, WorkerConfig] = {}
        self.live: dict[WorkerId, Meter] = {}
        self.meters: dict[WorkerId, Meter] = {}
        self.sent: list[tuple[WorkerId, ToWorker]] = []
        self.killed: list[WorkerId] = []
        self.stopped: set[WorkerId] = set()
        """Processes that the kernel reports as stopped."""
        self.stuck: set[str] = set()
        self.orphans: list[OrphanWorker] = []
        self.closed = False
        self.events: list[Event] = []

    # What a test does

    def place(self, name: str) -> WorkerId:
        """The live worker with this name."""
        return next(worker_id for worker_id in self.live if worker_id.name == name)

    def send_from(self, name: str, message: FromWorker) -> None:
        self.events.append(WorkerMessage(self.place(name), message))

    def die(self, name: str, reason: str = "killed", clean: bool = False, blameless: bool = False) -> None:
        worker_id = self.place(name)
        del self.live[worker_id]
        self.events.append(Died(worker_id, reason, clean, blameless))

    def report(self, text: str, fatal: bool = False, lost: bool = False) -> None:
        self.events.append(HostEvent(text, fatal, lost))

    def names(self) -> list[str]:
        return sorted(worker_id.name for worker_id in self.live)

    # What the controller calls

    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        self.started.append(worker_id)
        self.configs[worker_id] = config
        self.live[worker_id] = self.meters[worker_id] = Meter.unshared()
        if self.ready:
            self.events.append(WorkerMessage(worker_id, Ready()))

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        self.sent += [(worker_id, message) for worker_id in worker_ids]

    def kill(self, worker_id: WorkerId) -> None:
        self.killed.append(worker_id)
        if worker_id in self.live:
            del self.live[worker_id]
            self.events.append(Died(worker_id, "killed"))

    def poll(self, timeout: float) -> list[Event]:
        self.clock.advance(timeout)
        for worker_id, meter in self.live.items():
            if worker_id.name not in self.stuck:
                meter.add(Counter.PROGRESS)
        events, self.events = self.events, []
        return events

    def meter(self, worker_id: WorkerId) -> Meter:
        return self.meters[worker_id]

    def close(self) -> None:
        self.closed = True

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        if len(self.live) + len(wanted) > self.room:
            raise ValueError(f"there is room for {self.room} workers")

    def pid(self, worker_id: WorkerId) -> int:
        return 1000 + self.started.index(worker_id) if worker_id in self.live and worker_id in self.started else 0

    def usage(self, worker_id: WorkerId) -> Usage:
        return Usage(stopped=worker_id in self.stopped)

    def dump(self, worker_id: WorkerId) -> str:
        return f'Current thread (most recent call first):\n  File "/home/me/env.py", line 7 in step_{worker_id.index}\n'

    def takeover_record(self) -> TakeoverRecord | None:
        return TakeoverRecord("127.0.0.1:1", ["here"])

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        return self.orphans

    def adopt(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        self.live[worker_id] = self.meters[worker_id] = Meter.unshared()
