"""Chaos on purpose: faults for a running job, what it did about them, and whether it kept its promises."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from srl.api.status import RunStatus, WorkerStatus
from srl.api.transport import Message
from srl.base.clock import ObservedTime
from srl.base.errors import nearest
from srl.base.statistics import spread
from srl.controller.control_socket import FAULTS, AskFault, AskStatus, TellResult, TellStatus
from srl.storage import update_journal
from srl.storage.run_directory import RunDirectory

LOOK_SECONDS = 0.1
OWN_PAUSE_SECONDS = 1.0
SILENT_LOOKS = 5
"""So many questions without an answer, and the run is over."""
REPLACED = ("kill", "stop")
"""Faults that cost the worker its process; the others pass."""
Ask = Callable[[Message], Message | None]


@dataclass(frozen=True)
class ChaosPlan:
    faults: tuple[str, ...]
    every: float
    """Seconds between two of them."""
    count: int
    """How many; 0: until the run is over."""
    seconds: float
    """How long those last that pass."""
    groups: tuple[str, ...] = ()
    """Whose workers are harmed; empty: everybody's."""
    seed: int = 0
    patience: float = 60.0
    """Seconds in which a run must have overcome a fault."""
    calm: float = 5.0
    """Seconds without a fault before the first and after the last, with which the speed under faults is compared."""

    def __post_init__(self) -> None:
        for fault in self.faults:
            if fault not in FAULTS:
                raise ValueError(f"no fault {fault!r}; there are {', '.join(FAULTS)}{nearest(fault, FAULTS)}")
        if not self.faults or self.every <= 0:
            raise ValueError("chaos needs at least one fault, and some time between two of them")


@dataclass
class Fault:
    kind: str
    worker: str
    incarnation: int
    at: float
    seconds: float
    cut: int = 0
    """Connections that the worker had lost before."""
    overcome: float | None = None
    """Seconds until the worker works again, in a new process if it lost its own, and an update came after that."""
    harmless: bool = False
    """A partition of a worker that has no connection, as on one machine with inline inference: it shows nothing."""
    _progress: int | None = None  # when the fault had passed
    _back_at: int | None = None

    @property
    def settled(self) -> bool:
        return self.harmless or self.overcome is not None

    def look(self, status: RunStatus, now: float) -> None:
        if self.settled:
            return
        worker = next((worker for worker in status.workers if worker.name == self.worker), None)
        if worker is None or worker.state != "running":
            self._back_at = None
            return
        if not self._works_again(worker, now):
            return
        if self._back_at is None:
            self._back_at = status.version
        elif status.version > self._back_at:
            self.harmless = self.kind == "partition" and (worker.incarnation, worker.lost_connections) == (
                self.incarnation,
                self.cut,
            )
            self.overcome = None if self.harmless else now - self.at

    def _works_again(self, worker: WorkerStatus, now: float) -> bool:
        if worker.incarnation > self.incarnation:  # also who did not survive a fault that passes
            return worker.progress > 0
        if self.kind in REPLACED or now - self.at < self.seconds:
            return False
        if self._progress is None:
            self._progress = worker.progress
        return worker.progress > self._progress


@dataclass
class Witness:
    """Looks at every status of a run and notes what must never happen."""

    wrong: list[str] = field(default_factory=list)
    _former: RunStatus | None = None

    def see(self, status: RunStatus) -> None:
        former, self._former = self._former, status
        if status.lag_max > status.max_lag:
            self._note(f"a sample was {status.lag_max} versions behind, {status.max_lag} are allowed")
        for stream in status.streams:
            if stream.consumed + stream.dropped > stream.posted:
                self._note(f"{stream.name} gave {stream.consumed} blocks of {stream.posted} that it got")
        on_one_host = not any(worker.host for worker in status.workers)  # others tell their figures one after the other
        if on_one_host and status.steps > status.decisions:
            self._note(f"{status.steps} decisions were learned from, and {status.decisions} made")
        if former is None:
            return
        if status.version < former.version:
            self._note(f"the version went back from {former.version} to {status.version}")
        if status.steps < former.steps:
            self._note(f"the steps went back from {former.steps} to {status.steps}")
        before = {worker.name: worker.incarnation for worker in former.workers}
        for worker in status.workers:
            if worker.incarnation < before.get(worker.name, 0):
                self._note(f"{worker.name} went back to incarnation {worker.incarnation}")

    def _note(self, text: str) -> None:
        if text not in self.wrong:
            self.wrong.append(text)


@dataclass(frozen=True)
class ChaosReport:
    faults: list[Fault]
    wrong: list[str]
    """Promises that were broken, in words."""
    journal_updates: int
    """Updates that the journal told of; 0: it was not kept."""
    calm_fps: float
    chaos_fps: float
    restarts: int
    state: str
    return_mean: float | None = None
    """Of the last 100 episodes, at the end."""

    @property
    def ok(self) -> bool:
        """Every fault was overcome, and there were some, if any were tried."""
        tried = all(fault.settled for fault in self.faults) and not all(fault.harmless for fault in self.faults)
        return not self.wrong and (tried or not self.faults)


@dataclass
class Stretch:
    """Steps that were learned from in some time."""

    steps: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0


class Chaos:
    def __init__(self, ask: Ask, plan: ChaosPlan, tell: Callable[[str], None]) -> None:
        self._ask = ask
        self._plan = plan
        self._tell = tell
        self._random = random.Random(plan.seed)
        self._witness = Witness()
        self._faults: list[Fault] = []
        self._updates = 0

    def run(self) -> ChaosReport:
        """Watch it calmly, harm it, watch it calmly again."""
        plan = self._plan
        first = last = self._status()
        if first is None or last is None:
            raise ValueError("the run does not answer")
        calm, chaos = Stretch(), Stretch()
        looks, now, due = ObservedTime(time.monotonic(), OWN_PAUSE_SECONDS), 0.0, plan.calm
        ended: float | None = None
        while (status := self._status()) is not None and status.state in ("starting", "running"):
            passed = looks.passed(time.monotonic())
            now += passed
            stretch = chaos if self._faults and ended is None else calm
            stretch.steps += status.steps - last.steps
            stretch.seconds += passed
            last = status
            self._witness.see(status)
            for fault in self._faults:
                fault.look(status, now)
            if now >= due and (plan.count == 0 or len(self._faults) < plan.count):
                due = now + plan.every
                self._harm(status, now)
            elif ended is None and self._over(now):
                ended = now
            elif ended is not None and now - ended >= plan.calm:
                break
            time.sleep(LOOK_SECONDS)
        wrong = [*self._witness.wrong, *self._check_journal(last)]
        restarts = last.restarts - first.restarts
        return ChaosReport(
            self._faults, wrong, self._updates, calm.rate, chaos.rate, restarts, last.state, last.return_mean
        )

    def _status(self) -> RunStatus | None:
        for _ in range(SILENT_LOOKS):
            answer = self._ask(AskStatus())
            if isinstance(answer, TellStatus):
                return answer.status
            time.sleep(LOOK_SECONDS)
        return None

    def _harm(self, status: RunStatus, now: float) -> None:
        victims = [worker for worker in status.workers if self._may_harm(worker)]
        if not victims:
            return
        kind, victim = self._random.choice(self._plan.faults), self._random.choice(victims)
        answer = self._ask(AskFault(victim.name, kind, self._plan.seconds))
        if answer is None:  # whether it happened nobody knows, so it does not count
            return
        if isinstance(answer, TellResult) and not answer.ok:
            raise ValueError(answer.text)
        seconds = 0.0 if kind in REPLACED else self._plan.seconds
        self._faults.append(Fault(kind, victim.name, victim.incarnation, now, seconds, victim.lost_connections))
        self._tell(f"{len(self._faults)}: {kind} {victim.name}")

    def _may_harm(self, worker: WorkerStatus) -> bool:
        """Only who has been seen to work can be seen to work again."""
        busy = any(fault.worker == worker.name and not fault.settled for fault in self._faults)
        works = worker.state == "running" and worker.progress > 0
        return works and not busy and worker.group in (self._plan.groups or (worker.group,))

    def _over(self, now: float) -> bool:
        plan = self._plan
        if plan.count == 0 or len(self._faults) < plan.count:
            return False
        return all(fault.settled or now - fault.at > plan.patience for fault in self._faults)

    def _check_journal(self, status: RunStatus) -> list[str]:
        path = RunDirectory(Path(status.path)).journal
        if not path.exists():
            return []
        entries = list(update_journal.read(path))
        self._updates = len({(entry.policy, entry.update) for entry in entries})
        return update_journal.check(entries, status.max_lag)


def describe(report: ChaosReport) -> str:
    lines = [f"{'fault':<12}{'times':>6}{'overcome':>10}{'p50 s':>8}{'p95 s':>8}{'max s':>8}"]
    for kind in sorted({fault.kind for fault in report.faults}):
        these = [fault for fault in report.faults if fault.kind == kind]
        taken = sorted(fault.overcome for fault in these if fault.overcome is not None)
        figures = "".join(f"{value:8.1f}" for value in spread(taken))
        lines.append(f"{kind:<12}{len(these):>6}{len(taken):>10}{figures}")
    share = f" ({report.chaos_fps / report.calm_fps:.0%})" if report.calm_fps else ""
    lines.append(f"steps/s: {report.calm_fps:,.0f} undisturbed, {report.chaos_fps:,.0f} under faults{share}")
    if report.return_mean is not None:
        lines.append(f"return of the last 100 episodes: {report.return_mean:.1f}")
    lines.append(f"workers begun anew: {report.restarts}; the run is {report.state}")
    if report.journal_updates:
        lines.append(f"journal: {report.journal_updates} updates, checked")
    else:
        lines.append("no journal was kept: with `srl train ENV --journal` every single update is checked, too")
    harmless = sorted({fault.worker for fault in report.faults if fault.harmless})
    if harmless:
        num_harmless = sum(fault.harmless for fault in report.faults)
        lines.append(
            f"{num_harmless} partitions cut nothing, and do not count: no TCP connections in {', '.join(harmless)}"
        )
    lines += [f"BROKEN: {text}" for text in report.wrong[:20]]
    lines += [f"NOT OVERCOME: {fault.kind} {fault.worker}" for fault in report.faults if not fault.settled]
    if report.faults and all(fault.harmless for fault in report.faults):
        lines.append("NO FAULT DID ANY HARM: choose others with --faults")
    lines.append("all promises kept" if report.ok else "promises were broken or not tried")
    return "\n".join(lines)
