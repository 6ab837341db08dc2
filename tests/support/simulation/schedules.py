"""Random schedules of faults on a simulated cluster, and the invariants that hold during and after them."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from srl.api.block import BlockSpec
from srl.api.control import UpdateRecord
from srl.api.experiment import Experiment, RestartRule, WorkerGroup
from srl.api.lanes import Lanes, LanesConfig, LaneSpec, TeamSpec, TimeStep
from srl.api.spaces import Box, Discrete, Space, array_spec
from srl.api.trainer import Trainer, TrainResult, Trajectory
from srl.base.tree import Array, Tree
from srl.controller.controller import Controller
from srl.storage.update_journal import check
from srl.streams.push import PushStream
from srl.streams.request import RequestStream
from srl.workers.actor.worker import ActorConfig
from srl.workers.policy import PolicyWorkerConfig
from srl.workers.role import Role
from srl.workers.trainer.worker import TrainerWorkerConfig
from support.counting import CountingConfig, CountingTrainer
from support.manual_clock import ManualClock
from support.simulation.cluster import SimScheduler
from support.simulation.hosts import SimHost

POLICY = "policy"
START_LIMIT = 30.0
RECOVERY_LIMIT = 20.0
"""Virtual seconds within which an update must follow once the last fault is over and every loss was declared."""
SPACES = (Box((1,)), Discrete(2))
SPEC = LaneSpec("counter", 1, (TeamSpec("agent", ("agent",), *SPACES),))


class CounterLanes(Lanes):
    """An environment that counts its steps; every episode has seven."""

    def __init__(self, num_copies: int) -> None:
        self.spec = LaneSpec(SPEC.environment, num_copies, SPEC.teams)
        self._step = 0
        self._yes, self._no = np.ones(num_copies, bool), np.zeros(num_copies, bool)
        self._reward = np.zeros(num_copies, np.float32)

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        self._step = 0
        return self._result(first=True)

    def step(self, actions: tuple[Tree, ...]) -> tuple[TimeStep, ...]:
        self._step = (self._step + 1) % 8
        return self._result(first=self._step == 0)

    def _result(self, first: bool) -> tuple[TimeStep, ...]:
        observation = np.full((len(self._yes), 1), self._step, np.float32)
        ended = self._yes if self._step == 7 else self._no
        return (TimeStep(observation, self._reward, ended, self._no, ~ended, self._yes if first else self._no),)

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class CounterConfig(LanesConfig):
    def build(self, num_copies: int) -> Lanes:
        return CounterLanes(num_copies)


class ChainTrainer(CountingTrainer):
    """A trainer whose parameters depend on every batch so far, so that an update that is computed again differs."""

    def __init__(self) -> None:
        super().__init__()
        self._chain = 0

    def step(self, batch: Trajectory, progress: float) -> TrainResult:
        for array in (batch.decision["action"], batch.version):
            self._chain = zlib.crc32(np.ascontiguousarray(array).data, self._chain)
        return super().step(batch, progress)

    def parameters(self) -> Array:
        return np.array([self._counters[1], self._chain >> 16, self._chain & 0xFFFF], np.float32)

    def state(self) -> Mapping[str, Array]:
        return {**super().state(), "chain": np.array(self._chain)}

    def restore(self, state: Mapping[str, Array]) -> None:
        super().restore(state)
        self._chain = int(state["chain"])


@dataclass(frozen=True)
class ChainConfig(CountingConfig):
    def build_trainer(self, observation: Space, action: Space, seed: int) -> Trainer:
        return ChainTrainer()


@dataclass
class Violation(Exception):
    """An invariant does not hold. `seed` replays the schedule."""

    seed: int
    what: str
    log: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.what}\n  " + "\n  ".join(self.log)


def experiment(random: random.Random) -> Experiment:
    """Return a small graph with a random number of actors, batch, lag and place of inference."""
    algorithm = ChainConfig()
    horizon, lanes = random.choice((1, 2, 4)), random.choice((1, 2))
    max_lag, batch_blocks = random.choice((0, 1, 2)), random.choice((1, 2, 3))
    block = BlockSpec(horizon, lanes, array_spec(SPACES[0]), algorithm.decision_spec(*SPACES))
    samples = PushStream("samples", block, batch_blocks, capacity=batch_blocks, max_lag=max_lag)
    requests = RequestStream("decisions", block) if random.random() < 0.5 else None
    role = Role(POLICY, algorithm, *SPACES, samples, requests)
    actors = ActorConfig(CounterConfig(), SPEC, (role,), lanes, ring=random.choice((1, 2)))
    trainer = TrainerWorkerConfig(POLICY, algorithm, *SPACES, samples, 10**9, 0, journal=True)
    forever = RestartRule(max_failures=1000)
    groups = [
        WorkerGroup("trainers", trainer, 1, restart=forever),
        WorkerGroup("actors", actors, random.randint(1, 3), restart=forever),
    ]
    if requests is not None:
        config = PolicyWorkerConfig(POLICY, algorithm, *SPACES, requests)
        groups.append(WorkerGroup("policies", config, random.randint(1, 2), restart=forever))
    return Experiment("simulated", 1, tuple(groups), (POLICY,), (POLICY,), target_steps=10**9, max_lag=max_lag)


class Simulation:
    """One schedule: a run on a few hosts, random faults, and a time without faults in which it must recover."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.experiment = experiment(self.random)
        hosts = [f"h{index}" for index in range(self.random.randint(1, 3))]
        self.scheduler = SimScheduler(self.clock, hosts, (POLICY,), seed)
        self.log: list[str] = []
        self.entries: list[UpdateRecord] = []
        self._known: set[tuple[int, str]] = set()
        self.controller = Controller(
            self.experiment, self.scheduler, "", clock=self.clock, on_update=self._note, began=self.clock.wall()
        )
        self._last_durable = -1

    def _note(self, entry: UpdateRecord) -> None:
        key = entry.update, entry.digest
        if key not in self._known:
            self._known.add(key)
            self.entries.append(entry)

    def say(self, text: str) -> None:
        self.log.append(f"{self.clock.now():7.2f} {text}")

    def fail(self, what: str) -> None:
        raise Violation(self.seed, what, [*self.log, *self.controller.status().messages])

    @property
    def durable(self) -> int:
        """Newest version that survives the loss of any host."""
        return self.scheduler.replicas[POLICY].version

    def tick(self) -> None:
        if not self.controller.tick():
            self.fail(f"the run ended: {self.controller.state}, {self.controller.reason}")
        if self.durable < self._last_durable:
            self.fail(f"version {self._last_durable} was durable, and now {self.durable} is the newest")
        self._last_durable = self.durable
        if self.scheduler.crashes:
            self.fail(f"a worker crashed: {self.scheduler.crashes[0]}")

    def advance(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.tick()

    def progress(self, limit: float, what: str) -> None:
        """Wait for two durable updates."""
        goal, until = self.durable + 2, self.clock.now() + limit
        while self.durable < goal:
            if self.clock.now() > until:
                self.fail(f"no update within {limit:g} s {what}")
            self.tick()

    def fault(self) -> float:
        """Inject a random fault now. Return the time at which it is over, losses of hosts included."""
        draw, scheduler = self.random, self.scheduler
        host: SimHost = draw.choice(list(scheduler.hosts.values()))
        worker = draw.choice(list(scheduler.processes)) if scheduler.processes else None
        kind = draw.choice(("kill", "kill", "freeze", "agent", "power", "stop-agent", "stop-host", "cut", "slow"))
        seconds = draw.choice((0.3, 1.0, 3.0, 7.0))
        now = self.clock.now()
        if kind in ("kill", "freeze"):
            if worker is None:
                return now
            self.say(f"{kind} {worker.name} for {seconds:g} s")
            if kind == "kill":
                scheduler.end(worker, "killed by the schedule")
                return now
            scheduler.freeze_worker(worker, seconds)
        elif kind == "agent":
            self.say(f"kill the agent of {host.name}")
            scheduler.kill_agent(host)
            return now + 2.0
        elif kind == "power":
            self.say(f"{host.name} loses its power for {seconds:g} s")
            scheduler.power_off(host, seconds)
            return now + max(seconds, 5.0) + 2.0
        elif kind in ("stop-agent", "stop-host"):
            self.say(f"{kind} {host.name} for {seconds:g} s")
            scheduler.freeze_agent(host, seconds, kind == "stop-host")
            return now + seconds + 2.0
        elif kind == "cut":
            other = draw.choice(["controller", *scheduler.hosts])
            if other != host.name and other != "controller":
                self.say(f"cut {host.name} from {other} for {seconds:g} s")
                scheduler.network.cut(host.name, other, seconds)
        else:
            rate = draw.choice((100_000.0, 300_000.0, 1e6, 1e8))
            self.say(f"uplink of {host.name}: {rate:g} bytes/s")
            for other in ("controller", *scheduler.hosts):
                scheduler.network.link(host.name, other).rate = rate
            return now
        return now + seconds

    def run(self) -> int:
        """Run the schedule; return the number of durable updates. Raises Violation."""
        self.controller.start()
        try:
            self.progress(START_LIMIT, "after the start")
            over = self.clock.now()
            for _ in range(self.random.randint(1, 5)):
                self.advance(self.random.choice((0.0, 0.2, 1.0, 2.5)))
                over = max(over, self.fault())
            self.advance(max(0.0, over - self.clock.now()))
            self.say("the last fault is over")
            self.progress(RECOVERY_LIMIT, "after the last fault was over")
            if errors := check(self.entries, self.experiment.max_lag):
                self.fail(f"the journal is wrong: {errors[0]}")
        finally:
            self.scheduler.close()
        return self.durable
