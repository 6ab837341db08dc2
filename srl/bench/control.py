"""`srl bench control`: a real controller with many simulated workers, over the real host agent protocol.

One process simulates the agents of all hosts. Each agent joins over TLS, reports every worker that it is
told to start as ready, and sends all gauges in one message per heartbeat. Only the workers' actual work is left out.
"""

from __future__ import annotations

import os
import secrets
import select
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from srl.api.control import FromWorker, Ready, Register
from srl.api.experiment import Experiment, Resources, WorkerGroup
from srl.api.transport import ChannelClosed
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.meter import PHASE_START, WORDS, Counter
from srl.bench.options import BenchOptions
from srl.controller.controller import Controller
from srl.schedulers.hosts.agent_connections import listen_for_agents
from srl.schedulers.hosts.engine import Engine
from srl.schedulers.hosts.messages import (
    AGENTS,
    HEARTBEAT_SECONDS,
    USAGE,
    AgentHeartbeat,
    AgentSettings,
    Join,
    Messages,
    RelayAddress,
    RunEnded,
    StartWorker,
    WorkerReport,
    codec,
    own_version,
)
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.worker_logs import LogFiles
from srl.transports.join_ticket import IDENTITY, JOIN, Identity, JoinTicket
from srl.transports.tls import PREFIX, TlsTransport

TIMEOUT_SECONDS = 300.0
WORKERS_PER_SERVER = 100  # one in this many workers registers an endpoint, whose address all workers receive


@dataclass(frozen=True)
class SimulatedWorkerConfig(WorkerConfig):
    """Config of a simulated worker, which is never built."""

    serves: bool = False

    def build(self, context: Any) -> Any:
        raise NotImplementedError("simulated workers are never built")


class SimulatedAgent:
    """One host with its workers, as the controller sees it."""

    def __init__(self, ticket: JoinTicket, number: int, cpus: float) -> None:
        transport = TlsTransport(ticket, AGENTS, codec=codec, connect_wait=10.0)
        self._name = f"host{number:04}"
        self.channel = transport.connect(f"{PREFIX}{ticket.address}", Messages)
        self.channel.send(Join(self._name, own_version(), time.monotonic_ns(), cpus, 0.0, 0))
        self.channel.send(RelayAddress(f"tcp:{self._name}:1"))
        self._worker_ids: list[WorkerId] = []
        self._num_sent = 0
        self._num_listed = 0
        self._last_heartbeat = 0.0
        self._gauges = np.zeros((0, WORDS), np.int64)

    def poll(self, now: float) -> bool:
        """Answer pending messages. Returns False once the controller has dismissed the agent."""
        while (received := self.channel.receive()) is not None:
            message = received[0]
            if isinstance(message, RunEnded):
                return False
            if isinstance(message, StartWorker):
                self._start(message)
        if now - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = now
            self._send_heartbeat()
        self.channel.flush()
        return True

    def _start(self, message: StartWorker) -> None:
        worker_id = message.worker_id
        self._worker_ids.append(worker_id)
        if message.config["fields"].get("serves"):
            self._send(worker_id, Register(f"serve/{worker_id.name}", f"tcp:{self._name}:{worker_id.index}"))
        self._send(worker_id, Ready())

    def _send(self, worker_id: WorkerId, message: FromWorker) -> None:
        self._num_sent += 1
        self.channel.send(WorkerReport(worker_id, message, self._num_sent))

    def _send_heartbeat(self) -> None:
        count = len(self._worker_ids)
        if count != len(self._gauges):
            self._gauges = np.zeros((count, WORDS), np.int64)
        self._gauges[:, PHASE_START] = time.monotonic_ns()
        self._gauges[:, Counter.PROGRESS] += 1
        usage = np.ones((count, len(USAGE)))
        usage[:, -1] = 0.0
        worker_ids = None if self._num_listed == count else list(self._worker_ids)
        self._num_listed = count
        self.channel.send(AgentHeartbeat(worker_ids), [self._gauges, usage])


class SimulatedHosts(Engine):
    """The benchmark's engine, which simulates all agents in a separate process."""

    def __init__(self, num_hosts: int, cpus: float) -> None:
        self._num_hosts = num_hosts
        self._cpus = cpus
        self._child = 0

    def start(self, new_ticket: Callable[[], JoinTicket]) -> None:
        self._child = os.fork()
        if self._child == 0:
            try:
                simulate(new_ticket(), self._num_hosts, self._cpus)
            finally:
                os._exit(0)

    def poll(self) -> str | None:
        return None

    def start_failed(self) -> bool:
        return False

    def hint(self) -> str:
        return "this command simulates them"

    def close(self) -> None:
        if self._child:
            os.waitpid(self._child, 0)
            self._child = 0


def simulate(ticket: JoinTicket, num_hosts: int, cpus: float) -> None:
    agents = []
    for number in range(num_hosts):
        agents.append(SimulatedAgent(ticket, number, cpus))
        for agent in agents:
            agent.poll(0.0)
    while agents:
        select.select([agent.channel for agent in agents], [], [], HEARTBEAT_SECONDS / 4)
        now = time.monotonic()
        for agent in list(agents):
            try:
                if not agent.poll(now):
                    raise ChannelClosed("dismissed")
            except ChannelClosed:
                agent.channel.close()
                agents.remove(agent)


def control(options: BenchOptions) -> dict[str, Any]:
    """Measure the time until all workers are registered, and the controller's load afterwards."""
    if options.workers < 1 or options.hosts < 1:
        raise ValueError(f"expected at least one worker and one host, found {options.workers} and {options.hosts}")
    with tempfile.TemporaryDirectory() as directory:
        return _measure(options, Path(directory))


def _measure(options: BenchOptions, directory: Path) -> dict[str, Any]:
    process = psutil.Process()
    memory_before = process.memory_info().rss
    num_servers = -(-options.workers // WORKERS_PER_SERVER)
    groups = [WorkerGroup("servers", SimulatedWorkerConfig(serves=True), num_servers)]
    if options.workers > num_servers:
        groups.append(WorkerGroup("actors", SimulatedWorkerConfig(), options.workers - num_servers, Resources()))
    experiment = Experiment("control", 0, tuple(groups), ("policy",))
    memory = RunMemory.create(experiment.policies)
    identity = Identity.create(directory / IDENTITY)
    listener, join_file = listen_for_agents("control", identity, directory / JOIN)
    engine = SimulatedHosts(options.hosts, -(-options.workers // options.hosts) + 1.0)
    settings = AgentSettings("control", secrets.token_bytes(32), path=tuple(sys.path))
    began = time.monotonic()
    scheduler = HostsScheduler(
        settings, memory, listener, join_file, engine, options.hosts, LogFiles(directory), TIMEOUT_SECONDS
    )
    controller = Controller(experiment, scheduler, str(directory), directory / "runtime")
    try:
        controller.start()
        _until_running(controller, began)
        registered = time.monotonic() - began
        busy, ticks, slowest = _steady(controller, options.seconds)
    finally:
        controller.shut_down()
        memory.close()
    return {
        "workers": options.workers,
        "hosts": options.hosts,
        "registered_seconds": round(registered, 3),
        "controller_share_of_a_core": round(busy, 3),
        "ticks_per_second": round(ticks, 1),
        "slowest_tick_seconds": round(slowest, 3),
        "memory_kb_per_worker": round((process.memory_info().rss - memory_before) / 1024 / options.workers, 1),
        "restarts": controller.status().restarts,
    }


def _until_running(controller: Controller, began: float) -> None:
    while controller.state == "starting":
        controller.tick()
        if time.monotonic() - began > TIMEOUT_SECONDS:
            raise RuntimeError(f"not all workers registered within {TIMEOUT_SECONDS:.0f} s")
    if controller.state != "running":
        raise RuntimeError(controller.reason)


def _steady(controller: Controller, seconds: float) -> tuple[float, float, float]:
    """Return the fraction of a core used, ticks per second, and the CPU time of the slowest tick."""
    began, cpu_before, ticks, slowest = time.monotonic(), time.process_time(), 0, 0.0
    while (elapsed := time.monotonic() - began) < seconds:
        before = time.process_time()
        if not controller.tick():
            raise RuntimeError(controller.reason)
        slowest = max(slowest, time.process_time() - before)
        ticks += 1
    return (time.process_time() - cpu_before) / elapsed, ticks / elapsed, slowest
