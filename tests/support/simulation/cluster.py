"""A simulated cluster: real agents and workers on simulated machines, and the faults that befall them."""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import srl.base.meter
import srl.schedulers.agent.agent as agent_module
import srl.schedulers.agent.connection as connection_module
import srl.schedulers.hosts.agent_connections as connections_module
import srl.schedulers.hosts.messages as messages_module
import srl.schedulers.hosts.remote_meters as meters_module
import srl.schedulers.hosts.scheduler as scheduler_module
from srl.api.transport import ChannelClosed
from srl.api.worker import WorkerConfig, WorkerId
from srl.schedulers.agent.agent import Agent
from srl.schedulers.agent.join import RETRY_SECONDS
from srl.schedulers.hosts.engine import Engine
from srl.schedulers.hosts.messages import Join, JoinAccepted, Messages, own_version
from srl.schedulers.local.worker_logs import LogStore
from srl.schedulers.local.zygote import SUPERVISOR_SECONDS
from srl.transports.join_ticket import JoinFile, JoinTicket
from support.manual_clock import ManualClock
from support.simulation.network import PREFIX, Network, SimChannel, SimTransport
from support.simulation.processes import NoWaitSet, Process, SimProcesses
from support.simulation.ranks import RankGroup

CONTROLLER = "controller"
AGENTS = "agents"
FINE_SECONDS, COARSE_SECONDS = 0.1, 1.0
"""Virtual time between two polls of a process: around faults, and while a schedule waits for a timeout."""
MAX_WORKERS = 32
HEARTBEAT_SECONDS = 0.5
"""Longer than in a real cluster, because heartbeats would be a third of the work."""
RESTART_SECONDS = 1.0
"""Time after which an agent that was killed is started again."""


class NoDirectory(type(Path())):  # type: ignore[misc]
    """A directory that nothing is written to."""

    def mkdir(self, *_: Any, **__: Any) -> None: ...


class NoLogs:
    @staticmethod
    def send(channel: Any) -> None: ...


class NoEngine(Engine):
    """Machines join by themselves."""

    def start(self, new_ticket: Callable[[], JoinTicket]) -> None: ...

    def poll(self) -> str | None:
        return None

    def start_failed(self) -> bool:
        return False

    def hint(self) -> str:
        return ""

    def close(self) -> None: ...


class NoJoinFile(JoinFile):
    """The join file of a run whose machines need none."""

    proof_of_hosts = b""

    def __init__(self) -> None: ...

    def renew(self) -> None: ...

    def remove(self) -> None: ...


class Machine:
    """A host: its power, its agent, and the agent's attempts to join the run."""

    def __init__(self, cluster: Cluster, name: str, cpus: float) -> None:
        self.cluster = cluster
        self.name = name
        self.cpus = cpus
        self.powered = True
        self.frozen = False
        self.agent: Agent | None = None
        self.dirty = False  # whether a worker has done something that its agent may have to pass on
        self._joining: SimChannel | None = None
        self._poll_at = 0.0
        self._arrivals: list[float] = []  # a heap
        self.transport = SimTransport(cluster.network, name, partial(heapq.heappush, self._arrivals))

    @property
    def processes(self) -> dict[WorkerId, Process]:
        return self.agent._processes.processes if self.agent is not None else {}  # type: ignore[attr-defined]

    def poll(self, now: float) -> None:
        if not self.powered or self.frozen:
            return
        arrived = self._arrivals and self._arrivals[0] <= now
        if not (arrived or self.dirty or now >= self._poll_at):
            return
        while self._arrivals and self._arrivals[0] <= now:
            heapq.heappop(self._arrivals)
        self.dirty, self._poll_at = False, now + HEARTBEAT_SECONDS
        if self.agent is None:
            try:
                self._join()
            except ChannelClosed:
                self._joining, self._poll_at = None, now + RETRY_SECONDS
            return
        try:
            if self.agent.poll(0.0):
                return
        except ChannelClosed:
            pass
        self._end_agent(RETRY_SECONDS)

    def _join(self) -> None:
        """Do what `srl.schedulers.agent.join` does, without waiting."""
        connect = partial(self.transport.connect, f"{PREFIX}{CONTROLLER}/{AGENTS}", Messages)
        if self._joining is None:
            self._joining = connect()
            self._joining.send(self._join_message())
        received = self._joining.receive()
        if received is not None:
            channel, self._joining = self._joining, None
            if not isinstance(received[0], JoinAccepted):
                channel.close()
                raise ChannelClosed("refused")
            self.agent = Agent(channel, received[0], self.name, self._join_message, connect)

    def _join_message(self) -> Join:
        return Join(self.name, own_version(), time.monotonic_ns(), self.cpus, 0.0, 0)

    def _end_agent(self, restart_after: float) -> None:
        """End the agent; its workers end with it."""
        agent, self.agent = self.agent, None
        if agent is not None:
            agent.close()
        if self._joining is not None:
            self._joining.close()
            self._joining = None
        self._arrivals.clear()
        self._poll_at = self.cluster.clock.now() + restart_after

    # Faults

    def kill_agent(self) -> None:
        if self.powered:
            self.frozen = False
            self._end_agent(RESTART_SECONDS)

    def power_off(self, seconds: float) -> None:
        if self.powered:
            self.powered, self.frozen = False, False
            self.cluster.network.power_off(self.name)
            self._end_agent(0.0)
            self.cluster.after(seconds, lambda: setattr(self, "powered", True))

    def freeze(self, seconds: float, with_workers: bool) -> None:
        """Stop the agent (SIGSTOP), or all processes of the host, for some time."""
        if not self.powered or self.frozen:
            return
        self.frozen = True
        agent, frozen = self.agent, list(self.processes.values()) if with_workers else []
        for process in frozen:
            process.frozen = True
        self.cluster.after(seconds, lambda: self._thaw(agent, frozen))
        if not with_workers and seconds > SUPERVISOR_SECONDS:
            self.cluster.after(SUPERVISOR_SECONDS, lambda: self._end_workers(agent))

    def _end_workers(self, agent: Agent | None) -> None:
        """End the workers of a frozen agent, as their zygote does."""
        if self.agent is agent:
            for process in list(self.processes.values()):
                process.end("its agent is frozen")

    def _thaw(self, agent: Agent | None, frozen: Sequence[Process]) -> None:
        if self.agent is agent:
            self.frozen = False
        for process in frozen:
            process.frozen = False


class Cluster:
    """Machines on a virtual clock. `run` is what passes while the controller waits."""

    def __init__(self, clock: ManualClock, cpus: Mapping[str, float], configs: Mapping[str, WorkerConfig], seed: int):
        self.clock = clock
        self.random = random.Random(seed)
        self.network = Network(clock, self.random)
        self.configs = configs
        self.machines = {name: Machine(self, name, number) for name, number in cpus.items()}
        self.crashes: list[str] = []
        """Tracebacks of workers that raised an error."""
        self.slice = FINE_SECONDS
        self.on_step: Callable[[], None] = lambda: None
        self._ranks: dict[tuple[str, int], RankGroup] = {}
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.clock.now() + seconds, next(self._order), action))

    def processes(self) -> list[Process]:
        return [process for machine in self.machines.values() for process in machine.processes.values()]

    def run(self, seconds: float) -> None:
        """Let every process except the controller run for some time."""
        until = self.clock.now() + seconds
        while self.clock.now() < until - 1e-9:
            self.clock.advance(self.slice)
            now = self.clock.now()
            while self._agenda and self._agenda[0][0] <= now:
                heapq.heappop(self._agenda)[2]()
            polled: list[Machine | Process] = [*self.machines.values(), *self.processes()]
            self.random.shuffle(polled)
            for one in polled:
                one.poll(now)
            self.on_step()

    def _wait(self, seconds: float) -> range:
        self.run(seconds)
        return range(len(self.network.ends))  # as if every channel were ready

    def rank_group(self, worker_id: WorkerId, size: int) -> RankGroup:
        return self._ranks.setdefault((worker_id.group, worker_id.incarnation), RankGroup(size))

    @contextmanager
    def in_place_of_the_system(self) -> Iterator[None]:
        """Replace the clock, sockets, child processes and wait sets that agents and the controller use."""
        clock = self.clock
        wait_set = type("WaitSet", (NoWaitSet,), {"wait": lambda _, timeout: self._wait(timeout)})
        seams: list[tuple[Any, str, Any]] = [
            (time, "monotonic", clock.now),
            (time, "monotonic_ns", lambda: int(clock.now() * 1e9)),
            (time, "time", clock.wall),
            (time, "time_ns", lambda: int(clock.wall() * 1e9)),
            (srl.base.meter, "monotonic_ns", lambda: int(clock.now() * 1e9)),
            (meters_module, "MAX_WORKERS", MAX_WORKERS),
            (messages_module, "HEARTBEAT_SECONDS", HEARTBEAT_SECONDS),
            (connections_module, "HEARTBEAT_SECONDS", HEARTBEAT_SECONDS),
            (connections_module, "WaitSet", wait_set),
            (connections_module, "peer_activity", self.network.peer_activity),
            (connection_module, "peer_activity", self.network.peer_activity),
            (agent_module, "WaitSet", NoWaitSet),
            (agent_module, "make_runtime", lambda run: NoDirectory("/nonexistent")),
            (agent_module, "LogUpload", lambda *_: NoLogs),
            (agent_module, "TcpTransport", lambda secret, run, bind, **_: self.machines[bind].transport),
            (scheduler_module, "to_data", lambda config: None),  # workers are built from `configs`
            (agent_module, "ProcessScheduler", self._processes),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in seams]
        try:
            for module, name, replacement in seams:
                setattr(module, name, replacement)
            yield
        finally:
            for module, name, original in before:
                setattr(module, name, original)

    def _processes(self, run: str, memory: Any, runtime: Path, logs: LogStore, *rest: Any) -> SimProcesses:
        network = rest[-1]
        return SimProcesses(self, self.machines[network.bind], memory)

    def close(self) -> None:
        for machine in self.machines.values():
            machine._end_agent(0.0)
