"""The controller of a run: starts its workers, restarts those that die or hang, and ends them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

from srl.api.control import (
    Done,
    EpisodeReport,
    Evaluate,
    Evaluated,
    Failure,
    FromWorker,
    JournalEntry,
    MetricsReport,
    Names,
    Notice,
    OptionValue,
    Ready,
    Register,
    Stop,
    UpdateRecord,
)
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.scheduler import Died, Event, HostEvent, Scheduler
from srl.api.status import RunStatus
from srl.api.transport import Listener
from srl.api.worker import WorkerId
from srl.base.clock import Clock, SystemClock
from srl.base.files import Losses
from srl.base.seeding import derive
from srl.controller.control_socket import ControlServer
from srl.controller.faults import inject_fault
from srl.controller.gauges import Gauges
from srl.controller.option_changes import OptionChanges
from srl.controller.scaling import rescale
from srl.controller.supervision import (
    DeathHistory,
    GiveUp,
    ReplacementLimit,
    Slot,
    TaskSchedule,
    all_workers,
    briefly,
    can_evaluate,
    due_restarts,
    evaluators,
    resized,
    scaled,
    stuck,
    view_of,
)
from srl.controller.takeover import ControllerState
from srl.controller.update_records import UpdateRecords
from srl.names.table import NameTable

STATUS_SECONDS = 0.25
STOP_SECONDS = 3.0
POLL_SECONDS = 0.05
LAST_EVALUATION_SECONDS = 60.0
LIVE = ("starting", "running")

Report = UpdateRecord | EpisodeReport | Evaluated | MetricsReport | Notice


class Controller:
    """Decides when its scheduler starts, restarts and ends workers. A run ends `finished`, `stopped` or `failed`."""

    def __init__(
        self,
        experiment: Experiment,
        scheduler: Scheduler,
        path: str,
        runtime: Path | None = None,
        on_status: Callable[[RunStatus], None] | None = None,
        clock: Clock | None = None,
        began: float | None = None,
        remote_listener: Listener | None = None,
        on_journal: Callable[[JournalEntry], None] | None = None,
        on_report: Callable[[Report], None] | None = None,
        losses: Losses | None = None,
    ) -> None:
        self._experiment = experiment
        self._scheduler = scheduler
        self._clock = clock or SystemClock()
        self._on_status = on_status or (lambda status: None)
        self._on_journal = on_journal or (lambda entry: None)
        self._on_report = on_report or (lambda report: None)
        self.records = UpdateRecords(self._record)
        self._groups = {group.name: group for group in experiment.groups}
        self._histories = {group.name: DeathHistory(group.restart) for group in experiment.groups}
        self._slots: dict[tuple[str, int], Slot] = {}
        self._names, self._names_changed = NameTable(), False
        self._new_workers: list[WorkerId] = []  # workers that became ready since names were last sent
        self.gauges = Gauges(experiment, path, losses, scheduler.refused)
        self._server = ControlServer(runtime, self, remote_listener) if runtime is not None else None
        self._complete: set[str] = set()  # policies that have reached their number of steps
        self._restarts = 0
        self.changes = OptionChanges(self._groups)
        self._messages: deque[str] = deque(maxlen=8)
        self.gauges.began = self._clock.wall() if began is None else began
        self._began = self._clock.now() - max(0.0, self._clock.wall() - self.gauges.began)
        self._check, self._report = TaskSchedule(STATUS_SECONDS), TaskSchedule(STATUS_SECONDS)
        self._restarts_pending = self.save_requested = False
        self._guard = ReplacementLimit()
        self._evaluate_until: float | None = None  # after the last update of a run on recorded data
        self.state = "starting"
        self.reason = self._finish_reason = ""

    # Start and end of the run

    @property
    def active(self) -> bool:
        return self.state in LIVE

    def start(self) -> None:
        """Start all workers. Raises ValueError if the scheduler has no room for them."""
        self._scheduler.check_room(all_workers(self._groups.values()))
        for group in self._groups.values():
            for index in range(group.count):
                self._launch(group, index, 0)

    def take_over(self, state: ControllerState, patience: float) -> None:
        """Take over the run from a controller that died. Its workers continue, and missing ones are restarted."""
        self._restarts = state.restarts
        self.changes.restore(state.changes, state.num_changes)
        self._complete.update(state.complete)
        self.gauges.take_over(state.gauges)
        self.records.take_over(state.records)
        for name, count in state.counts.items():
            self._groups[name] = resized(self._groups[name], count)
        orphans = self._scheduler.find_orphans(state.cluster.hosts, patience)
        kept, missing = state.match(self._groups.values(), orphans)
        for group, orphan in kept:
            worker_id = orphan.worker_id
            self._slots[(group.name, worker_id.index)] = Slot(worker_id, "running" if orphan.ready else "starting")
            seed = derive(self._experiment.seed, group.name, worker_id.index, worker_id.incarnation)
            self._scheduler.adopt(worker_id, group.config, group.resources, seed)
            for name, address in orphan.endpoints.items():
                self._names.register(name, address, worker_id.name)
        self._scheduler.finish_takeover(patience)
        lost = [(group, Slot(worker_id, "ended")) for group, worker_id in missing]
        self._restarts_pending = bool(lost)
        self._slots.update({(slot.worker_id.group, slot.worker_id.index): slot for _, slot in lost})
        for group, slot in lost:
            self._plan(group, slot, "its host did not come back", True)
        self._names_changed = True
        self.state = "running"
        self.add_message(f"takeover: {len(kept)} workers continue, {len(lost)} are restarted", "takeover")

    def takeover_state(self) -> ControllerState | None:
        """Return the state that a successor needs, or None if no worker would outlive this controller."""
        cluster = self._scheduler.takeover_record()
        if cluster is None:
            return None
        worker_ids = [slot.worker_id for slot in self._all()]
        own = (self._restarts, self.gauges, self._complete, self.records, self.changes)
        return ControllerState.of(cluster, self._groups, worker_ids, *own)

    def _launch(self, group: WorkerGroup, index: int, incarnation: int) -> None:
        worker_id = WorkerId(group.name, index, incarnation)
        self._slots[(group.name, index)] = Slot(worker_id)
        seed = derive(self._experiment.seed, group.name, index, incarnation)
        self._scheduler.start(worker_id, group.config, group.resources, seed)

    def tick(self) -> bool:
        """Do one round of supervision. Returns False once the run has ended."""
        if not self.active:
            return False
        for event in self._scheduler.poll(POLL_SECONDS):
            self._handle(event)
        now = self._clock.now()
        if self._restarts_pending:
            self._restart_due(now)
        if (end := self._evaluate_until) is not None and (now > end or not self._waits()):
            self.stop("finished", self._finish_reason)
        if self.state == "starting" and all(
            slot.state == "running" or not self._groups[name].restart.vital for (name, _), slot in self._slots.items()
        ):
            self.state = "running"
        self._send_names()
        if self._server is not None:
            self._server.poll()
        if self._check.due(now):
            for slot, what in stuck(self._all(), self._scheduler, self._groups, self._guard, self._clock):
                self.add_message(f"{slot.worker_id.name} is {what}; replacing it", "worker")
                self._scheduler.kill(slot.worker_id)
            self._check.done(self._clock.now())
        if self._report.due(now):
            self._on_status(self.status())
            self._report.done(self._clock.now())
        return self.active

    def stop(self, state: str, reason: str) -> None:
        """End the run; only the first call has an effect."""
        if self.active:
            self.state, self.reason = state, reason

    def fail(self, reason: str) -> None:
        """End the run as failed, even if it has ended otherwise. A second reason follows the first."""
        self.reason = f"{self.reason}\n{reason}" if self.state == "failed" else reason
        self.state = "failed"

    def shut_down(self) -> None:
        """Ask the workers to stop, and kill those that do not."""
        live = [slot for slot in self._slots.values() if slot.state in LIVE]
        for slot in live:
            slot.state = "stopping"
        self._scheduler.send([slot.worker_id for slot in live], Stop())
        deadline = self._clock.now() + STOP_SECONDS
        try:
            waiting = True
            while waiting and self._clock.now() < deadline:
                for event in self._scheduler.poll(POLL_SECONDS):
                    self._handle(event)
                # Do not wait for a worker without a process.
                waiting = any(slot.state == "stopping" and self._scheduler.pid(slot.worker_id) for slot in self._all())
            self.records.flush()
        finally:
            try:
                if self._server is not None:
                    self._server.close()
            finally:
                self._scheduler.close()

    def _all(self) -> list[Slot]:
        return list(self._slots.values())

    # Events

    def _handle(self, event: Event) -> None:
        if isinstance(event, HostEvent):
            self.add_message(event.text, "host lost" if event.lost else "host")
            if event.fatal:
                self.stop("failed", event.text)
            return
        slot = self._slots.get((event.worker_id.group, event.worker_id.index))
        if slot is None or slot.worker_id != event.worker_id:
            return  # an earlier incarnation, which is no longer part of the run
        if isinstance(event, Died):
            self._on_death(slot, event)
        else:
            self._on_message(slot, event.message)

    def _on_message(self, slot: Slot, message: FromWorker) -> None:
        if isinstance(message, UpdateRecord) or (isinstance(message, EpisodeReport) and message.update):
            if isinstance(message, UpdateRecord) and message.journal is not None:
                self._on_journal(message.journal)
            self.records.add(message)
        elif isinstance(message, (EpisodeReport, Evaluated, MetricsReport)):
            self.gauges.add_report(message)
            self._on_report(message)
        elif isinstance(message, Register):
            self._names.register(message.name, message.address, slot.worker_id.name)
            self._names_changed = True
        elif isinstance(message, Ready):
            if slot.state == "starting":
                slot.state, slot.ready_at = "running", self._clock.now()
            self._new_workers.append(slot.worker_id)
        elif isinstance(message, Notice):
            self.add_message(f"{slot.worker_id.name}: {message.text}")
        elif isinstance(message, Failure):
            slot.error = message.text
            if message.fatal and self._groups[slot.worker_id.group].restart.vital:
                self.stop("failed", message.text)
        elif isinstance(message, Done):
            self._on_done(message)

    def _record(self, record: UpdateRecord) -> None:
        if record.policy in self.gauges.policies:
            self.gauges.add_record(record)
            self._on_report(record)

    def _on_done(self, message: Done) -> None:
        self._complete.add(message.policy)
        missing = [name for name in self._experiment.learning if name not in self._complete]
        if message.policy and missing:
            what = f"policy {message.policy} has finished ({message.reason})"
            self.add_message(f"{what}; still training: {', '.join(missing)}")
            return
        total = f"{self.status().steps:,} steps"  # reads the last versions, too
        self._finish_reason = total if len(self._experiment.learning) > 1 else message.reason
        if self._waits():
            self._evaluate_until = self._clock.now() + LAST_EVALUATION_SECONDS
            self.evaluate()
        else:
            self.stop("finished", self._finish_reason)

    def _waits(self) -> bool:
        return self.gauges.waits_for_evaluation and can_evaluate(self._slots, self._groups)

    def _on_death(self, slot: Slot, event: Died) -> None:
        worker_id = slot.worker_id
        self._restarts_pending = True
        self.gauges.forget(worker_id, self._scheduler.meter(worker_id))
        self._names_changed |= self._names.revoke(worker_id.name)
        if slot.state == "stopping" or not self.active or event.clean:
            wanted_again = slot.state == "stopping" and self.active
            slot.state = "ended"
            if worker_id.index >= self._groups[worker_id.group].count:
                del self._slots[(worker_id.group, worker_id.index)]
            elif wanted_again:  # scaled down, and up again before its process ended
                slot.restart_at = self._clock.now()
            return
        slot.state = "ended"
        self._plan(self._groups[worker_id.group], slot, slot.error or event.reason, event.blameless)

    def _plan(self, group: WorkerGroup, slot: Slot, reason: str, blameless: bool) -> None:
        plan = self._plan_group_restart if group.restart.together else self._plan_restart
        plan(group, slot, reason, blameless)

    def _plan_restart(self, group: WorkerGroup, slot: Slot, reason: str, blameless: bool) -> None:
        now = self._clock.now()
        if blameless:
            self._restarts += 1
            slot.restart_at = now
            return
        worked = now - slot.ready_at if slot.ready_at is not None else 0.0
        verdict = self._histories[group.name].died(slot.worker_id.name, reason, now, worked, group.count)
        if isinstance(verdict, GiveUp):
            if group.restart.vital:
                self.stop("failed", verdict.reason)
            else:
                self.add_message(f"continuing without {group.name}: {briefly(verdict.reason)}", "worker")
            return
        what = f"restarting it in {verdict.after:.0f} s" if verdict.quarantine else "restarting it"
        self.add_message(f"{slot.worker_id.name} died: {briefly(reason)}; {what}", "worker")
        self._restarts += 1
        slot.restart_at = now + verdict.after

    def _plan_group_restart(self, group: WorkerGroup, slot: Slot, reason: str, blameless: bool) -> None:
        """Restart all data-parallel trainers in a group from the last committed update, because one of them died."""
        others = [s for (name, _), s in self._slots.items() if name == group.name]
        if any(s.restart_at is not None for s in others):
            slot.restart_at = max(s.restart_at or 0.0 for s in others)
            return
        self._plan_restart(group, slot, reason, blameless)
        for other in others:
            if other is not slot and other.state in LIVE:
                self._scheduler.kill(other.worker_id)

    def _restart_due(self, now: float) -> None:
        for name, index, incarnation in due_restarts(self._slots, self._groups, now) if self.active else ():
            self._launch(self._groups[name], index, incarnation)
        self._restarts_pending = any(slot.restart_at is not None for slot in self._all())

    def _send_names(self) -> None:
        worker_ids, self._new_workers = self._new_workers, []
        if self._names_changed:
            self._names_changed = False
            # Starting workers also get the names: trainers on several hosts connect to each other before they are ready
            worker_ids = [slot.worker_id for slot in self._all() if slot.state in LIVE]
        if worker_ids:
            self._scheduler.send(worker_ids, Names(self._names.lookup("")))

    # Requests

    def status(self) -> RunStatus:
        members = [view_of(slot, self._scheduler) for slot in self._slots.values()]
        now, texts = self._clock.now(), list(self._messages)
        return self.gauges.status(members, now, now - self._began, self.state, self._restarts, texts, self.reason)

    def add_message(self, text: str, event: str = "message") -> None:
        """Add an event to the messages shown in the views, and to system.jsonl as an event of this kind."""
        self._messages.append(text)
        self._on_report(Notice(text, event))

    def scale(self, name: str, count: int, relative: bool = False) -> str:
        """Change the number of workers in a group and describe the change. Raises ValueError if it is impossible."""
        group = scaled(self._groups, name, count, relative)
        before = self._groups[name]
        more = [(f"{name}/{index}", group.resources) for index in range(before.count, group.count)]
        self._scheduler.check_room(more)
        self._groups[name] = group
        rescale(group, self._slots, self._scheduler, self._launch, self._clock.now())
        self._restarts_pending = True
        change = f"{name}: {before.count} -> {group.count}"
        self.add_message(change, "change")
        return change

    def change_option(self, name: str, value: OptionValue, strict: bool = False) -> str:
        """Change an option of running and future workers, and describe the change. Raises ValueError if no worker has
        such an option, or if the value is invalid. With `strict`, the run fails if the environments have no such
        attribute; otherwise this is only reported."""
        names, message = self.changes.change(name, value, strict)
        reached = [s.worker_id for s in self._all() if s.worker_id.group in names and s.state in LIVE]
        self._scheduler.send(reached, message)
        return f"{name} is now {value}"

    def evaluate(self) -> None:
        """Ask the evaluator to evaluate the newest version as soon as possible."""
        names = evaluators(self._groups.values())
        self._scheduler.send([s.worker_id for s in self._all() if s.worker_id.group in names], Evaluate())

    def inject_fault(self, worker: str, fault: str, seconds: float) -> str:
        """Inject a fault, for `srl chaos`. Raises ValueError if the worker or fault is unknown or not possible."""
        workers = {slot.worker_id.name: slot.worker_id for slot in self._all()}
        return inject_fault(self._scheduler, workers, self._names, worker, fault, seconds)
