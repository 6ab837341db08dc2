"""A run's session, from start to finish: workers, metrics and checkpoints."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

import srl
from srl.api.control import Evaluated, MetricsReport, Notice, UpdateRecord
from srl.api.experiment import Experiment
from srl.api.scheduler import Scheduler
from srl.api.status import RunStatus
from srl.base.files import Losses, write_whole
from srl.base.process import stop_signals, uninterrupted
from srl.callbacks.callback import Callback
from srl.controller.control_socket import remote_listener
from srl.controller.controller import Controller, Report
from srl.controller.metrics import episode_records
from srl.controller.takeover import ControllerState
from srl.experiments.graph.sizes import ShortEpisodes, sizes_of
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
from srl.experiments.session.goals import Goals, NamedStatistics
from srl.experiments.session.run import Run, RunFailed
from srl.experiments.session.run_record import RunRecord
from srl.experiments.session.services import metrics_server, recorded, replay_archive, run_memory, saved
from srl.schedulers.inline import InlineScheduler
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
"""Time between writes of the state for a takeover."""
REST_SECONDS = 0.06
ENDLESS_STEPS = 10_000
ENDLESS = (
    f"no episode has ended in {ENDLESS_STEPS:,} steps per environment copy, so there are no returns. If episodes may "
    "never end, limit them: --env-arg max_episode_steps=1000 for a Gymnasium id, gymnasium.wrappers.TimeLimit in your "
    "own function"
)


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
        self._events: deque[tuple[str, str]] = deque()  # kind and text, from any thread
        self._journal = Journal(run.journal, losses)
        self._goals = Goals(options.run.until, options.run.until_return, experiment.learning)
        self._named = NamedStatistics(options, self._goals, experiment.learning)
        self._record = RunRecord(run, losses, options.checkpoints.episodes, options.checkpoints.record_every)
        run.write_machine(srl.__version__)
        named = [load_callback(name) for name in options.run.callbacks]
        with ExitStack() as undo:
            self._metrics = metrics_server(options.checkpoints.metrics_port)
            if self._metrics is not None:
                undo.callback(self._metrics.close)
            self._memory = run_memory(experiment, options)
            undo.callback(self._memory.close)
            with uninterrupted():
                self._runtime = make_runtime(run.name)
                undo.callback(shutil.rmtree, self._runtime, ignore_errors=True)
            self._site = site or site_of(options, experiment.groups, run.logs, takeover)
            self._scheduler = scheduler = self._make_scheduler((*PRELOAD, *preload))
            undo.callback(scheduler.close)
            remote, site = None, self._site
            if site is not None and site.address_folder is not None:
                remote = remote_listener(site.address_folder, site.identity, site.host)
            self._controller = Controller(
                saved(recorded(experiment, run, options), run, options),
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
            self._live = LiveRun(run.path, self._controller)
            only_warn = options.run.callback_errors == "warn"
            self._callbacks = CallbackRunner(
                [*named, *callbacks], self._live, not scheduler.inline, self._live.notify, only_warn=only_warn
            )
            best_by = options.checkpoints.best
            self._writer = BackgroundWriter(not scheduler.inline, self._notify)
            undo.callback(self._writer.close)
            shared = (self._notify, self._writer, ownership.check, best_by, own)
            self._checkpoints = CheckpointWriter(
                experiment,
                run.checkpoints,
                self._memory.commits,
                scheduler,
                Retention(options.checkpoints.keep_last, steps_between_kept(options)),
                options.checkpoints.checkpoint_seconds,
                why_not_exact,
                *shared,
                on_written=self._on_checkpoint,
                replay=replay_archive(run, self._memory, options),
            )
            parameters = self._memory.parameters
            self._best = BestCheckpoint(run, experiment.description, parameters, self._record, *shared)
            self._recorded = 0.0
            self._updated = False  # since the last rest
            # Number of decisions without the end of an episode after which there is a warning.
            sizes = sizes_of(experiment)
            copies = math.prod(sizes.get(name, math.inf) for name in ("actors", "lanes", "ring"))
            self._endless = ENDLESS_STEPS * copies
            self._short_episodes = ShortEpisodes(experiment)
            if takeover is not None:
                self._controller.records.last = self._record.last_updates(None)
            self._unstarted = undo.pop_all()

    def _make_scheduler(self, preload: tuple[str, ...]) -> Scheduler:
        if self._options.workers.scheduler == "inline":
            return InlineScheduler(self._memory)
        logs = LogFiles(self._run.logs, self._losses, self._options.checkpoints.log_mb * 1_000_000)
        if self._site is not None:
            return hosts_scheduler(self._site, self._run.name, self._options, self._memory, logs, preload)
        path = [entry for entry in sys.path if entry]
        return ProcessScheduler(self._run.name, self._memory, self._runtime, logs, preload, path)

    def restore(self, restored: Restored) -> None:
        """Restore a checkpoint before the run starts. After an error, nothing of the run is left."""
        with self._unstarted:
            self._restore(restored)
            self._unstarted = self._unstarted.pop_all()

    def _restore(self, restored: Restored) -> None:
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
        self._events.append(("resume", f"from step {restored.steps:,}"))
        self._goals.episodes_before = {name: policy.episodes.count for name, policy in gauges.policies.items()}

    def run(self) -> Run:
        with stop_signals(lambda name: self._controller.stop("stopped", name)):
            try:
                self._run.clear_status()
                self._start()
                self._live.steps = self._controller.gauges.recorded_step
                self._callbacks.call("on_start", self._live)
                while self._controller.tick():
                    self._carry_out_requests()
                    self._rest()
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
                        if self._metrics is not None:
                            self._metrics.close()
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
        for unknown in self._named.unknown(self._controller.gauges.policies, ended=True):
            self._notify(unknown)
        ended = self._controller.status()
        self._observe(ended)
        self._wait_for_disk()
        self._save(with_workers=False)
        self._wait_for_disk()
        self._callbacks.close(self._controller.status(), lambda: self._on_status(self._last_status(ended)))
        self._controller.gauges.lost_calls = self._callbacks.lost
        self._carry_out_requests()
        self._record_events()
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

    def _wait_for_disk(self) -> None:
        self._writer.finish(waiting=lambda: self._on_status(self._controller.status()))

    def _last_status(self, ended: RunStatus) -> RunStatus:
        """Return the status without the time that callbacks and sinks took after the run had `ended`."""
        speeds = {"env_fps": ended.env_fps, "train_fps": ended.train_fps}
        return msgspec.structs.replace(self._controller.status(), elapsed=ended.elapsed, **speeds)

    def _observe(self, status: RunStatus) -> None:
        for text in self._losses.drain_messages():
            self._notify(text)
        self._writer.check()
        now = time.monotonic()
        ended = status.state not in ("starting", "running")
        if now - self._recorded >= CONTROLLER_SECONDS or ended:
            self._recorded = now
            self._record_controller()
        self._record_events()
        if self._metrics is not None:
            self._metrics.show(status)
        self._record.measure(status)
        if status.episodes == 0 and status.decisions - status.first_steps > self._endless:
            self._endless = math.inf
            self._notify(ENDLESS)
        if text := self._short_episodes.found(status):
            self._notify(text)
        self._on_status(status)

    def _record_events(self) -> None:
        while self._events:
            self._record.add_event(self._controller.gauges, *self._events.popleft())

    def _on_report(self, message: Report) -> None:
        if isinstance(message, Notice):
            self._events.append((message.event, message.text))
            return
        gauges = self._controller.gauges
        if isinstance(message, Evaluated):
            self._on_evaluations()
            return
        row = self._record.add(message, gauges, self._controller.changes.values)
        if isinstance(message, UpdateRecord):
            self._updated = True
            self._live.steps = gauges.recorded_step
            self._callbacks.call("on_update", row)
            if self._callbacks.handles("on_episode"):
                for episode in episode_records(message):
                    self._callbacks.call("on_episode", {"step": gauges.recorded_step, **episode})
            for unknown in self._named.unknown(gauges.policies):
                self._notify(unknown)
            if reason := self._goals.reached(gauges.policies):
                self._controller.stop("finished", reason)

    def _on_checkpoint(self, path: Path) -> None:
        self._events.append(("checkpoint", path.name))
        self._callbacks.call("on_checkpoint", path)

    def _on_evaluations(self) -> None:
        gauges = self._controller.gauges
        evaluations = gauges.drain_evaluations()
        self._best.add(evaluations, time.time() - gauges.began)
        for _, evaluation in evaluations:
            self._callbacks.call("on_evaluation", evaluation)

    def _rest(self) -> None:
        """Wait after an update, so that a run with many updates per second does not wake this process for each. Not if
        there are agents: they also wait for answers to what is not an update."""
        if self._updated:
            self._updated = False
            if self._site is None and not self._scheduler.inline:
                time.sleep(REST_SECONDS)

    def _carry_out_requests(self) -> None:
        """Do what callbacks and commands have requested since the last call."""
        self._live.carry_out()
        while self._live.figures:
            message = MetricsReport("", self._live.figures.popleft())
            self._controller.gauges.add_report(message)
            self._on_report(message)
        if self._controller.save_requested:
            self._controller.save_requested = False
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
