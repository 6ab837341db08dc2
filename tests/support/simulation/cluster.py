"""The scheduler of a simulated cluster: starts real workers on simulated hosts, and injects faults."""

from __future__ import annotations

import heapq
import itertools
import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from srl.api.control import Failure, Names, Ready, Register, Stop, ToWorker
from srl.api.experiment import Resources
from srl.api.scheduler import Died, Event, HostEvent, Scheduler, Usage, WorkerMessage
from srl.api.worker import RunBroken, WorkerConfig, WorkerId
from srl.base.meter import Meter
from srl.base.snapshot import Snapshot
from srl.names.table import NameView
from srl.workers.context import WorkerContext
from support.manual_clock import ManualClock
from support.simulation.hosts import Process, SimHost
from support.simulation.network import Network, SimTransport

CONTROLLER = "controller"
SLICE_SECONDS = 0.1
"""Virtual time between two polls of a worker."""
START_SECONDS = 0.1
LOST_SECONDS = 5.0
"""Time without a heartbeat after which the controller takes a host for lost."""
REJOIN_SECONDS = 1.0
STATE_BYTES = 100_000
"""Size of a trainer's state and of its parameters on a link."""


class SimScheduler(Scheduler):
    """Starts workers on simulated hosts. `poll` advances the clock and polls every worker that is not frozen."""

    def __init__(self, clock: ManualClock, names: Sequence[str], policies: Sequence[str], seed: int) -> None:
        self.clock = clock
        self.network = Network(clock)
        self.random = random.Random(seed)
        self.policies = policies
        self.hosts = {name: SimHost(name, policies) for name in names}
        self.replicas = {policy: Snapshot.create(f"replica-{policy}") for policy in policies}
        self.processes: dict[WorkerId, Process] = {}
        self.crashes: list[str] = []
        """Tracebacks of workers that raised an error."""
        self._retired: list[SimHost] = []
        self._contexts: list[WorkerContext] = []
        self._meters: dict[WorkerId, Meter] = {}
        self._roots: dict[str, str] = {}  # policy -> host of its trainer
        self._homes: dict[tuple[str, int], str] = {}
        self._waiting: dict[WorkerId, tuple[WorkerConfig, int]] = {}
        self._events: list[Event] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    # Time

    def at(self, time: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (time, next(self._order), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self.at(self.clock.now() + seconds, action)

    def poll(self, timeout: float) -> list[Event]:
        until = self.clock.now() + timeout
        while self.clock.now() < until - 1e-9:
            self.clock.advance(SLICE_SECONDS)
            while self._agenda and self._agenda[0][0] <= self.clock.now():
                heapq.heappop(self._agenda)[2]()
            self._start_waiting()
            order = list(self.processes.values())
            self.random.shuffle(order)
            for process in order:
                if not process.frozen and not process.finished and process.worker_id in self.processes:
                    self._poll_one(process)
            self._upload()
            self._relay()
        events, self._events = self._events, []
        return events

    def _poll_one(self, process: Process) -> None:
        try:
            result = process.worker.poll()
        except Exception as error:
            text = traceback.format_exc()
            if not isinstance(error, RunBroken) and process.host.member:
                self.crashes.append(f"{process.worker_id.name}: {text}")
            self._report(process, Failure(text, isinstance(error, RunBroken)))
            self.end(process.worker_id, str(error))
            return
        process.finished = result.finished

    # Workers

    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        self._meters[worker_id] = Meter.unshared()
        self._waiting[worker_id] = config, seed

    def _start_waiting(self) -> None:
        members = [host for host in self.hosts.values() if host.member]
        for worker_id, (config, seed) in list(self._waiting.items()):
            if not members:
                return
            del self._waiting[worker_id]
            loads = {host.name: sum(p.host is host for p in self.processes.values()) for host in members}
            home = self._homes.get((worker_id.group, worker_id.index), "")
            chosen = home if home in loads else min(loads, key=lambda name: (loads[name], self.random.random()))
            self._homes[(worker_id.group, worker_id.index)] = chosen
            host = self.hosts[chosen]
            policy, num_bytes = config.committed_policy(), 0
            if policy:
                self._roots[policy] = chosen
                num_bytes = STATE_BYTES if self.replicas[policy].version > host.commits[policy].version else 0
            arrival = self.network.arrival(CONTROLLER, chosen, num_bytes)
            self.at(arrival + START_SECONDS, partial(self._build, worker_id, config, seed, host))

    def _build(self, worker_id: WorkerId, config: WorkerConfig, seed: int, host: SimHost) -> None:
        if not host.alive or not host.member:
            if host.member or not any(event for event in self._events):
                self._died(worker_id, "its host is lost", blameless=True)
            return
        if host.agent_frozen:
            host.outbox.append(lambda: self._build(worker_id, config, seed, host))
            return
        policy = config.committed_policy()
        if policy and self.replicas[policy].version > host.commits[policy].version:
            committed = self.replicas[policy].read()
            assert committed is not None
            host.commits[policy].write(*committed)
            host.commits[policy].set_durable(committed[0])
        sender = _Sender(self, worker_id, host)
        names = NameView(lambda name, address: sender(Register(name, address)))
        context = WorkerContext(
            worker_id,
            seed,
            self._meters[worker_id],
            names,
            SimTransport(self.network, host.name),
            dict(host.stores),
            host.commits,
            sender,
            False,
            Path("/nonexistent"),
        )
        self._contexts.append(context)
        self.processes[worker_id] = Process(worker_id, host, names, context, config.build(context))
        sender(Ready())

    def _report(self, process: Process, message: Any) -> None:
        _Sender(self, process.worker_id, process.host)(message)

    def receive(self, host: SimHost, event: Event) -> None:
        """Handle a report that arrives at the controller."""
        if host.member:
            self._events.append(event)

    def _died(self, worker_id: WorkerId, reason: str, clean: bool = False, blameless: bool = False) -> None:
        self._events.append(Died(worker_id, reason, clean, blameless))

    def end(self, worker_id: WorkerId, reason: str, clean: bool = False) -> None:
        """End a process. Its agent reports it; the kernel closes its channels."""
        process = self.processes.pop(worker_id, None)
        if process is None:
            return
        process.worker.close()
        host = process.host
        self._by_agent(host, lambda: self.receive(host, Died(worker_id, reason, clean)))

    def _by_agent(self, host: SimHost, action: Callable[[], None]) -> None:
        """Let the agent of a host send something to the controller."""
        if not host.alive:
            return
        if host.agent_frozen:
            host.outbox.append(lambda: self._by_agent(host, action))
            return
        self.at(self.network.arrival(host.name, CONTROLLER, 100), action)

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        for worker_id in worker_ids:
            process = self.processes.get(worker_id)
            if process is not None:
                self._to_agent(process.host, partial(self._deliver, worker_id, message))

    def _to_agent(self, host: SimHost, action: Callable[[], None]) -> None:
        def arrive() -> None:
            if host.agent_frozen:
                host.outbox.append(arrive)
            elif host.alive and host.member:
                action()

        if host.alive and host.member:
            self.at(self.network.arrival(CONTROLLER, host.name, 100), arrive)

    def _deliver(self, worker_id: WorkerId, message: ToWorker) -> None:
        process = self.processes.get(worker_id)
        if process is None:
            return
        if process.frozen:  # the message waits in its socket
            self.after(SLICE_SECONDS, partial(self._deliver, worker_id, message))
        elif isinstance(message, Names):
            process.names.replace(message.entries)
        elif isinstance(message, Stop):
            self.end(worker_id, "stopped", clean=True)

    def kill(self, worker_id: WorkerId) -> None:
        if self._waiting.pop(worker_id, None) is not None:
            self._died(worker_id, "killed")
            return
        process = self.processes.get(worker_id)
        if process is not None:
            self._to_agent(process.host, lambda: self.end(worker_id, "killed"))

    def meter(self, worker_id: WorkerId) -> Meter:
        return self._meters[worker_id]

    def pid(self, worker_id: WorkerId) -> int:
        return 1 if worker_id in self.processes else 0

    def usage(self, worker_id: WorkerId) -> Usage:
        process = self.processes.get(worker_id)
        return Usage(stopped=process is not None and process.frozen and not process.host.agent_frozen)

    # States and parameters

    def _upload(self) -> None:
        """Send committed states to the controller, as agents do: the next one after the last was confirmed."""
        for host in list(self.hosts.values()):
            if not host.alive or host.agent_frozen or not host.member:
                continue
            for policy in self.policies:
                version = host.commits[policy].version
                if policy in host.uploading or version <= host.uploaded.get(policy, -1):
                    continue
                committed = host.commits[policy].read()
                assert committed is not None
                host.uploading[policy] = host.uploaded[policy] = committed[0]
                arrival = self.network.arrival(host.name, CONTROLLER, STATE_BYTES)
                self.at(arrival, partial(self._store, host, policy, committed))

    def _store(self, host: SimHost, policy: str, committed: tuple[int, Any, Any]) -> None:
        if not host.member:
            return
        if committed[0] > self.replicas[policy].version:
            self.replicas[policy].write(*committed)
        self._to_agent(host, lambda: self._confirmed(host, policy, committed))

    def _confirmed(self, host: SimHost, policy: str, committed: tuple[int, Any, Any]) -> None:
        host.uploading.pop(policy, None)
        host.commits[policy].set_durable(committed[0])
        host.confirmed[policy] = committed[0], committed[1]["parameters"]

    def _relay(self) -> None:
        """Send confirmed parameters from the trainer's host to the others, as relays do: the newest version, once the
        previous one has arrived."""
        for policy, name in self._roots.items():
            root = self.hosts[name]
            version, parameters = root.confirmed.get(policy, (-1, None))
            if not root.alive or root.agent_frozen:
                continue
            for other in self.hosts.values():
                outdated = other.alive and other.member and other.stores[policy].version < version
                if other is not root and outdated and (policy, id(other)) not in root.offered:
                    root.offered.add((policy, id(other)))
                    arrival = self.network.arrival(name, other.name, STATE_BYTES)
                    self.at(arrival, partial(self._push, root, other, policy, version, parameters))

    def _push(self, root: SimHost, other: SimHost, policy: str, version: int, parameters: Any) -> None:
        if other.agent_frozen and other.alive:
            other.outbox.append(lambda: self._push(root, other, policy, version, parameters))
            return
        root.offered.discard((policy, id(other)))
        current = self.hosts.get(self._roots.get(policy, "")) is root
        if other.alive and other.member and current and version > other.stores[policy].version:
            other.stores[policy].push(version, parameters)

    # Faults

    def kill_agent(self, host: SimHost) -> None:
        """Kill a host's agent. The kernel closes its connections and its workers end with it."""
        if host.alive:
            host.alive = False
            for process in [p for p in self.processes.values() if p.host is host]:
                del self.processes[process.worker_id]
                process.worker.close()
            self.at(self.network.arrival(host.name, CONTROLLER), lambda: self._lose(host, "its agent ended"))
            self.after(REJOIN_SECONDS, lambda: self._join(host.name))

    def power_off(self, host: SimHost, seconds: float) -> None:
        if host.alive:
            host.alive = False
            self.network.power_off(host.name)
            for process in [p for p in self.processes.values() if p.host is host]:
                del self.processes[process.worker_id]
                process.worker.close()
            self.after(LOST_SECONDS, lambda: self._lose(host, "no heartbeat"))
            self.after(max(seconds, LOST_SECONDS) + REJOIN_SECONDS, lambda: self._join(host.name))

    def freeze_agent(self, host: SimHost, seconds: float, with_workers: bool) -> None:
        """Stop a host's agent (SIGSTOP), or all of its processes, for some time."""
        if not host.alive or host.agent_frozen:
            return
        host.agent_frozen = True
        frozen = [p for p in self.processes.values() if p.host is host and with_workers]
        for process in frozen:
            process.frozen = True
        if seconds > LOST_SECONDS:
            self.after(LOST_SECONDS, lambda: self._lose(host, "no heartbeat"))
        self.after(seconds, lambda: self._thaw(host, frozen))

    def _thaw(self, host: SimHost, frozen: Sequence[Process]) -> None:
        host.agent_frozen = False
        for process in frozen:
            process.frozen = False
        if host.alive and not host.member:  # its workers run until the agent has read that it was dropped
            self.after(2 * SLICE_SECONDS, lambda: self.kill_agent(host))
        outbox, host.outbox = host.outbox, []
        for action in outbox:
            action()

    def freeze_worker(self, worker_id: WorkerId, seconds: float) -> None:
        process = self.processes.get(worker_id)
        if process is not None and not process.frozen:
            process.frozen = True
            self.after(seconds, lambda: setattr(process, "frozen", process.host.agent_frozen))

    def _lose(self, host: SimHost, reason: str) -> None:
        if not host.member or self.hosts.get(host.name) is not host:
            return
        host.member = False
        self._events.append(HostEvent(f"host {host.name} is lost: {reason}"))
        for worker_id, home in [(w, self._homes.get((w.group, w.index))) for w in self._meters]:
            started = worker_id not in self._waiting
            if home == host.name and started and self._is_newest(worker_id):
                self._died(worker_id, f"its host {host.name} is lost", blameless=True)
                self._homes.pop((worker_id.group, worker_id.index), None)

    def _is_newest(self, worker_id: WorkerId) -> bool:
        same = [w for w in self._meters if (w.group, w.index) == (worker_id.group, worker_id.index)]
        return max(same, key=lambda w: w.incarnation) == worker_id

    def _join(self, name: str) -> None:
        old = self.hosts[name]
        if old.member:  # the controller has not noticed yet: the new agent replaces the old one
            self._lose(old, "another agent joined")
        self._retired.append(old)
        self.hosts[name] = SimHost(name, self.policies)

    def close(self) -> None:
        for process in list(self.processes.values()):
            process.worker.close()
        self.processes.clear()
        for context in self._contexts:
            context.wait_set.close()
        for host in (*self.hosts.values(), *self._retired):
            host.close()
        for snapshot in self.replicas.values():
            snapshot.memory.close()


@dataclass
class _Sender:
    """Sends the reports of a worker through its agent to the controller."""

    scheduler: SimScheduler
    worker_id: WorkerId
    host: SimHost

    def __call__(self, message: Any) -> None:
        event = WorkerMessage(self.worker_id, message)
        self.scheduler._by_agent(self.host, lambda: self.scheduler.receive(self.host, event))
