"""A run's session, from start to finish: workers, metrics and checkpoints."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig
from srl.api.scheduler import Scheduler
from srl.api.status import RunStatus
from srl.base.config import to_data
from srl.base.files import write_whole
from srl.base.process import STOP_SIGNALS, stop_request
from srl.controller.control_socket import remote_listener
from srl.controller.controller import Controller
from srl.controller.metrics import metrics_of
from srl.controller.policy_gauges import EPISODE_WINDOW
from srl.controller.takeover import ControllerState
from srl.experiments.graph.sizes import sizes_of
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.best_checkpoint import BestCheckpoint
from srl.experiments.session.checkpointing import (
    BackgroundWriter,
    CheckpointWriter,
    Restored,
    restore_opponents,
    steps_between_kept,
)
from srl.experiments.session.cluster_site import ClusterSite, hosts_scheduler, site_of, warning
from srl.schedulers.inline import InlineScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.schedulers.local.zygote_launch import PRELOAD
from srl.storage.checkpoints import Retention
from srl.storage.run_directory import RunDirectory
from srl.storage.service_sinks import sinks_of
from srl.storage.update_journal import Journal
from srl.transports.runtime_dir import make_runtime

OnStatus = Callable[[RunStatus], None] | None
TAKEOVER_SECONDS = 10.0
"""Time limit for hosts to reconnect after their controller died; agents try twice per second."""
METRIC_SECONDS = 1.0
"""Time between records of metrics. It starts at a quarter of this, so that short runs have detailed curves."""


@dataclass(frozen=True)
class Run:
    """A run that ended."""

    path: Path
    state: str  # `finished` or `stopped`; `failed` raises RunFailed
    reason: str
    status: RunStatus  # last status: steps, returns, speed

    @property
    def name(self) -> str:
        return self.path.name

    def __repr__(self) -> str:
        mean = self.status.return_mean
        reached = f"{self.status.steps:,} steps" + (f", return {mean:.1f}" if mean is not None else "")
        return f"<Run {str(self.path)!r}: {self.state}, {reached}>"


class RunFailed(RuntimeError):
    """The run failed. The message says why; `status` is its last status, or None if it never started."""

    def __init__(self, text: str, status: RunStatus | None = None) -> None:
        super().__init__(text)
        self.status = status


class Session:
    """Runs an experiment in a run directory. Calls `on_status` about four times per second."""

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        options: TrainOptions,
        on_status: OnStatus = None,
        began: float | None = None,
        preload: tuple[str, ...] = (),
        why_not_exact: str = "",
        site: ClusterSite | None = None,
        takeover: ControllerState | None = None,
    ) -> None:
        """`site` is the site of a multi-host run (default: as the options describe it), `takeover` the state of a
        controller that died."""
        self._experiment = experiment
        self._takeover = takeover
        self._run = run
        self._options = options
        self._on_status = on_status or (lambda status: None)
        self._sinks = sinks_of(run, options.run.sinks, warn=self._notify)
        with ExitStack() as undo:
            self._memory = RunMemory.create(experiment.policies)
            undo.callback(self._memory.close)
            self._runtime = make_runtime(run.name)
            undo.callback(shutil.rmtree, self._runtime, ignore_errors=True)
            self._site = site or site_of(options, experiment.groups, run.logs, takeover)
            self._scheduler = scheduler = self._make_scheduler((*PRELOAD, *preload))
            undo.callback(scheduler.close)
            remote, site = None, self._site
            if site is not None and site.address_folder is not None:
                remote = remote_listener(site.address_folder, site.join_secret, site.host)
            self._controller = Controller(
                experiment,
                scheduler,
                str(run.path),
                self._runtime,
                self._observe,
                began=began,
                remote_listener=remote,
                on_update=Journal(run.journal).add,
            )
            undo.pop_all()
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
        )
        parameters = self._memory.parameters
        self._best = BestCheckpoint(run, experiment.description, parameters, self._sinks, self._notify, self._writer)
        self._measured = 0.0
        self._measured_steps = -1
        self._episodes_before = 0  # episodes before the run was resumed
        self._checked_site = 0.0

    def _make_scheduler(self, preload: tuple[str, ...]) -> Scheduler:
        if self._options.workers.scheduler == "inline":
            return InlineScheduler(self._memory)
        if self._site is not None:
            return hosts_scheduler(self._site, self._run.name, self._options, self._memory, self._run.logs, preload)
        path = [entry for entry in sys.path if entry]
        return ProcessScheduler(self._run.name, self._memory, self._runtime, self._run.logs, preload, path)

    def restore(self, restored: Restored) -> None:
        """Restore a checkpoint before the run starts."""
        self._checkpoints.restore(restored)
        if self._options.agents.self_play != "none":
            size, stores = self._options.agents.self_play_versions, dict(self._scheduler.parameters())
            restore_opponents(self._run.checkpoints, restored, stores, size, self._notify)
        if self._takeover is not None:
            return  # the dead controller's figures count; the checkpoint is only for trainers that were lost
        gauges = self._controller.gauges
        gauges.restore(restored.metadata.get("episodes", {}))
        gauges.resume_from(restored.policies)
        self._episodes_before = self._controller.status().episodes

    def run(self) -> Run:
        with self._signals():
            try:
                self._run.clear_status()
                self._start()
                while self._controller.tick():
                    self._stop_if_superseded()
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
                    self._sinks.close()
                    self._memory.close()
                    shutil.rmtree(self._runtime, ignore_errors=True)
        return Run(self._run.path, self._controller.state, self._controller.reason, status)

    def _start(self) -> None:
        if unguarded := warning(self._options, self._site):
            self._notify(unguarded)
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
        self._observe(self._controller.status())
        self._writer.finish()
        self._save(with_workers=False)
        self._writer.finish()
        try:
            self._run.write_status(self._controller.status())
        except OSError as error:
            self._controller.add_message(str(error))
        return self._controller.status()

    def _observe(self, status: RunStatus) -> None:
        now = time.monotonic()
        due = METRIC_SECONDS * min(1.0, max(0.25, status.elapsed / 60.0))
        ended = status.state not in ("starting", "running")
        if now - self._measured >= due or ended:
            self._measured = now
            if status.steps != self._measured_steps or ended:
                self._measured_steps = status.steps
                self._sinks.write(status.steps, metrics_of(status))
            self._record_controller()
        gauges = self._controller.gauges
        self._best.add(gauges.drain_evaluations(), status.elapsed)
        goal = self._options.run.until_return
        enough = status.episodes - self._episodes_before >= EPISODE_WINDOW
        if goal is not None and enough and status.return_mean is not None and status.return_mean >= goal:
            self._controller.stop("finished", f"mean return {status.return_mean:.1f} reached the goal of {goal:g}")
        self._on_status(status)

    def _record_controller(self) -> None:
        """Write the state needed for a takeover by another controller, if workers outlive this process."""
        state = self._controller.takeover_state()
        if state is not None:
            with contextlib.suppress(OSError):  # a full disk loses the file
                write_whole(self._run.controller, msgspec.json.encode(state))
                self._scheduler.takeover_recorded(state.cluster)

    def _stop_if_superseded(self) -> None:
        """Stop if another process has taken over the run because this one seemed dead: only one may write."""
        if self._site is not None and time.monotonic() - self._checked_site >= METRIC_SECONDS:
            self._checked_site = time.monotonic()
            if self._site.superseded():
                self._controller.stop("failed", "this run was taken over by a newer attempt")

    def _save(self, with_workers: bool = True) -> None:
        if self._site is not None and self._site.superseded():
            return
        self._checkpoints.save(self._controller.status(), self._controller.gauges.state(), with_workers)

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
                raise KeyboardInterrupt
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
