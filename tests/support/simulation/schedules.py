"""Random schedules of faults on a simulated cluster, and the invariants that hold during and after them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from srl.api.control import JournalEntry, UpdateRecord
from srl.api.parameters import ParameterStore
from srl.base.tree import Array
from srl.controller.controller import Controller, Report
from srl.controller.takeover import ControllerState
from srl.schedulers.agent.uploads import LogUpload
from srl.schedulers.hosts.host_loss import HOLD_SECONDS
from srl.schedulers.hosts.messages import AGENT_TIMEOUT, FROZEN_TIMEOUT, AgentSettings, Messages
from srl.schedulers.hosts.scheduler import HostsScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.storage.update_journal import check
from srl.workers.trainer.worker import TrainerWorkerConfig
from support.manual_clock import ManualClock
from support.simulation.cluster import (
    AGENTS,
    COARSE_SECONDS,
    CONTROLLER,
    FINE_SECONDS,
    RESTART_SECONDS,
    Cluster,
    Machine,
    NoEngine,
    NoJoinFile,
)
from support.simulation.experiments import random_experiment
from support.simulation.network import SimTransport

START_LIMIT = 60.0  # one actor that waits 0.6 s for each decision of two policies needs 32 s
RECOVERY_LIMIT = 20.0
"""Virtual seconds within which updates must follow once the last fault is over and every loss was declared."""
REPORT_LIMIT = 5.0
DECLARED, FROZEN = AGENT_TIMEOUT + 1.0, FROZEN_TIMEOUT + 1.0
"""Virtual seconds after which a host that does not answer, or one that is frozen, has been declared lost."""
RECORD_SECONDS = 1.0
CHECK_SECONDS = 0.5  # between looks for stuck workers; longer than in a real run, because they cost time
CHECKPOINT_SECONDS = 2.0
HEADLESS_SECONDS = 60.0
TAKEOVER_SECONDS = 10.0
WORKER_FAULTS = ("kill", "freeze")
HOST_FAULTS = ("agent", "power", "stop-agent", "stop-host")
NETWORK_FAULTS = ("cut", "one-way", "reset", "half-open", "slow")
CONTROLLER_FAULTS = ("stop-controller", "kill-controller")
CLOSE_SECONDS = 1.0  # time after a fault during which processes are polled often
SHORT, FOREVER = (0.3, 1.0, 3.0), 1000.0


@dataclass
class Violation(Exception):
    """An invariant does not hold. `seed` replays the schedule."""

    seed: int
    what: str
    log: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}\n  " + "\n  ".join(self.log)


class Simulation:
    """One schedule: a run on a few hosts, random faults, and a time without faults in which it must recover."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.experiment = random_experiment(self.random)
        self.policies = self.experiment.policies
        num_workers = sum(group.count for group in self.experiment.groups)
        hosts = [f"h{index}" for index in range(self.random.randint(1, 3))]
        spare = self.random.choice((0, 1, num_workers))
        cpus = {host: float(-(-num_workers // len(hosts)) + spare) for host in hosts}
        configs = {group.name: group.config for group in self.experiment.groups}
        self.cluster = Cluster(self.clock, cpus, configs, seed)
        for source in (CONTROLLER, *hosts):
            for target in (CONTROLLER, *hosts):
                self.cluster.network.link(source, target).latency = self.random.choice((0.001, 0.001, 0.05, 0.3))
        self.cluster.on_step = self._check_step
        self.log: list[str] = []
        self.entries: list[JournalEntry] = []
        self._recorded: dict[str, list[int]] = {}  # policy -> updates in the record of the run
        self._reported: set[tuple[str, int, int, str]] = set()
        self._durable: dict[str, tuple[int, bytes]] = {}  # policy -> newest durable version and its parameters
        self._history: dict[tuple[str, int], bytes] = {}  # parameters of every version that was durable
        self._seen: dict[ParameterStore, int] = {}  # the version checked last
        self._recorded_at = self._saved_at = 0.0
        self._state: ControllerState | None = None
        self._checkpoints: dict[str, tuple[int, dict[str, Array], dict[str, object]]] = {}
        self._losses = 0
        self._away = False  # whether a host does not come back

    # The controller

    def _start_controller(self, takeover: ControllerState | None = None) -> None:
        self.memory = RunMemory.create(self.policies)
        for policy, committed in self._checkpoints.items():
            self.memory.commits[policy].write(*committed)
        listener = SimTransport(self.cluster.network, CONTROLLER).listen(AGENTS, Messages)
        settings = AgentSettings("simulated", b"", headless=HEADLESS_SECONDS)
        reports = None if takeover is None else takeover.cluster.reports
        num_hosts, logs = len(self.cluster.machines), LogUpload("")
        self.scheduler = HostsScheduler(
            settings, self.memory, listener, NoJoinFile(), NoEngine(), num_hosts, logs, takeover=reports
        )
        began = self.clock.wall()
        self.controller = Controller(
            self.experiment,
            self.scheduler,
            "",
            clock=self.clock,
            on_journal=self._note,
            on_report=self._record,
            began=began,
        )
        self.controller.records.last = {policy: updates[-1] for policy, updates in self._recorded.items()}
        self.controller._report.seconds = 1e9  # statuses are for display only
        self.controller._check.seconds = CHECK_SECONDS
        if takeover is None:
            self.controller.start()
        else:
            self.controller.take_over(takeover, TAKEOVER_SECONDS)

    def _end_controller(self) -> None:
        """End the controller's process: the kernel closes its connections."""
        agents = self.scheduler._agents
        agents._listener.close()
        channels = [channel for channel, _ in agents._connecting.values()]
        for channel in (*channels, *(channel for channel, _, _ in agents._waiting)):
            channel.close()
        for host in agents.hosts.values():
            host.channel.close()
        self.scheduler._archive.close()
        self.memory.close()

    def _note(self, entry: JournalEntry) -> None:
        key = entry.policy, entry.rank, entry.update, entry.digest
        if key not in self._reported:
            self._reported.add(key)
            self.entries.append(entry)

    def _record(self, report: Report) -> None:
        if isinstance(report, UpdateRecord):
            self._recorded.setdefault(report.policy, []).append(report.update)

    def tick(self) -> None:
        if not self.controller.tick():
            self.fail(f"the run ended: {self.controller.state}, {self.controller.reason}")
        self._check_durable()
        now = self.clock.now()
        if now - self._recorded_at >= RECORD_SECONDS:
            self._recorded_at = now
            self._state = self.controller.takeover_state()
            assert self._state is not None
            self.scheduler.takeover_recorded(self._state.cluster)
        if now - self._saved_at >= CHECKPOINT_SECONDS:
            self._saved_at = now
            found = {policy: self.memory.commits[policy].read() for policy in self.policies}
            self._checkpoints = {policy: committed for policy, committed in found.items() if committed is not None}

    # Invariants

    def say(self, text: str) -> None:
        self.log.append(f"{self.clock.now():7.2f} {text}")

    def fail(self, what: str) -> None:
        raise Violation(self.seed, what, [*self.log, *self.controller.status().messages])

    def durable(self, policy: str) -> int:
        """Return the newest version that survives the loss of any host."""
        return self._durable.get(policy, (-1, b""))[0]

    @property
    def num_updates(self) -> int:
        return sum(max(0, self.durable(policy)) for policy in self.policies)

    def _check_durable(self) -> None:
        """Check that the controller's copies only become newer. Versions that were durable stay known."""
        for policy in self.policies:
            version = self.memory.commits[policy].version
            before = self.durable(policy)
            if version == before:
                continue
            if version < before:
                self.fail(f"version {before} of {policy} was durable, and now {version} is the newest")
            committed = self.memory.commits[policy].read()
            assert committed is not None
            parameters = committed[1]["parameters"].tobytes()
            self._durable[policy] = committed[0], parameters
            self._history[(policy, committed[0])] = parameters

    def _check_step(self) -> None:
        """Check what each host's store holds: versions only grow, and durable ones are the same everywhere."""
        if self.cluster.crashes:
            self.fail(f"a worker crashed: {self.cluster.crashes[0]}")
        for machine in self.cluster.machines.values():
            if machine.agent is None:
                continue
            for policy, store in machine.agent._memory.parameters.items():
                version, before = store.version, self._seen.get(store, -1)
                if version == before:
                    continue
                if version < before:
                    self.fail(f"{machine.name} had version {before} of {policy}, and now {version}")
                self._seen[store] = version
                known = self._history.get((policy, version))
                pulled = store.pull()
                if (
                    known is not None
                    and pulled is not None
                    and pulled[1].tobytes() != known
                    and self._is_member(machine)
                ):
                    self.fail(f"{machine.name} has other parameters for version {version} of {policy}")

    def _is_member(self, machine: Machine) -> bool:
        agent = machine.agent
        return agent is not None and agent.host in self.scheduler._agents.hosts

    def _check_journal(self) -> None:
        """Check that every update was done once, with samples used once and in time, and that none was lost."""
        wanted = {(policy, number) for policy in self.policies for number in range(1, self.durable(policy) + 1)}
        until, checked = self.clock.now() + REPORT_LIMIT, 0
        while True:
            wanted.difference_update((entry.policy, entry.update) for entry in self.entries[checked:] if not entry.rank)
            checked = len(self.entries)
            if not wanted:
                break
            if self.clock.now() > until:
                self.fail(f"an update is not in the journal: {min(wanted)}")
            self.tick()
        if errors := check(self.entries, self.experiment.max_lag):
            self.fail(f"the journal is wrong: {errors[0]}")
        for policy in self.policies:
            updates = [entry.update for entry in self.entries if (entry.policy, entry.rank) == (policy, 0)]
            recorded, waiting = self._recorded.get(policy, []), self.controller.records.num_waiting(policy)
            if recorded != updates[: len(recorded)] or len(updates) > len(recorded) + waiting:
                self.fail(f"the record of {policy} has the updates {recorded}, made were {updates}")

    # Time

    def advance(self, seconds: float) -> None:
        began = self.clock.now()
        while self.clock.now() < began + seconds:
            self.cluster.slice = FINE_SECONDS if self.clock.now() - began < CLOSE_SECONDS else COARSE_SECONDS
            self.tick()
        self.cluster.slice = FINE_SECONDS

    def freeze(self, seconds: float) -> None:
        """Let time pass without the controller."""
        self.cluster.run(min(seconds, CLOSE_SECONDS))
        self.cluster.slice = COARSE_SECONDS
        self.cluster.run(seconds - min(seconds, CLOSE_SECONDS))
        self.cluster.slice = FINE_SECONDS

    def progress(self, limit: float, what: str) -> None:
        """Wait for two durable updates of every policy."""
        goals = {policy: self.durable(policy) + 2 for policy in self.policies}
        until = self.clock.now() + limit
        while any(self.durable(policy) < goal for policy, goal in goals.items()):
            if self.clock.now() > until:
                self.fail(f"no update within {limit:g} s {what}")
            self.tick()

    # Faults

    def fault(self) -> float:
        """Inject a random fault now. Return the time at which it is over, losses of hosts included."""
        draw = self.random
        kind = draw.choice((*WORKER_FAULTS, *WORKER_FAULTS, *HOST_FAULTS, *NETWORK_FAULTS, *CONTROLLER_FAULTS))
        if kind in WORKER_FAULTS:
            return self._worker_fault(kind)
        if kind in HOST_FAULTS:
            return self._host_fault(kind)
        if kind in NETWORK_FAULTS:
            return self._network_fault(kind)
        return self._controller_fault(kind)

    def _worker_fault(self, kind: str) -> float:
        processes, now = self.cluster.processes(), self.clock.now()
        if not processes:
            return now
        process, seconds = self.random.choice(processes), self.random.choice((*SHORT, 7.0))
        if kind == "kill":
            self.say(f"kill {process.worker_id.name} on {process.machine.name}")
            process.end("killed by the schedule")
            return now
        self.say(f"stop {process.worker_id.name} on {process.machine.name} for {seconds:g} s")
        process.frozen = True
        self.cluster.after(seconds, lambda: setattr(process, "frozen", False))
        return now + seconds

    def _host_fault(self, kind: str) -> float:
        machine, now = self.random.choice(list(self.cluster.machines.values())), self.clock.now()
        declared = FROZEN if kind.startswith("stop") else DECLARED
        seconds = self.random.choice((*SHORT, declared, FOREVER))
        if seconds == FOREVER and (self._away or len(self.cluster.machines) == 1):
            seconds = declared  # at least one host stays
        if kind == "agent":
            self.say(f"kill the agent of {machine.name}")
            machine.kill_agent()
            self._losses += 1
            return now + RESTART_SECONDS
        self.say(f"{kind} {machine.name} for {seconds:g} s")
        if kind == "power":
            machine.power_off(seconds)
        else:
            machine.freeze(seconds, kind == "stop-host")
        self._away |= seconds == FOREVER
        self._losses += kind == "power" or seconds >= declared
        return now + (declared if kind == "power" else min(seconds, declared))

    def _network_fault(self, kind: str) -> float:
        names = [CONTROLLER, *self.cluster.machines]
        one, other = self.random.sample(names, 2)
        seconds, network, now = self.random.choice((*SHORT, DECLARED)), self.cluster.network, self.clock.now()
        involves_controller = CONTROLLER in (one, other)
        if kind in ("cut", "one-way"):
            self.say(f"{kind} {one} from {other} for {seconds:g} s")
            network.cut(one, other, seconds)
            if kind == "cut":
                network.cut(other, one, seconds)
            self._losses += involves_controller
            return now + seconds + (DECLARED if involves_controller else 0.0)
        if kind in ("reset", "half-open"):
            self.say(f"{kind} the connections between {one} and {other}")
            network.reset(one, other, kind == "half-open")
            self._losses += involves_controller
            return now + (DECLARED if kind == "half-open" else 0.0)
        rate = self.random.choice((100_000.0, 300_000.0, 1e6, 1e8))
        self.say(f"uplink of {one}: {rate:g} bytes/s")
        for name in names:
            network.link(one, name).rate = rate
        return now

    def _controller_fault(self, kind: str) -> float:
        seconds = self.random.choice((*SHORT, DECLARED))
        if kind == "stop-controller":
            self.say(f"stop the controller for {seconds:g} s")
            self.freeze(seconds)
            return self.clock.now()
        healthy = all(self._is_member(m) and not m.frozen for m in self.cluster.machines.values())
        if self._state is None or self._losses or not healthy:
            return self.clock.now()  # losing a trainer's host and the controller loses updates: decision 9
        self.say(f"kill the controller; another one takes over after {seconds:g} s")
        self._end_controller()
        self.freeze(seconds)
        self._durable.clear()
        self._start_controller(self._state)  # until they reconnect, hosts release what they commit
        hosts = [machine.agent for machine in self.cluster.machines.values() if machine.agent is not None]
        committed = {p: max(agent._memory.commits[p].version for agent in hosts) for p in self.policies}
        self._wait_for(committed)
        return self.clock.now()

    def _wait_for(self, committed: dict[str, int]) -> None:
        """Wait until the new controller has what its predecessor had, and what was committed without a controller,
        which until then a lost host takes along (decision 9)."""
        until = self.clock.now() + RECOVERY_LIMIT
        while any(self.durable(policy) < version for policy, version in committed.items()):
            if self.clock.now() > until:
                self.fail(f"what was committed is not durable {RECOVERY_LIMIT:g} s after a takeover")
            self.tick()

    def _slowest_updates(self) -> float:
        """Return how long two updates, and blocks that no update uses, take if every decision crosses the slowest link:
        the last fault may have moved the policy workers there."""
        trainers = [g.config for g in self.experiment.groups if isinstance(g.config, TrainerWorkerConfig)]
        streams = [trainer.samples for trainer in trainers]
        decisions = 3 * max(stream.batch_blocks * stream.consumers * stream.spec.horizon for stream in streams)
        latency = 1.5 * max(link.latency for link in self.cluster.network.links.values())
        return decisions * 2 * (latency + FINE_SECONDS)

    def run(self) -> int:
        """Run the schedule; return the number of durable updates. Raises Violation."""
        with self.cluster.in_place_of_the_system():
            try:
                self._start_controller()
                self.progress(START_LIMIT, "after the start")
                over = undisturbed = self.clock.now()  # some graphs need seconds for an update, more with other links
                for _ in range(self.random.randint(1, 5)):
                    self.advance(self.random.choice((0.0, 0.2, 1.0, 2.5)))
                    over = max(over, self.fault())
                self.advance(max(0.0, over - self.clock.now()))
                self.say("the last fault is over")
                hold = HOLD_SECONDS if self._losses > 1 else 0.0
                slow = max(2 * undisturbed, self._slowest_updates())
                self.progress(RECOVERY_LIMIT + hold + slow, "after the last fault was over")
                self._check_journal()
            finally:
                self._end_controller()
                self.cluster.close()
        return self.num_updates
