"""A run's session, from start to finish: workers, metrics and checkpoints."""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

import srl
from srl.api.control import MetricsReport, UpdateRecord
from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig
from srl.api.scheduler import Scheduler
from srl.api.status import RunStatus
from srl.base.config import to_data
from srl.base.files import Losses, write_whole
from srl.base.process import STOP_SIGNALS, interrupt, stop_request, uninterrupted
from srl.base.shared_memory import KeptFile
from srl.callbacks.callback import Callback
from srl.controller.control_socket import remote_listener
from srl.controller.controller import Controller, Report
from srl.controller.metrics import episode_records
from srl.controller.takeover import ControllerState
from srl.experiments.graph.sizes import sizes_of
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.best_checkpoint import BestCheckpoint
from srl.experiments.session.callback_runner import CallbackRunner, LiveRun, load_callback
from srl.experiments.session.checkpointing import (
    BackgroundWriter,
    CheckpointWriter,
    Restored,
    restore_opponents,
    steps_between_kept,
)
from srl.experiments.session.cluster_site import ClusterSite, hosts_scheduler, site_of, warnings
from srl.experiments.session.goals import Goals
from srl.experiments.session.run import Run, RunFailed
from srl.experiments.session.run_record import RunRecord
from srl.replay.saved import ReplayArchive
from srl.schedulers.inline import InlineScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.schedulers.local.worker_logs import LogFiles
from srl.schedulers.local.zygote_launch import PRELOAD
from srl.storage.checkpoints import Retention
from srl.storage.run_directory import RunDirectory
from srl.storage.run_ownership import Ownership
from srl.storage.service_sinks import Sinks
from srl.storage.update_journal import Journal
from srl.transports.runtime_dir import make_runtime

OnStatus = Callable[[RunStatus], None] | None
TAKEOVER_SECONDS = 10.0
"""Time limit for hosts to reconnect after their controller died; agents try twice per second."""
CONTROLLER_SECONDS = 1.0
ENDLESS_STEPS = 10_000
ENDLESS = (
    f"no episode has ended in {ENDLESS_STEPS:,} steps per environment copy, so there are no returns. If episodes may "
    "never end, limit them: --env-arg max_episode_steps=1000 for a Gymnasium id, gymnasium.wrappers.TimeLimit in your "
    "own function"
)
"""Time between writes of the state for a takeover."""


class Session:
    """Runs an experiment in a run directory. Calls `on_status` about four times per second."""

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        ownership: Ownership,
        options: TrainOptions,
        on_status: OnStatus = None,
        began: float | None = None,
        preload: tuple[str, ...] = (),
        why_not_exact: str = "",
        site: ClusterSite | None = None,
        takeover: ControllerState | None = None,
        callbacks: Sequence[Callback] = (),
        own: bool = True,
    ) -> None:
        """`site` is the site of a multi-host run (default: as the options describe it), `takeover` the state of a
        controller that died, `callbacks` further callbacks besides those that the options name. Checkpoints are signed
        if the run is the user's `own`."""
        self._experiment = experiment
        self._takeover = takeover
        self._run = run
        self._ownership = ownership
        self._options = options
        self._on_status = on_status or (lambda status: None)
        self._losses = losses = Losses()
        self._journal = Journal(run.journal, losses)
        self._goals = Goals(options.run.until, options.run.until_return, experiment.learning)
        self._record = RunRecord(run, losses, options.checkpoints.episodes, options.checkpoints.record_every)
        run.write_machine(srl.__version__)
        named = [load_callback(name) for name in options.run.callbacks]
        with ExitStack() as undo:
            self._memory = _run_memory(experiment, options)
            undo.callback(self._memory.close)
            self._runtime = make_runtime(run.name)
            undo.callback(shutil.rmtree, self._runtime, ignore_errors=True)
            self._site = site or site_of(options, experiment.groups, run.logs, takeover)
            self._scheduler = scheduler = self._make_scheduler((*PRELOAD, *preload))
            undo.callback(scheduler.close)
            remote, site = None, self._site
            if site is not None and site.address_folder is not None:
                remote = remote_listener(site.address_folder, site.identity, site.host)
            self._controller = Controller(
                experiment,
                scheduler,
                str(run.path),
                self._runtime,
                self._observe,
                began=began,
                remote_listener=remote,
                on_journal=self._journal.add,
                on_report=self._on_report,
                losses=losses,
            )
            self._sinks = Sinks(run, options.run.sinks, losses, self._notify)
            undo.pop_all()
        self._live = LiveRun(run.path, self._controller)
        only_warn = options.run.callback_errors == "warn"
        self._callbacks = CallbackRunner(
            [*named, *callbacks], self._live, not scheduler.inline, self._notify, only_warn=only_warn
        )
        best_by = options.checkpoints.best
        self._writer = BackgroundWriter(threaded=not scheduler.inline)
        self._checkpoints = CheckpointWriter(
            experiment,
            run.checkpoints,
            self._memory.commits,
            scheduler,
            Retention(options.checkpoints.keep_last, steps_between_kept(options)),
            options.checkpoints.checkpoint_seconds,
            why_not_exact,
            self._notify,
            self._writer,
            ownership.check,
            best_by,
            own,
            on_written=lambda path: self._callbacks.call("on_checkpoint", path),
            replay=ReplayArchive(run.replay, self._memory.replays) if options.checkpoints.save_replay else None,
        )
        parameters = self._memory.parameters
        self._best = BestCheckpoint(
            run,
            experiment.description,
            parameters,
            self._record,
            self._notify,
            self._writer,
            ownership.check,
            best_by,
            own,
        )
        self._recorded = 0.0
        # Number of decisions without the end of an episode after which there is a warning.
        sizes = sizes_of(experiment)
        copies = math.prod(sizes.get(name, math.inf) for name in ("actors", "lanes", "ring"))
        self._endless = ENDLESS_STEPS * copies
        if takeover is not None:
            self._controller.records.last = self._record.last_updates(None)

    def _make_scheduler(self, preload: tuple[str, ...]) -> Scheduler:
        if self._options.workers.scheduler == "inline":
            return InlineScheduler(self._memory)
        logs = LogFiles(self._run.logs, self._losses, self._options.checkpoints.log_mb * 1_000_000)
        if self._site is not None:
            return hosts_scheduler(self._site, self._run.name, self._options, self._memory, logs, preload)
        path = [entry for entry in sys.path if entry]
        return ProcessScheduler(self._run.name, self._memory, self._runtime, logs, preload, path)

    def restore(self, restored: Restored) -> None:
        """Restore a checkpoint before the run starts."""
        self._checkpoints.restore(restored)
        self._callbacks.restore(restored.metadata.get("callbacks", {}))
        if self._options.agents.self_play != "none":
            size, stores = self._options.agents.self_play_versions, dict(self._scheduler.parameters())
            restore_opponents(self._run.checkpoints, restored, stores, size, self._notify)
        if self._takeover is not None:
            return  # the dead controller's figures count; the checkpoint is only for trainers that were lost
        self._controller.changes.restore(restored.changes)
        gauges = self._controller.gauges
        gauges.restore(restored.metadata.get("episodes", {}))
        gauges.resume_from(restored.policies)
        self._controller.records.last = self._record.last_updates(
            {name: int(metadata["version"]) for name, metadata in restored.policies.items()}
        )
        self._goals.episodes_before = {name: policy.episodes.count for name, policy in gauges.policies.items()}

    def run(self) -> Run:
        with self._signals():
            try:
                self._run.clear_status()
                self._start()
                self._live.steps = self._controller.gauges.recorded_step
                self._callbacks.call("on_start", self._live)
                while self._controller.tick():
                    self._carry_out_requests()
                    if self._ownership.lost:  # only one process may write
                        self._controller.stop("failed", "another process has taken over this run")
                    if self._checkpoints.due:
                        self._save()
                if self._controller.state != "failed":
                    self._save()  # while workers exist: a run in a single thread is saved with their state
            except KeyboardInterrupt:
                self._controller.stop("stopped", "interrupted")
            except Exception as error:
                self._controller.stop("failed", str(error))
                raise
            finally:
                try:
                    self._controller.shut_down()
                    status = self._finish()
                finally:
                    self._writer.close()
                    with uninterrupted():
                        self._sinks.close(0.0)
                        self._memory.close()
                        shutil.rmtree(self._runtime, ignore_errors=True)
        return Run(self._run.path, self._controller.state, self._controller.reason, status)

    def _start(self) -> None:
        for unprotected in warnings(self._options, self._site):
            self._notify(unprotected)
        if self._takeover is None:
            self._controller.start()
            return
        try:
            self._controller.take_over(self._takeover, TAKEOVER_SECONDS)
        except ConnectionError as error:
            raise RunFailed(f"{error}. Continue from the last checkpoint: srl resume {self._run.name}") from error

    def _notify(self, text: str) -> None:
        self._controller.add_message(text)

    def _finish(self) -> RunStatus:
        """Write the last metrics, checkpoint and status; a full disk loses only these."""
        self._journal.close()
        ended = self._controller.status()
        self._observe(ended)
        self._writer.finish()
        self._save(with_workers=False)
        self._writer.finish()
        self._callbacks.call("on_end", self._controller.status())
        self._callbacks.close()
        self._carry_out_requests()
        self._record.close(self._controller.gauges)
        self._controller.gauges.lost_rows = self._sinks.close()
        try:
            self._ownership.check()
            self._run.write_status(self._last_status(ended))
        except OSError as error:
            self._controller.add_message(str(error))
        status = self._last_status(ended)
        self._on_status(status)  # with what callbacks and sinks reported at the end
        return status

    def _last_status(self, ended: RunStatus) -> RunStatus:
        """Return the status without the time that callbacks and sinks took after the run had `ended`."""
        return msgspec.structs.replace(self._controller.status(), elapsed=ended.elapsed)

    def _observe(self, status: RunStatus) -> None:
        for text in self._losses.drain_messages():
            self._notify(text)
        now = time.monotonic()
        ended = status.state not in ("starting", "running")
        if now - self._recorded >= CONTROLLER_SECONDS or ended:
            self._recorded = now
            self._record_controller()
        self._record.measure(status)
        if status.episodes == 0 and status.decisions - status.first_steps > self._endless:
            self._endless = math.inf
            self._notify(ENDLESS)
        evaluations = self._controller.gauges.drain_evaluations()
        self._best.add(evaluations, status.elapsed)
        for _, evaluation in evaluations:
            self._callbacks.call("on_evaluation", evaluation)
        self._on_status(status)

    def _on_report(self, message: Report) -> None:
        gauges = self._controller.gauges
        row = self._record.add(message, gauges, self._controller.changes.values)
        if isinstance(message, UpdateRecord):
            self._live.steps = gauges.recorded_step
            self._callbacks.call("on_update", row)
            if self._callbacks.handles("on_episode"):
                for episode in episode_records(message):
                    self._callbacks.call("on_episode", {"step": gauges.recorded_step, **episode})
            if reason := self._goals.reached(gauges.policies):
                self._controller.stop("finished", reason)

    def _carry_out_requests(self) -> None:
        """Do what callbacks have requested since the last call."""
        self._live.carry_out()
        while self._live.figures:
            message = MetricsReport("", self._live.figures.popleft())
            self._controller.gauges.add_report(message)
            self._on_report(message)
        if self._live.save_now:
            self._live.save_now = False
            self._save()

    def _record_controller(self) -> None:
        """Write the state needed for a takeover by another controller, if workers outlive this process."""
        state = self._controller.takeover_state()
        if state is not None and self._journal.complete and self._record.complete:
            with contextlib.suppress(OSError):  # a full disk loses the file
                write_whole(self._run.controller, msgspec.json.encode(state))
                self._scheduler.takeover_recorded(state.cluster)

    def _save(self, with_workers: bool = True) -> None:
        if self._ownership.lost:
            return
        own = {
            "episodes": self._controller.gauges.state(),
            "changes": dict(self._controller.changes.values),
            "callbacks": self._callbacks.states(),
        }
        self._checkpoints.save(self._controller.status(), own, with_workers)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop the run on SIGTERM or Ctrl-C. A second signal ends it without waiting for workers."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        asked = False

        def handle(number: int, frame: FrameType | None) -> None:
            nonlocal asked
            if asked:
                interrupt()
            asked = True
            self._controller.stop("stopped", signal.Signals(number).name)

        before = {number: signal.signal(number, handle) for number in STOP_SIGNALS}
        if earlier := stop_request():
            handle(earlier, None)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _run_memory(experiment: Experiment, options: TrainOptions) -> RunMemory:
    """Return the run's memory in this process. Agents have their own, also for replay."""
    workers, saves = options.workers, options.checkpoints.save_replay
    here = workers.scheduler not in CLUSTERS
    directory = Path(workers.replay_dir).absolute() if workers.replay_dir and here else None
    if workers.replay_dir and workers.scheduler == "hosts":
        KeptFile.create("test", Path(workers.replay_dir)).close()  # an error here is shown at once, unlike in an agent
    # Anonymous memory is faster, but nothing can read it, and it ends with its process: in an inline run, with the run.
    keeps = here and (workers.scheduler != "inline" or saves or directory is not None)
    return RunMemory.create(experiment.policies, keeps_replay=keeps, replay_dir=directory)


def describe(experiment: Experiment, options: TrainOptions, environment: LanesConfig) -> dict[str, Any]:
    """Return the content of config.json, which is sufficient to resume the run and to use its policies.

    The options are as given, with None where the run chooses for itself; `sizes` are the chosen values.
    """
    return {
        "environment": experiment.environment,
        "lanes": to_data(environment),
        "options": to_data(options),
        "sizes": sizes_of(experiment),
        "policies": experiment.description,
    }
