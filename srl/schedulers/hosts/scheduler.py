"""The multi-host scheduler: places workers on hosts whose agents have joined, and reports deaths to the controller,
which replaces the workers. See `host_loss` for lost hosts, and `takeover` for a run whose controller died."""

from __future__ import annotations

import contextlib
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from srl.api.control import Ready, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.scheduler import Died, Event, HostEvent, OrphanWorker, Scheduler, TakeoverRecord, Usage, WorkerMessage
from srl.api.status import describe_refused
from srl.api.transport import Listener
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.config import to_data
from srl.base.meter import Meter
from srl.base.process import uninterrupted
from srl.schedulers.hosts import messages
from srl.schedulers.hosts.agent_connections import (
    AgentConnections,
    AgentMessage,
    ConnectionEvent,
    HostJoined,
    HostLost,
    HostReturned,
    JoinRefused,
)
from srl.schedulers.hosts.engine import Engine
from srl.schedulers.hosts.host_loss import NO_HOST_SECONDS, HostLossHandler
from srl.schedulers.hosts.placement import DoesNotFit, HostCapacity, PlacedWorker, check_all
from srl.schedulers.hosts.remote_meters import RemoteMeters
from srl.schedulers.hosts.replicas import Retention, StateReplica, VersionArchive
from srl.schedulers.hosts.takeover import ReturnedWorkers
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.worker_logs import LogStore
from srl.transports.join_ticket import JoinFile
from srl.transports.tls import PREFIX

DUMP_SECONDS = 3.0


class HostsScheduler(Scheduler):
    """Scheduler that waits up to `patience` seconds for `num_hosts` agents before it places the first worker. With
    `takeover` (see `AgentConnections`), it takes over a dead controller's hosts, and places workers at once."""

    def __init__(
        self,
        settings: messages.AgentSettings,
        memory: RunMemory,
        listener: Listener,
        join_file: JoinFile,
        engine: Engine,
        num_hosts: int,
        logs: LogStore,
        patience: float = 60.0,
        retention: Retention | None = None,
        takeover: Mapping[str, int] | None = None,
    ) -> None:
        self._num_hosts, self._engine, self._logs = num_hosts, engine, logs
        self._patience, self._deadline = patience, time.monotonic() + patience
        self._placing = takeover is not None
        self._failed = self._closed = False
        self._headless = settings.headless > 0
        self._workers: dict[tuple[str, int], PlacedWorker] = {}
        self._unplaced: set[tuple[str, int]] = set()
        self._gauges = RemoteMeters()
        self._configs: dict[int, tuple[WorkerConfig, Any]] = {}
        self._events: deque[Event] = deque()
        self._dumps: dict[WorkerId, str] = {}
        self._returned = ReturnedWorkers()
        self._join_file, self.address = join_file, listener.address.removeprefix(PREFIX)
        settings, policies = replace(settings, proof=join_file.proof_of_hosts), list(memory.commits)
        self._archive = VersionArchive(policies, retention)
        self._agents = AgentConnections(settings, policies, listener, self._archive.messages, takeover)
        self._replica = StateReplica(memory, self._agents, self._archive)
        self._host_loss = HostLossHandler(self._workers, self._agents)
        self._reported: dict[str, int] = {}
        self._next_refusals = 1
        if num_hosts > 1 and takeover is None:
            self._events.append(HostEvent(f"waiting for {num_hosts} hosts; {engine.hint()}"))
        try:
            engine.start(join_file.ticket)
        except BaseException:
            self.close()
            raise

    # Workers

    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        worker = self._register(worker_id, config, resources, seed)
        self._unplaced.add(worker.key)
        if self._placing:
            self._place(worker)

    def _register(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> PlacedWorker:
        if id(config) not in self._configs:  # the workers of a group share one config
            self._configs[id(config)] = config, to_data(config)
        row, data = self._gauges.row((worker_id.group, worker_id.index)), self._configs[id(config)][1]
        worker = PlacedWorker(worker_id, data, config.committed_policy(), resources, seed, row)
        self._workers[worker.key] = worker
        return worker

    def hosts(self) -> list[str]:
        return [capacity.host for capacity in self._agents.capacities()]

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        if self._placing:
            check_all(self._agents.capacities(), list(wanted))

    def _place(self, worker: PlacedWorker) -> None:
        if worker.policy and not self._replica.is_complete(worker.policy):
            return
        capacity = self._host_loss.choose_host(worker)
        if capacity is None:
            return
        self._unplaced.discard(worker.key)
        self._gauges.meter(worker.row).reset()
        if worker.policy:
            self._replica.send(worker.policy, capacity.host)
        self._assign(worker, capacity)
        niceness = worker.resources.niceness
        self._agents.send(worker.host, messages.StartWorker(worker.worker_id, worker.config, niceness, worker.seed))

    def _assign(self, worker: PlacedWorker, capacity: HostCapacity) -> None:
        capacity.take(worker.resources)
        worker.host = capacity.host
        self._host_loss.placed(worker)
        if worker.policy and worker.worker_id.index == 0:
            self._agents.set_source(worker.policy, capacity.host)

    def _place_waiting(self) -> None:
        for key in sorted(self._unplaced):
            self._place(self._workers[key])
        self._events.extend(self._host_loss.report_waiting(self._unplaced))

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        by_host: dict[str, list[WorkerId]] = {}
        for worker_id in worker_ids:
            worker = self._worker(worker_id)
            if worker is not None and worker.host:
                by_host.setdefault(worker.host, []).append(worker_id)
        for host, on_host in by_host.items():
            self._agents.send(host, messages.SendToWorkers(on_host, message))

    def kill(self, worker_id: WorkerId) -> None:
        worker = self._worker(worker_id)
        if worker is None or not worker.alive:
            return
        if worker.host:
            self._agents.send(worker.host, messages.KillWorker(worker_id))
        else:
            self._died(Died(worker_id, "was waiting for a host"))

    def signal(self, worker_id: WorkerId, number: int) -> None:
        worker = self._worker(worker_id)
        if worker is not None and worker.host:
            self._agents.send(worker.host, messages.SignalWorker(worker_id, number))

    def disturb_host(self, worker_id: WorkerId, fault: str, seconds: float) -> None:
        worker = self._worker(worker_id)
        if worker is not None and worker.host:
            self._agents.send(worker.host, messages.DisturbHost(worker_id, fault, seconds))

    def _worker(self, worker_id: WorkerId) -> PlacedWorker | None:
        worker = self._workers.get((worker_id.group, worker_id.index))
        return worker if worker is not None and worker.worker_id == worker_id else None

    def _died(self, died: Died) -> None:
        worker = self._worker(died.worker_id)
        if worker is None or not worker.alive:
            return
        self._host_loss.started(worker.host, worker.key)
        host = self._agents.hosts.get(worker.host)
        if host is not None:
            host.capacity.give_back(worker.resources)
        worker.alive, worker.host = False, ""
        self._gauges.clear_usage(worker.row)
        self._unplaced.discard(worker.key)
        self._events.append(died)

    # Takeover of a run whose controller died

    def takeover_record(self) -> TakeoverRecord | None:
        return TakeoverRecord(self.address, self.hosts(), self._reported) if self._headless else None

    def takeover_recorded(self, record: TakeoverRecord) -> None:
        self._agents.reports_recorded(record.reports)

    def find_orphans(self, hosts: Sequence[str], timeout: float) -> list[OrphanWorker]:
        deadline = time.monotonic() + timeout
        # The record may list no host if it was written while all of them were lost.
        while time.monotonic() < deadline and not (self._returned.hosts and set(hosts) <= set(self._agents.hosts)):
            for event in self._agents.poll(0.05):
                if not isinstance(event, AgentMessage) or not self._returned.defer(event):
                    self._handle(event)
        self._agents.end_takeover()
        if not self._returned.hosts:
            raise ConnectionError(f"no host of the run reconnected within {timeout:.0f} s: its agents are gone")
        return self._returned.workers()

    def adopt(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        worker = self._register(worker_id, config, resources, seed)
        host = self._agents.hosts.get(self._returned.adopt(worker_id))
        if host is None:
            self._died(Died(worker_id, "its host was lost again", blameless=True))
        else:
            self._assign(worker, host.capacity)

    def finish_takeover(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for message in self._returned.deferred():
            self._handle_message(message)
        while time.monotonic() < deadline and any(
            host.rows is None for host in self._agents.hosts.values() if host.name in self._returned.hosts
        ):
            for event in self._agents.poll(0.05):
                self._handle(event)

    # Events

    def poll(self, timeout: float) -> list[Event]:
        self._poll(timeout)
        events = list(self._events)
        self._events.clear()
        self._reported = self._agents.reports()
        return events

    @uninterrupted()  # a connection is closed and forgotten in one step
    def _poll(self, timeout: float) -> None:
        for event in self._agents.poll(0.0 if self._events else timeout):
            self._handle(event)
        if not self._failed:
            if not self._placing:
                self._place_if_complete()
            else:
                self._place_waiting()
                if self._host_loss.no_host_left():
                    hint = self._engine.hint()
                    self._fail(f"no host is left, and none joined for {NO_HOST_SECONDS:.0f} s; {hint}")
        with contextlib.suppress(OSError):  # the disk is full; hosts can join until the last ticket expires
            self._join_file.renew()
        self._report_refusals()
        problem = self._engine.poll()
        if problem is not None:
            self._events.append(HostEvent(problem, fatal=not self._placing and self._engine.start_failed()))

    def _handle(self, event: ConnectionEvent) -> None:
        match event:
            case AgentMessage():
                self._handle_message(event)
            case HostJoined() if event.host in self._agents.hosts:
                capacity = self._agents.hosts[event.host].capacity
                text = f"host {event.host} joined: {capacity.cpus:g} CPUs, {capacity.gpus:g} GPUs"
                self._events.append(HostEvent(text))
                for worker in self._host_loss.workers_to_move():
                    self.signal(worker.worker_id, signal.SIGTERM)  # its replacement starts on a host with room
            case HostReturned():
                self._events.append(HostEvent(f"host {event.host} is back with {len(event.workers)} workers"))
                self._returned.host_returned(event.host, event.workers)
            case JoinRefused():
                self._events.append(HostEvent(event.text, fatal=not self._placing))
            case HostLost():
                self._returned.host_lost(event.host)
                report, deaths = self._host_loss.host_lost(event.host, event.reason)
                self._events.append(report)
                for died in deaths:
                    self._died(died)

    def _report_refusals(self) -> None:
        """Report the first refused connection, and then each time that their number has grown tenfold."""
        if (total := sum(self._agents.refused.values())) >= self._next_refusals:
            self._next_refusals = 10 * total
            self._events.append(HostEvent(f"refused {describe_refused(self._agents.refused)} at {self.address}"))

    def _place_if_complete(self) -> None:
        capacities = self._agents.capacities()
        if len(capacities) >= self._num_hosts:
            wanted = [(worker.worker_id.name, worker.resources) for worker in self._workers.values()]
            trainers = {worker.worker_id.name for worker in self._workers.values() if worker.policy}
            try:
                check_all(capacities, wanted, with_controller=trainers)
            except DoesNotFit as error:
                self._fail(str(error))
                return
            self._placing = True
            self._place_waiting()
        elif time.monotonic() > self._deadline:
            names = ", ".join(self.hosts()) or "none"
            self._fail(
                f"{len(capacities)} of {self._num_hosts} hosts joined within {self._patience:.0f} s ({names}); "
                f"{self._engine.hint()}"
            )

    def _fail(self, reason: str) -> None:
        self._failed = True
        self._events.append(HostEvent(reason, fatal=True))

    def _handle_message(self, event: AgentMessage) -> None:
        message, host = event.message, self._agents.hosts.get(event.host)
        match message:
            case messages.WorkerReport():
                if isinstance(message.message, Ready):
                    self._host_loss.started(event.host, (message.worker_id.group, message.worker_id.index))
                self._events.append(WorkerMessage(message.worker_id, message.message))
            case messages.WorkerExited():
                if host is not None:
                    self._gauges.write_last(host, self._row(message.worker_id, event.host), event.arrays)
                self._died(Died(message.worker_id, message.reason, message.clean, message.blameless))
            case messages.AgentHeartbeat() if host is not None:
                worker_ids = message.worker_ids
                rows = None if worker_ids is None else [self._row(worker_id, event.host) for worker_id in worker_ids]
                self._gauges.write_heartbeat(host, rows, event.arrays)
            case messages.LogText():
                self._logs.add(message.name, message.text)
            case messages.StackDump():
                self._dumps[message.worker_id] = message.text
            case messages.HostNotice():
                self._events.append(HostEvent(f"host {event.host}: {message.text}"))
            case messages.HostLeaving():
                self._events.append(HostEvent(f"host {event.host} was asked to leave; its workers move to other hosts"))
                if host is not None:
                    host.capacity.leaving = True
            case messages.TaggedParameters():
                self._replica.store_evaluated(message, event.arrays)
            case messages.CommittedState():
                self._replica.store(event.host, message, event.arrays)

    def _row(self, worker_id: WorkerId, host: str) -> int:
        """Return a worker's row in the meter table, or -1 if the worker is not on this host."""
        worker = self._worker(worker_id)
        return worker.row if worker is not None and worker.host == host else -1

    # Queries

    def meter(self, worker_id: WorkerId) -> Meter:
        worker = self._worker(worker_id)
        return self._gauges.meter(worker.row) if worker is not None else Meter.unshared()

    def pid(self, worker_id: WorkerId) -> int:
        worker = self._worker(worker_id)
        return self._gauges.pid(worker.row) if worker is not None else 0

    def usage(self, worker_id: WorkerId) -> Usage:
        worker = self._worker(worker_id)
        return self._gauges.usage(worker.row, worker.host) if worker is not None else Usage()

    def refused(self) -> Mapping[str, int]:
        return self._agents.refused

    def parameters(self) -> Mapping[str, ParameterStore]:
        return self._archive.stores

    def dump(self, worker_id: WorkerId) -> str:
        worker = self._worker(worker_id)
        if worker is None or not worker.host:
            return ""
        self._agents.send(worker.host, messages.DumpStacks(worker_id))
        deadline = time.monotonic() + DUMP_SECONDS
        while worker_id not in self._dumps and worker.host and time.monotonic() < deadline:
            for event in self._agents.poll(0.05):
                self._handle(event)
        return self._dumps.pop(worker_id, "")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for message in self._agents.close():
            self._logs.add(message.name, message.text)
        self._engine.close()
        self._logs.close()
        self._join_file.remove()
        self._archive.close()
