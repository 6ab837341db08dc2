"""Supervision of workers: restarts, stuck workers and group sizes. Makes decisions only; handles no processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from srl.api.experiment import Resources, RestartRule, WorkerGroup
from srl.api.scheduler import MAX_WORKERS, Scheduler
from srl.api.worker import WorkerId
from srl.base.clock import Clock, ObservedTime
from srl.base.errors import TRACEBACK_HEAD, innermost, last_line, nearest
from srl.base.meter import Counter, Meter, Phase
from srl.controller.gauges import WorkerView

FIRST_BACKOFF = 0.2
MAX_BACKOFF = 30.0
HEALTHY_SECONDS = 5.0  # a worker that ran longer was killed or hit a rare error, so it is restarted at once
MAX_HEALTHY_FAILURES = 10  # limit on all deaths, early or late, as a multiple of `max_failures`
QUARANTINE_SECONDS = 60.0
GUARD_SECONDS = 60.0
GUARD_SHARE = 0.2
GUARD_ALWAYS = 2
STOPPED_SHARE = 0.5  # if a larger fraction is stopped (SIGSTOP) at once, the whole run was paused on purpose
FROZEN_SECONDS = 2.0
START_SECONDS = 300.0  # minimum time for a worker to become ready: it may load a large scene or wait for others
START_HANGS = 4  # a starting worker gets this multiple of the hang timeout if that is longer
MAX_SHARE_INVERSE = 10.0
MANY_STEPS = 1000  # gradient steps of an update that may be the reason why it takes long
CODE_ERRORS = (
    *("ValueError", "TypeError", "AttributeError", "NameError", "KeyError", "IndexError", "AssertionError"),
    *("ZeroDivisionError", "NotImplementedError", "ImportError", "ModuleNotFoundError"),
)
"""Errors that a restart does not change, unlike those of the network, of files or of memory."""


@dataclass(frozen=True)
class Restart:
    after: float  # seconds to wait before the restart
    quarantine: bool = False  # only this worker of its group keeps dying: the cause is its index, seed or host


@dataclass(frozen=True)
class GiveUp:
    reason: str


@dataclass
class DeathHistory:
    """The deaths of one worker group."""

    rule: RestartRule
    _deaths: deque[tuple[float, bool, str, str]] = field(default_factory=deque)  # time, early, worker, reason

    def died(self, name: str, reason: str, now: float, worked: float = 0.0, size: int = 1) -> Restart | GiveUp:
        """Decide how to respond to the death of a worker that had run for `worked` seconds.

        A worker that had run for a while is replaced at once, as is the first one that had not. Further early deaths
        are followed by growing delays, and too many of them end the run. If only one worker in a group of `size` keeps
        dying, it is left out for QUARANTINE_SECONDS while the others continue. An error in the code that occurs twice
        at the same place, with nothing different in between, ends the run."""
        self._deaths.append((now, worked < HEALTHY_SECONDS, name, reason))
        while self._deaths and now - self._deaths[0][0] > self.rule.window:
            self._deaths.popleft()
        early = sum(soon for _, soon, *_ in self._deaths)
        others = sum(soon for _, soon, worker, _ in self._deaths if worker != name)
        if self._repeated(name, size):
            first = self._deaths[-2][2]
            who = f"{name} died twice" if first == name else f"{first} and {name} died"
            return GiveUp(f"{who} with the same error, so another restart would not help: {reason}")
        if early > self.rule.max_failures and size > 1 and others <= 1 and not self.rule.together:
            return Restart(QUARANTINE_SECONDS, quarantine=True)
        if early > self.rule.max_failures or len(self._deaths) > MAX_HEALTHY_FAILURES * self.rule.max_failures:
            return GiveUp(
                f"{name} died; its group had {len(self._deaths)} deaths within {self.rule.window:.0f} s, so another "
                f"restart would not help. The last reason: {reason}"
            )
        if worked >= HEALTHY_SECONDS or early <= 1:
            return Restart(0.0)
        return Restart(min(MAX_BACKOFF, FIRST_BACKOFF * 2 ** (early - 2)))

    def _repeated(self, name: str, size: int) -> bool:
        """Return whether the last two deaths were early and by the same error in the code. The second must not be
        explained by its worker's index: it is that of another worker, or workers of this group have the same task."""
        if len(self._deaths) < 2:
            return False
        (_, one_early, one, before), (_, early, _, reason) = self._deaths[-2], self._deaths[-1]
        same = before == reason and reason.startswith(TRACEBACK_HEAD)
        same_task = one != name or size == 1 or self.rule.together
        return early and one_early and same and same_task and last_line(reason, "").startswith(CODE_ERRORS)


@dataclass
class ReplacementLimit:
    """Limits how many workers are replaced because they seem stuck. If many seem stuck at once, the cause is something
    they share or the supervision itself, and replacing them all would make it worse."""

    _acted: deque[float] = field(default_factory=deque)

    def allows(self, now: float, size: int, stopped: int = 0) -> bool:
        """Return whether one more of `size` workers may be replaced because it seems stuck. `stopped` is the number of
        workers that the kernel reports as stopped: these may be replaced, unless they are the majority."""
        if 0 < stopped <= max(GUARD_ALWAYS, STOPPED_SHARE * size):
            return True
        while self._acted and now - self._acted[0] > GUARD_SECONDS:
            self._acted.popleft()
        if len(self._acted) >= max(GUARD_ALWAYS, GUARD_SHARE * size):
            return False
        self._acted.append(now)
        return True


@dataclass
class TaskSchedule:
    """Schedule for a task whose cost grows with the number of workers: it takes at most a tenth of the time.

    The cheaper of the last two turns counts, so a single slow one (the first imports TensorBoard) causes no pause."""

    seconds: float  # minimum interval
    _next: float = 0.0
    _began: float = 0.0
    _cost: float = 0.0

    def due(self, now: float) -> bool:
        self._began = now
        return now >= self._next

    def done(self, now: float) -> None:
        previous, self._cost = self._cost, now - self._began
        self._next = self._began + max(self.seconds, MAX_SHARE_INVERSE * min(previous, self._cost))


@dataclass
class ProgressWatch:
    """Distinguishes a stuck worker from a slow or waiting one by changes in its gauges, not by elapsed time alone."""

    looks: ObservedTime = field(default_factory=ObservedTime)
    seen: tuple[int, int] = (-1, -1)
    still: float = 0.0  # seconds of observation without any change

    def stuck(self, progress: int, stamp: int, now: float, timeout: float, frozen: bool = False) -> bool:
        """Return whether the worker has made no progress for `timeout` seconds. `stamp` changes with every change of
        phase: a waiting worker keeps waking up, one that is frozen or blocked in a call does not. A worker that the
        kernel reports as stopped (`frozen`) cannot recover, so it gets at most FROZEN_SECONDS."""
        passed = self.looks.passed(now)
        if (progress, stamp) != self.seen:
            self.seen, self.still = (progress, stamp), 0.0
            return False
        self.still += passed
        return self.still > (min(timeout, FROZEN_SECONDS) if frozen else timeout)


@dataclass
class Slot:
    """A worker's place in the graph, and the worker's state."""

    worker_id: WorkerId
    state: str = "starting"  # starting | running | stopping | ended
    restart_at: float | None = None
    ready_at: float | None = None
    watch: ProgressWatch = field(default_factory=ProgressWatch)
    error: str = ""  # reported failure or detected hang; explains the death better than the exit status


def due_restarts(
    slots: Mapping[tuple[str, int], Slot], groups: Mapping[str, WorkerGroup], now: float
) -> Iterator[tuple[str, int, int]]:
    """Yield group, index and incarnation of the workers to restart now. Those that restart together wait until all of
    them have ended."""
    for (name, index), slot in list(slots.items()):
        if slot.restart_at is None or slot.restart_at > now:
            continue
        together = {i: s for (other, i), s in slots.items() if other == name} if groups[name].restart.together else {}
        if all(s.state == "ended" for s in together.values()):
            members = list(together) or [index]
            incarnation = max(slots[(name, i)].worker_id.incarnation for i in members) + 1
            yield from ((name, member, incarnation) for member in members)


def stuck(
    slots: Sequence[Slot],
    scheduler: Scheduler,
    groups: Mapping[str, WorkerGroup],
    guard: ReplacementLimit,
    clock: Clock,
) -> Iterator[tuple[Slot, str]]:
    """Yield the stuck workers to replace, each with a description. A worker without a process cannot be stuck."""
    watched = [s for s in slots if s.state == "running" or (s.state == "starting" and scheduler.pid(s.worker_id))]
    stopped = {slot.worker_id for slot in watched if scheduler.usage(slot.worker_id).stopped}
    for slot in watched:
        meter, frozen, starting = scheduler.meter(slot.worker_id), slot.worker_id in stopped, slot.state == "starting"
        timeout = groups[slot.worker_id.group].restart.hang_timeout
        if starting or meter.get(Counter.COMPILING):
            timeout = max(START_SECONDS, START_HANGS * timeout)
        now = clock.now()  # read the clock for each worker: dumping the stacks of another takes time
        if not slot.watch.stuck(meter.get(Counter.PROGRESS), meter.phase_start(), now, timeout, frozen):
            continue
        if guard.allows(now, len(slots), len(stopped) if frozen else 0):
            where = "at its start" if starting else f"in phase {meter.phase().name.lower()}"
            what = "frozen (SIGSTOP)" if frozen else f"stuck {where}"
            stacks = "" if frozen else scheduler.dump(slot.worker_id)
            work = long_update(groups[slot.worker_id.group], meter.phase())
            slot.error = f"{stacks}\n{what} for {slot.watch.still:.0f} s{work}{innermost(stacks)}".lstrip()
            slot.watch = ProgressWatch()
            yield slot, what


def long_update(group: WorkerGroup, phase: Phase) -> str:
    """Say how many gradient steps an update of these workers has, if there are so many that they may be the reason why
    it takes long."""
    sizes = group.config.sizes() if phase is Phase.UPDATE else {}
    steps = sizes.get("batch", 0.0) * sizes.get("updates_per_decision", 0.0)
    if steps < MANY_STEPS:
        return ""
    return (
        f": an update has {steps:,.0f} gradient steps; choose a smaller --algo.updates-per-decision or --batch, or a "
        "larger --hang-timeout"
    )


def briefly(reason: str) -> str:
    """Return the last line of a reason, short enough for a message."""
    return last_line(reason, "no reason given", limit=200)


def scaled(groups: Mapping[str, WorkerGroup], name: str, count: int, relative: bool) -> WorkerGroup:
    """Return the named group with a new number of workers. Raises ValueError if that is not possible."""
    group = groups.get(name)
    if group is None:
        raise ValueError(f"unknown worker group {name!r}{nearest(name, groups)}")
    if group.fixed_because:
        raise ValueError(f"{name} cannot be resized during the run: {group.fixed_because}")
    wanted = group.count + count if relative else count
    if wanted < 1:
        raise ValueError(f"{name} needs at least one worker; {wanted} were requested")
    _check_total(sum(g.count for g in groups.values()) - group.count + wanted)
    return resized(group, wanted)


def resized(group: WorkerGroup, count: int) -> WorkerGroup:
    """Return the group with `count` workers, whose config contains that number if they restart together."""
    if group.restart.together and count != group.count:
        return replace(group, config=group.config.resized(count), count=count)
    return replace(group, count=count)


def view_of(slot: Slot, scheduler: Scheduler) -> WorkerView:
    """Return what the gauges read of a worker."""
    worker_id = slot.worker_id
    if slot.state == "ended":  # its counts were added to the totals when it died
        return WorkerView(worker_id, Meter.unshared(), 0, slot.state)
    usage = scheduler.usage(worker_id)
    return WorkerView(worker_id, scheduler.meter(worker_id), scheduler.pid(worker_id), slot.state, usage)


def can_evaluate(slots: Mapping[tuple[str, int], Slot], groups: Mapping[str, WorkerGroup]) -> bool:
    """Return whether an evaluator is alive or will be restarted."""
    own = [slot for (name, _), slot in slots.items() if groups[name].config.evaluates()]
    return any(slot.state in ("starting", "running") or slot.restart_at is not None for slot in own)


def evaluators(groups: Iterable[WorkerGroup]) -> set[str]:
    """Return the names of the groups that evaluate policies. Raises ValueError if there are none."""
    found = {group.name for group in groups if group.config.evaluates()}
    if not found:
        raise ValueError("this run has no evaluator; start it with --eval-every STEPS")
    return found


def all_workers(groups: Iterable[WorkerGroup]) -> list[tuple[str, Resources]]:
    """Return the name and resources of every worker. Raises ValueError if there are too many."""
    named = [(f"{group.name}/{index}", group.resources) for group in groups for index in range(group.count)]
    _check_total(len(named))
    return named


def _check_total(total: int) -> None:
    if total > MAX_WORKERS:
        raise ValueError(f"a run has at most {MAX_WORKERS} workers; {total} were requested")
