"""Worker processes of a simulated host: a real worker each, polled on the virtual clock."""

from __future__ import annotations

import heapq
import signal
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.api.control import Failure, Names, Ready, Register, Stop, ToWorker
from srl.api.scheduler import Died, Event, Usage, WorkerMessage
from srl.api.trainer import TrainerGroup
from srl.api.worker import RunBroken, Worker, WorkerId
from srl.base.meter import Meter, Phase
from srl.names.table import NameView
from srl.schedulers.local.run_memory import RunMemory
from srl.workers.actor.worker import ActorConfig
from srl.workers.context import RENDEZVOUS_SECONDS, WorkerContext
from srl.workers.process import IDLE_SECONDS
from support.simulation.network import SimTransport
from support.simulation.ranks import GroupBatches, PeerLost, RankGroup

if TYPE_CHECKING:
    from support.simulation.cluster import Cluster, Machine

START_SECONDS = 0.1
LONG_IDLES = 3.0
"""Sleep of an idle trainer or policy worker if nothing arrives, as a multiple of a real one's."""


class NoWaitSet:
    """The wait set of a process that is polled anyway."""

    def watch(self, endpoint: Any) -> None: ...

    def watch_fd(self, fd: int) -> None: ...

    def fileno(self) -> int:
        return -1

    def wake(self) -> None: ...

    def wait(self, timeout: float) -> set[int]:
        return set()

    def close(self) -> None: ...


@dataclass
class SimContext(WorkerContext):
    """The context of a simulated worker. Data-parallel trainers meet in a `RankGroup` instead of gloo."""

    ranks: RankGroup | None = None

    def trainer_group(self, policy: str, size: int) -> TrainerGroup:
        assert self.ranks is not None
        return TrainerGroup(self.worker_id.index, size, self.ranks)


@dataclass(eq=False)
class Process:
    """A worker's process: does what `srl.workers.process` does, one poll at a time."""

    owner: SimProcesses
    worker_id: WorkerId
    page: int
    seed: int
    start_at: float
    meter: Meter
    names: NameView = field(init=False)
    _idle_seconds: float = field(init=False)
    commits: bool = field(init=False)  # whether this is a trainer, whose agent uploads its states
    inbox: list[ToWorker] = field(default_factory=list)
    worker: Worker | None = None
    ranks: RankGroup | None = None
    frozen: bool = False
    alive: bool = True
    preempted: bool = False
    _poll_at: float = 0.0  # when it works again, unless something arrives before
    _arrivals: list[float] = field(default_factory=list)  # a heap

    def __post_init__(self) -> None:
        self.names = NameView(lambda name, address: self.send(Register(name, address)))
        config = self.owner.cluster.configs[self.worker_id.group]
        self.commits = bool(config.committed_policy())
        # Actors count their polls. Others only answer what arrives, or wait for a version.
        self._idle_seconds = (1.0 if isinstance(config, ActorConfig) else LONG_IDLES) * IDLE_SECONDS - 1e-9

    @property
    def machine(self) -> Machine:
        return self.owner.machine

    def send(self, message: Any) -> None:
        if self.alive:
            self.owner.events.append(WorkerMessage(self.worker_id, message))
            self.machine.dirty = True

    def poll(self, now: float) -> None:
        if self.frozen or not self.alive or now < self.start_at:
            return
        if now < self._poll_at and not self.inbox and not (self._arrivals and self._arrivals[0] <= now):
            return
        while self._arrivals and self._arrivals[0] <= now:
            heapq.heappop(self._arrivals)
        try:
            for message in self.inbox:
                if isinstance(message, Names):
                    self.names.replace(message.entries)
                elif isinstance(message, Stop):
                    self.end("stopped", clean=True)
                    return
            self.inbox.clear()
            if self.preempted:
                self.end("preempted", blameless=True)
            elif self.worker is None:
                self._build(now)
            else:
                self.meter.enter(Phase.OTHER)
                result = self.worker.poll()
                self._poll_at = now if result.worked else now + self._idle_seconds
                self.machine.dirty |= result.worked and self.commits
                if result.finished:
                    self.end("finished", clean=True)
        except Exception as error:
            self._fail(error)

    def _build(self, now: float) -> None:
        cluster, config = self.owner.cluster, self.owner.cluster.configs[self.worker_id.group]
        size = getattr(config, "size", 1)
        if size > 1:
            self.ranks = cluster.rank_group(self.worker_id, size)
            self.ranks.arrive(self.worker_id.index)
            if self.ranks.broken or now - self.start_at > RENDEZVOUS_SECONDS:
                raise PeerLost("another rank is gone")
            if not self.ranks.may_build(self.worker_id.index):
                return
        memory, runtime = self.owner.memory, Path("/nonexistent")
        transport = SimTransport(cluster.network, self.machine.name, partial(heapq.heappush, self._arrivals))
        context = SimContext(
            self.worker_id, self.seed, self.meter, self.names, transport, memory.parameters, memory.commits,  # type: ignore[arg-type]
            self.send, False, runtime, wait_set=NoWaitSet(), ranks=self.ranks,  # type: ignore[arg-type]
        )  # fmt: skip
        self.worker = config.build(context)
        if self.ranks is not None:
            self.worker._batches = GroupBatches(self.worker._batches, self.ranks, self.worker_id.index)  # type: ignore[attr-defined]
        self.send(Ready())

    def _fail(self, error: Exception) -> None:
        text = traceback.format_exc()
        if not isinstance(error, (RunBroken, PeerLost)) and self.machine.agent is not None:
            self.owner.cluster.crashes.append(f"{self.worker_id.name}: {text}")
        self.send(Failure(text, isinstance(error, RunBroken)))
        self.end(str(error))

    def end(self, reason: str, clean: bool = False, blameless: bool = False) -> None:
        """End the process. The kernel closes its channels, and its agent will notice."""
        if not self.alive:
            return
        self.alive = False
        if self.ranks is not None:
            self.ranks.broken = True
        if self.worker is not None:
            self.worker.close()
        self.owner.processes.pop(self.worker_id, None)
        self.owner.events.append(Died(self.worker_id, reason, clean, blameless))
        self.machine.dirty = True


class SimProcesses:
    """The workers of one agent, in place of `ProcessScheduler`."""

    ready = True

    def __init__(self, cluster: Cluster, machine: Machine, memory: RunMemory) -> None:
        self.cluster = cluster
        self.machine = machine
        self.memory = memory
        self.processes: dict[WorkerId, Process] = {}
        self.events: list[Event] = []
        self._pages: dict[tuple[str, int], int] = {}

    def launch(self, worker_id: WorkerId, config: Any, niceness: int, seed: int) -> None:
        page = self._pages.setdefault((worker_id.group, worker_id.index), len(self._pages))
        meter = self.memory.meters.meter(page)
        meter.reset()
        start_at = self.cluster.clock.now() + START_SECONDS
        self.processes[worker_id] = Process(self, worker_id, page, seed, start_at, meter)

    def poll(self, timeout: float) -> list[Event]:
        events, self.events = self.events, []
        return events

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        for worker_id in worker_ids:
            if process := self.processes.get(worker_id):
                process.inbox.append(message)

    def kill(self, worker_id: WorkerId) -> None:
        if process := self.processes.get(worker_id):
            process.end("killed")

    def signal(self, worker_id: WorkerId, number: int) -> None:
        assert number == signal.SIGTERM
        if process := self.processes.get(worker_id):
            process.preempted = True

    def worker_ids(self) -> list[WorkerId]:
        return list(self.processes)

    def meter(self, worker_id: WorkerId) -> Meter:
        return self.memory.meters.meter(self._pages[(worker_id.group, worker_id.index)])

    def pid(self, worker_id: WorkerId) -> int:
        return 1 if worker_id in self.processes else 0

    def usage(self, worker_id: WorkerId) -> Usage:
        process = self.processes.get(worker_id)
        return Usage(self.machine.name, stopped=process is not None and process.frozen)

    def dump(self, worker_id: WorkerId) -> str:
        return ""

    def watch(self, fd: int) -> None: ...

    def close(self) -> None:
        for process in list(self.processes.values()):
            process.end("its agent ended")
