"""Fault injection into a running job, with checks of its recovery and its invariants."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from srl.api.status import ReplayStatus, RunStatus, WorkerStatus
from srl.api.transport import Message
from srl.base.clock import ObservedTime
from srl.base.statistics import spread
from srl.checks.flood import Flood
from srl.controller.control_socket import FaultRequest, ResultReply, StatusReply, StatusRequest
from srl.controller.faults import FAULTS
from srl.storage import checkpoints, update_journal
from srl.storage.run_directory import RunDirectory

POLL_SECONDS = 0.1
MAX_PAUSE_SECONDS = 1.0
MAX_UNANSWERED = 5  # number of unanswered requests after which the run counts as ended
CORRUPT = "corrupt-checkpoint"  # fault of the newest checkpoint, which this process injects itself
UPDATES_IN_FLIGHT = 3
"""Updates by whose gradient steps the counts of a replay memory may differ at any moment: of batches that are being
made, in use and given back."""
FATAL = ("kill", "stop", "freeze-zygote")  # faults that end the worker's process; the others are temporary
Ask = Callable[[Message], Message | None]


@dataclass(frozen=True)
class ChaosPlan:
    """Faults to inject, their times and their targets."""

    faults: tuple[str, ...]
    every: float  # seconds between faults
    count: int  # number of faults; 0: until the run ends
    seconds: float  # duration of temporary faults
    groups: tuple[str, ...] = ()  # groups whose workers may be affected (default: all)
    seed: int = 0
    patience: float = 60.0  # time limit for recovery from a fault, in seconds
    calm: float = 5.0  # seconds without faults before the first and after the last, to measure undisturbed speed

    def __post_init__(self) -> None:
        for fault in self.faults:
            if fault not in (*FAULTS, CORRUPT):
                raise ValueError(f"unknown fault {fault!r}; choose from {', '.join((*FAULTS, CORRUPT))}")
        if not self.faults or self.every <= 0:
            raise ValueError("expected at least one fault, and a positive time between faults")


@dataclass
class Fault:
    """One injected fault and the recovery from it."""

    kind: str
    worker: str
    incarnation: int
    at: float
    seconds: float
    disturbed_connections: int = 0  # number of connections that were disturbed before
    recovery_seconds: float | None = None
    """Time until the worker works again (possibly in a new process) and an update follows; None until then."""
    damaged: Path | None = None  # checkpoint that was corrupted: a newer undamaged one must follow
    no_effect: bool = False
    """Whether the fault changed nothing: a worker without connections, as with inline inference, has no partition."""
    _progress: int | None = None  # progress when the fault ended
    _version_at_recovery: int | None = None

    @property
    def settled(self) -> bool:
        return self.no_effect or self.recovery_seconds is not None

    def update(self, status: RunStatus, now: float) -> None:
        if self.settled:
            return
        worker = next((worker for worker in status.workers if worker.name == self.worker), None)
        if worker is None or worker.state != "running":
            self._version_at_recovery = None
            return
        if not self._works_again(worker, now):
            return
        if self._version_at_recovery is None:
            self._version_at_recovery = status.version
        elif status.version > self._version_at_recovery:
            before = (self.incarnation, self.disturbed_connections)
            unchanged = (worker.incarnation, worker.disturbed_connections) == before
            # The agents of a run over hosts have connections, even if the worker has none.
            needs_connections = self.kind == "partition" or (self.kind == "slow-link" and not worker.host)
            self.no_effect = needs_connections and unchanged
            self.recovery_seconds = None if self.no_effect else now - self.at

    def _works_again(self, worker: WorkerStatus, now: float) -> bool:
        if self.damaged is not None:
            newest = checkpoints.latest(self.damaged.parent)
            if newest == self.damaged or newest != checkpoints.last_good(self.damaged.parent):
                return False
        if worker.incarnation > self.incarnation:  # also after a temporary fault that the worker did not survive
            return worker.progress > 0
        if self.kind in FATAL or now - self.at < self.seconds:
            return False
        if self._progress is None:
            self._progress = worker.progress
        return worker.progress > self._progress


@dataclass
class InvariantMonitor:
    """Collects the invariant violations seen in successive statuses of a run."""

    violations: list[str] = field(default_factory=list)
    _previous: RunStatus | None = None
    _replayed: dict[str, ReplayStatus] = field(default_factory=dict)  # the last status of each memory

    def check(self, status: RunStatus) -> None:
        previous, self._previous = self._previous, status
        if status.lag_max > status.max_lag:
            self._add(f"a sample was {status.lag_max} versions behind, {status.max_lag} are allowed")
        for stream in status.streams:
            if stream.consumed + stream.dropped > stream.posted:
                self._add(f"{stream.name} delivered {stream.consumed} blocks, but received {stream.posted}")
        # Not checked with several hosts, which report their counts at different times.
        if status.steps > status.decisions and not any(worker.host for worker in status.workers):
            self._add(f"{status.steps} decisions were trained on, but {status.decisions} were made")
        self._check_replay(status)
        if previous is None:
            return
        if status.version < previous.version:
            self._add(f"the version went back from {previous.version} to {status.version}")
        if status.steps < previous.steps:
            self._add(f"the steps went back from {previous.steps} to {status.steps}")
        before = {worker.name: worker.incarnation for worker in previous.workers}
        for worker in status.workers:
            if worker.incarnation < before.get(worker.name, 0):
                self._add(f"{worker.name} went back to incarnation {worker.incarnation}")

    def _check_replay(self, status: RunStatus) -> None:
        """Check that replay memories keep what they had, and gradient steps their ratio to decisions."""
        on_hosts = any(worker.host for worker in status.workers)  # a lost host loses its memories
        batch, is_recorded = status.settings.batch, bool(status.settings.recorded)
        for memory in [] if is_recorded else status.replay:
            before = self._replayed.get(memory.name, memory)
            self._replayed[memory.name] = memory
            if memory.size < before.size - batch and not on_hosts:  # the oldest block may just be replaced
                self._add(f"{memory.name} went back from {before.size} decisions to {memory.size}")
            if memory.reached is not None:
                missing = (memory.wanted - memory.reached) * memory.decisions
                if abs(missing) > UPDATES_IN_FLIGHT * memory.wanted * batch + 1.0:
                    self._add(
                        f"{memory.name} has made {memory.reached:.3g} gradient steps per decision in "
                        f"{memory.decisions} decisions, {memory.wanted:.3g} are wanted"
                    )

    def _add(self, text: str) -> None:
        if text not in self.violations:
            self.violations.append(text)


@dataclass(frozen=True)
class ChaosReport:
    """Result of fault injection."""

    faults: list[Fault]
    violations: list[str]  # violated invariants, as sentences
    journal_updates: int  # 0 without a journal
    calm_fps: float
    chaos_fps: float
    restarts: int
    state: str
    return_mean: float | None = None  # over the last 100 episodes at the end
    unrecorded: int = 0  # updates missing in the journal, because the disk was full or broken

    @property
    def ok(self) -> bool:
        """Whether the run recovered from all faults, some of which had an effect, without violating an invariant."""
        recovered = all(fault.settled for fault in self.faults) and not all(fault.no_effect for fault in self.faults)
        return not self.violations and (recovered or not self.faults)


@dataclass
class Speed:
    """Steps per second over the added intervals."""

    steps: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0


class Chaos:
    """Injects a plan's faults into a run and observes the run."""

    def __init__(self, ask: Ask, plan: ChaosPlan, notify: Callable[[str], None]) -> None:
        self._ask = ask
        self._plan = plan
        self._notify = notify
        self._random = random.Random(plan.seed)
        self._monitor = InvariantMonitor()
        self._kinds = list(plan.faults)  # those that are possible in this run
        self._round: list[str] = []  # those to inject before any is repeated
        self._faults: list[Fault] = []
        self._updates = self._unrecorded = 0

    def run(self) -> ChaosReport:
        """Observe the run undisturbed, inject faults, observe it undisturbed again, and return a report."""
        plan = self._plan
        first = last = self._status()
        if first is None or last is None:
            raise ValueError("the run does not respond")
        calm, disturbed = Speed(), Speed()
        observed, now, due = ObservedTime(time.monotonic(), MAX_PAUSE_SECONDS), 0.0, plan.calm
        ended: float | None = None
        while (status := self._status()) is not None and status.state in ("starting", "running"):
            passed = observed.passed(time.monotonic())
            now += passed
            speed = disturbed if self._faults and ended is None else calm
            speed.steps += status.steps - last.steps
            speed.seconds += passed
            last = status
            self._monitor.check(status)
            for fault in self._faults:
                fault.update(status, now)
            if now >= due and (plan.count == 0 or len(self._faults) < plan.count):
                due = now + plan.every
                self._inject(status, now)
            elif ended is None and self._done(now):
                ended = now
            elif ended is not None and now - ended >= plan.calm:
                break
            time.sleep(POLL_SECONDS)
        violations = [*self._monitor.violations, *self._check_journal(last)]
        restarts = last.restarts - first.restarts
        return ChaosReport(
            self._faults,
            violations,
            self._updates,
            calm.rate,
            disturbed.rate,
            restarts,
            last.state,
            last.return_mean,
            self._unrecorded,
        )

    def _status(self) -> RunStatus | None:
        for _ in range(MAX_UNANSWERED):
            answer = self._ask(StatusRequest())
            if isinstance(answer, StatusReply):
                return answer.status
            time.sleep(POLL_SECONDS)
        return None

    def _inject(self, status: RunStatus, now: float) -> None:
        victims = [worker for worker in status.workers if self._may_affect(worker)]
        if not victims:
            return
        self._round = self._round or self._random.sample(self._kinds, len(self._kinds))
        kind, victim = self._round.pop(), self._random.choice(victims)
        if kind == CORRUPT:
            if (damaged := _corrupt_newest(Path(status.path))) is not None:
                self._add(Fault(kind, victim.name, victim.incarnation, now, 0.0, damaged=damaged))
            return
        answer = self._ask(FaultRequest(victim.name, kind, self._plan.seconds))
        if answer is None:  # it is unknown whether it was injected, so it does not count
            return
        assert isinstance(answer, ResultReply)
        if not answer.ok:
            self._skip(kind, answer.text)
            return
        if kind == "flood":
            Flood(answer.text.split(), self._plan.seconds).start()
        seconds = 0.0 if kind in FATAL else self._plan.seconds
        self._add(Fault(kind, victim.name, victim.incarnation, now, seconds, victim.disturbed_connections))

    def _add(self, fault: Fault) -> None:
        self._faults.append(fault)
        self._notify(f"{len(self._faults)}: {fault.kind} {fault.damaged.name if fault.damaged else fault.worker}")

    def _skip(self, kind: str, reason: str) -> None:
        """Leave out a fault that is not possible in this run."""
        self._kinds.remove(kind)
        if not self._kinds:
            raise ValueError(f"none of these faults is possible in this run; {kind}: {reason}")
        self._notify(f"skipping {kind}: {reason}")

    def _may_affect(self, worker: WorkerStatus) -> bool:
        """Return whether a fault may target the worker: it must be running and have recovered from earlier faults."""
        busy = any(fault.worker == worker.name and not fault.settled for fault in self._faults)
        works = worker.state == "running" and worker.progress > 0
        return works and not busy and worker.group in (self._plan.groups or (worker.group,))

    def _done(self, now: float) -> bool:
        plan = self._plan
        if plan.count == 0 or len(self._faults) < plan.count:
            return False
        return all(fault.settled or now - fault.at > plan.patience for fault in self._faults)

    def _check_journal(self, status: RunStatus) -> list[str]:
        path = RunDirectory(Path(status.path)).journal
        if not path.exists():
            return []
        lines = list(update_journal.read(path))
        self._updates = len({(entry.policy, entry.update) for entry in update_journal.updates(lines)})
        self._unrecorded = update_journal.missing(lines)
        return update_journal.check(lines, status.max_lag)


def _corrupt_newest(run: Path) -> Path | None:
    """Change one byte of the newest checkpoint of a run. Returns the checkpoint, or None if there is none."""
    newest = checkpoints.latest(RunDirectory(run).checkpoints)
    if newest is not None:
        with (newest / checkpoints.ARRAYS).open("r+b") as file:
            middle = file.seek(0, os.SEEK_END) // 2
            file.seek(middle)
            changed = bytes([file.read(1)[0] ^ 1])
            file.seek(middle)
            file.write(changed)
    return newest


def describe(report: ChaosReport) -> str:
    """Return the report as lines of text."""
    lines = [f"{'fault':<20}{'times':>6}{'recovered':>10}{'p50 s':>8}{'p95 s':>8}{'max s':>8}"]
    for kind in sorted({fault.kind for fault in report.faults}):
        these = [fault for fault in report.faults if fault.kind == kind]
        taken = sorted(fault.recovery_seconds for fault in these if fault.recovery_seconds is not None)
        figures = "".join(f"{value:8.1f}" for value in spread(taken))
        lines.append(f"{kind:<20}{len(these):>6}{len(taken):>10}{figures}")
    share = f" ({report.chaos_fps / report.calm_fps:.0%})" if report.calm_fps else ""
    lines.append(f"steps/s: {report.calm_fps:,.0f} without faults, {report.chaos_fps:,.0f} with faults{share}")
    if report.return_mean is not None:
        lines.append(f"return of the last 100 episodes: {report.return_mean:.1f}")
    lines.append(f"restarted workers: {report.restarts}; the run is {report.state}")
    gap = f"; {report.unrecorded} were not recorded, because of disk errors" if report.unrecorded else ""
    checked = f"journal: {report.journal_updates} updates, checked{gap}"
    lines.append(checked if report.journal_updates else "no journal: `srl train ENV --journal` checks every update")
    unaffected = [fault.worker for fault in report.faults if fault.no_effect]
    if unaffected:
        names = ", ".join(sorted(set(unaffected)))
        lines.append(f"{len(unaffected)} faults had no effect and do not count: {names} had no TCP connections")
    lines += [f"VIOLATED: {text}" for text in report.violations[:20]]
    lines += [f"NOT RECOVERED: {fault.kind} {fault.worker}" for fault in report.faults if not fault.settled]
    if report.faults and len(unaffected) == len(report.faults):
        lines.append("NO FAULT HAD AN EFFECT: choose others with --faults")
    lines.append("passed: all faults recovered, all invariants hold" if report.ok else "failed")
    return "\n".join(lines)
