"""Handling of lost hosts: reports their workers as dead, chooses hosts for the replacements, and reports workers that
wait for a host. As with any dead worker, the controller starts the replacements."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srl.api.scheduler import Died, HostEvent
from srl.schedulers.hosts.agent_connections import AgentConnections
from srl.schedulers.hosts.placement import HostCapacity, PlacedWorker, choose, why_waiting, workers_to_move

NO_HOST_SECONDS = 60.0
"""Time without any host after which a run fails. Agents that lost the controller reconnect within seconds, and engines
restart their agents."""
RECENT_SECONDS = 60.0
MAX_SHARE_LOST = 0.2
HOLD_SECONDS = 10.0  # after many losses, how long workers wait for their hosts to return, counted from the last loss
MAX_STARTS = 4
START_SECONDS = 30.0  # after this, a worker that is still not ready no longer keeps others from starting
WAIT_SECONDS = HOLD_SECONDS  # after this, a message is shown: a worker that waits longer may wait forever
Key = tuple[str, int]  # group and index of a worker


class HostLossHandler:
    """Handler of host losses. The controller replaces dead workers; this class chooses the hosts for the replacements,
    and the workers to move once hosts have joined again."""

    def __init__(self, workers: Mapping[Key, PlacedWorker], agents: AgentConnections) -> None:
        self._workers = workers
        self._agents = agents
        self._previous_hosts: dict[Key, str] = {}
        self._losses, self._starts, self._waits = HostLosses(), StartLimiter(), WaitReports()

    def host_lost(self, host: str, reason: str) -> tuple[HostEvent, list[Died]]:
        """Return a report on the loss, and the deaths of the host's workers."""
        self._losses.add(time.monotonic())
        lost = [worker.worker_id for worker in self._workers.values() if worker.host == host]
        deaths = [Died(worker_id, f"its host {host} is lost", blameless=True) for worker_id in lost]
        return HostEvent(f"host {host} is lost with {len(lost)} workers: {reason}", lost=True), deaths

    def choose_host(self, worker: PlacedWorker) -> HostCapacity | None:
        """Choose a worker's host; None if it must wait. A replacement prefers its previous host, and may share CPUs.
        A trainer prefers the controller's host, so that the loss of another host does not interrupt its updates."""
        now = time.monotonic()
        is_replacement = worker.worker_id.incarnation > 0
        share_cpus = is_replacement and not self._losses.hold(now, len(self._agents.hosts))
        previous = self._previous_hosts.get(worker.key, "")
        is_trainer = bool(worker.policy)
        capacity = choose(self._agents.capacities(), worker.resources, previous, share_cpus, with_controller=is_trainer)
        limited = is_replacement and not is_trainer  # trainers wait for each other while they are built
        if capacity is None or (limited and not self._starts.start(capacity.host, worker.key, now)):
            return None  # it waits until a host joins, another worker ends, or other workers on that host are ready
        return capacity

    def placed(self, worker: PlacedWorker) -> None:
        self._previous_hosts[worker.key] = worker.host

    def started(self, host: str, worker: Key) -> None:
        """Stop counting a worker as starting, because it is ready or dead."""
        self._starts.end(host, worker)

    def workers_to_move(self) -> list[PlacedWorker]:
        """Return the workers that share CPUs because a host was lost, and now fit on other hosts. Trainers stay."""
        movable = [worker for worker in self._workers.values() if worker.host and not worker.policy]
        return workers_to_move(self._agents.capacities(), movable)

    def report_waiting(self, waiting: Iterable[Key]) -> list[HostEvent]:
        """Return reports on workers that have waited a long time for a host."""
        reasons = {}
        for key in self._waits.due(waiting, time.monotonic()):
            worker = self._workers[key]
            share_cpus = worker.worker_id.incarnation > 0
            if reason := why_waiting(self._agents.capacities(), worker.resources, share_cpus):
                reasons[key] = reason
        return [HostEvent(line) for line in self._waits.report(reasons)]

    def no_host_left(self) -> bool:
        """Return whether the run has had no host for NO_HOST_SECONDS."""
        return self._losses.no_host_left(time.monotonic(), len(self._agents.hosts))


@dataclass
class HostLosses:
    """Recent losses of a run's hosts."""

    _recent: deque[float] = field(default_factory=deque)
    _no_host_since: float | None = None

    def add(self, now: float) -> None:
        self._recent.append(now)

    def hold(self, now: float, num_hosts: int) -> bool:
        """Return whether workers should wait instead of sharing the CPUs of the `num_hosts` remaining hosts. If more
        than a fifth of all hosts were lost within a minute, the cause is probably something they share, such as a
        switch: they will be back, and the remaining hosts could not carry the whole load. The loss of a single host
        never makes workers wait."""
        while self._recent and now - self._recent[0] > RECENT_SECONDS:
            self._recent.popleft()
        many = len(self._recent) > max(1.0, MAX_SHARE_LOST * (num_hosts + len(self._recent)))
        return many and now - self._recent[-1] < HOLD_SECONDS

    def no_host_left(self, now: float, num_hosts: int) -> bool:
        if num_hosts:
            self._no_host_since = None
        elif self._no_host_since is None:
            self._no_host_since = now
        return self._no_host_since is not None and now - self._no_host_since > NO_HOST_SECONDS


@dataclass
class StartLimiter:
    """Limit on the replacements that start on a host at once, so that the workers already there keep running."""

    _starting: dict[str, dict[Key, float]] = field(default_factory=dict)

    def start(self, host: str, worker: Key, now: float) -> bool:
        """Return whether the worker may start on this host now; if so, it counts as starting."""
        starting = self._starting.setdefault(host, {})
        if sum(now - began < START_SECONDS for began in starting.values()) >= MAX_STARTS:
            return False
        starting[worker] = now
        return True

    def end(self, host: str, worker: Key) -> None:
        self._starting.get(host, {}).pop(worker, None)


@dataclass
class WaitReports:
    """Workers that are waiting for a host. Each is reported once per wait."""

    _since: dict[Key, float] = field(default_factory=dict)
    _reported: set[Key] = field(default_factory=set)

    def due(self, waiting: Iterable[Key], now: float) -> list[Key]:
        """Return the workers that have waited a long time and have not been reported."""
        self._since = {key: self._since.get(key, now) for key in waiting}
        self._reported &= self._since.keys()
        return [key for key, since in self._since.items() if now - since > WAIT_SECONDS and key not in self._reported]

    def report(self, reasons: Mapping[Key, str]) -> list[str]:
        """Mark these workers as reported, and return one line per reason."""
        self._reported.update(reasons)
        lines = []
        for reason in sorted(set(reasons.values())):
            (group, index), *others = sorted(key for key, value in reasons.items() if value == reason)
            workers = f"{group}/{index} and {len(others)} more wait" if others else f"{group}/{index} waits"
            lines.append(f"{workers}: {reason}")
        return lines
