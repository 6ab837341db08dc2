"""A run from its first to its last moment: directory, memory, workers, metrics, checkpoints."""

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

from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig
from srl.api.scheduler import Scheduler
from srl.api.status import RunStatus
from srl.base.config import to_data
from srl.base.process import STOP_SIGNALS, stop_request
from srl.controller.controller import Controller
from srl.controller.metrics import metrics_of
from srl.controller.takeover import ControllerState
from srl.experiments.graph.sizes import sizes_of
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.best_checkpoint import BestCheckpoint
from srl.experiments.session.checkpointing import Restored, Saver
from srl.experiments.session.hosting import ClusterSite, ground_of, hosts_scheduler, open_door, warning
from srl.experiments.session.past_versions import find_opponents, keep_every
from srl.schedulers.inline import InlineScheduler
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.runtime_dir import make_runtime
from srl.schedulers.local.scheduler import ProcessScheduler
from srl.schedulers.local.zygote_launch import PRELOAD
from srl.storage.background_writer import BackgroundWriter
from srl.storage.checkpoints import Retention
from srl.storage.run_directory import RunDirectory
from srl.storage.service_sinks import sinks_of
from srl.storage.update_journal import Journal

ATTACH_SECONDS = 10.0
"""In which the hosts of a controller that died must come back: their agents dial twice a second."""
METRIC_SECONDS = 1.0
"""Between two records of metrics; up to four times as dense at the start, for the curves of short runs."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    state: str
    """finished | stopped | failed"""
    reason: str
    status: RunStatus
    path: Path


class RunFailed(RuntimeError):
    """The run ended before its work was done; the message says why, `status` how far it came (None: it never ran)."""

    def __init__(self, text: str, status: RunStatus | None = None) -> None:
        super().__init__(text)
        self.status = status


class Session:
    """Runs an experiment in a run directory. `on_status` is called about four times a second."""

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        options: TrainOptions,
        on_status: Callable[[RunStatus], None] | None = None,
        began: float | None = None,
        preload: tuple[str, ...] = (),
        why_not_exact: str = "",
        ground: ClusterSite | None = None,
        attach: ControllerState | None = None,
    ) -> None:
        """`ground` is where a run over hosts stands; None: what the options say. `attach`: what a controller left whose
        place we take."""
        self._experiment = experiment
        self._attach = attach
        self._run = run
        self._options = options
        self._on_status = on_status or (lambda status: None)
        self._sinks = sinks_of(run, options.run.sinks, warn=self._tell)
        with ExitStack() as undo:
            self._memory = RunMemory.create(experiment.policies)
            undo.callback(self._memory.close)
            self._runtime = make_runtime(run.name)
            undo.callback(shutil.rmtree, self._runtime, ignore_errors=True)
            self._ground = ground or ground_of(options, experiment.groups, run.logs, attach)
            self._scheduler = scheduler = self._make_scheduler((*PRELOAD, *preload))
            undo.callback(scheduler.close)
            door = open_door(self._ground)
            self._controller = Controller(
                experiment,
                scheduler,
                str(run.path),
                self._runtime,
                self._observe,
                began=began,
                remote_listener=door,
                on_learned=Journal(run.journal).add,
            )
            undo.pop_all()
        self._scribe = BackgroundWriter(threaded=not scheduler.inline)
        keep = Retention(options.checkpoints.keep_last, keep_every(options))
        self._saver = Saver(
            experiment,
            run.checkpoints,
            self._memory.commits,
            scheduler,
            keep,
            options.checkpoints.checkpoint_seconds,
            why_not_exact,
            self._tell,
            self._scribe,
        )
        parameters = self._memory.parameters
        self._best = BestCheckpoint(run, experiment.description, parameters, self._sinks, self._tell, self._scribe)
        self._measured = 0.0
        self._episodes_before = 0  # those of the run that is resumed
        self._looked = 0.0

    def _make_scheduler(self, preload: tuple[str, ...]) -> Scheduler:
        if self._options.workers.scheduler == "inline":
            return InlineScheduler(self._memory)
        if self._ground is not None:
            return hosts_scheduler(self._ground, self._run.name, self._options, self._memory, self._run.logs, preload)
        path = [entry for entry in sys.path if entry]
        return ProcessScheduler(self._run.name, self._memory, self._runtime, self._run.logs, preload, path)

    def restore(self, restored: Restored) -> None:
        """Begin where a checkpoint ended."""
        self._saver.restore(restored)
        if self._options.agents.self_play != "none":
            size, stores = self._options.agents.self_play_versions, dict(self._scheduler.parameters())
            find_opponents(self._run.checkpoints, restored, stores, size, self._tell)
        if self._attach is not None:
            return  # its controller left the figures; the checkpoint is for trainers that nobody brings back
        gauges = self._controller.gauges
        gauges.restore(restored.facts.get("episodes", {}))
        gauges.resume_from(restored.policies)
        self._episodes_before = gauges.episodes.count

    def run(self) -> Outcome:
        with self._signals():
            try:
                self._run.clear_status()
                self._begin()
                while self._controller.tick():
                    self._yield_to_heirs()
                    if self._saver.due:
                        self._save()
                if self._controller.state != "failed":
                    self._save()  # while the workers are there: a run of one thread is saved with all they hold
            except KeyboardInterrupt:
                self._controller.stop("stopped", "interrupted")
            except Exception as error:
                self._controller.stop("failed", str(error))
                raise
            finally:
                try:
                    self._controller.shut_down()
                    status = self._close_books()
                finally:
                    self._scribe.close()
                    self._sinks.close()
                    self._memory.close()
                    shutil.rmtree(self._runtime, ignore_errors=True)
        return Outcome(self._controller.state, self._controller.reason, status, self._run.path)

    def _begin(self) -> None:
        if unguarded := warning(self._options, self._ground):
            self._tell(unguarded)
        if self._attach is None:
            self._controller.start()
            return
        try:
            self._controller.attach(self._attach, ATTACH_SECONDS)
        except ConnectionError as error:
            raise RunFailed(f"{error}. Continue from the last checkpoint: srl resume {self._run.name}") from error

    def _tell(self, text: str) -> None:
        self._controller.tell(text)

    def _close_books(self) -> RunStatus:
        """The last figures, the last checkpoint, the last status; a disk that is full costs no more than them."""
        self._observe(self._controller.status())
        self._scribe.finish()
        self._save(whole=False)
        self._scribe.finish()
        try:
            self._run.write_status(self._controller.status())
        except OSError as error:
            self._controller.tell(str(error))
        return self._controller.status()

    def _observe(self, status: RunStatus) -> None:
        now = time.monotonic()
        due = METRIC_SECONDS * min(1.0, max(0.25, status.elapsed / 60.0))
        if now - self._measured >= due or status.state not in ("starting", "running"):
            self._measured = now
            self._sinks.write(status.steps, metrics_of(status))
            self._remember()
        gauges = self._controller.gauges
        for policy, evaluation in gauges.drain_evaluations():
            self._best.add(policy, evaluation, status.elapsed)
        goal = self._options.run.until_return
        full = gauges.episodes.count - self._episodes_before >= (gauges.episodes.returns.maxlen or 0)
        if goal is not None and full and status.return_mean is not None and status.return_mean >= goal:
            self._controller.stop("finished", f"mean return {status.return_mean:.1f} reached {goal:g}")
        self._on_status(status)

    def _remember(self) -> None:
        """Leave a note for a successor, where workers outlive us."""
        state = self._controller.remember()
        if state is not None:
            with contextlib.suppress(OSError):  # a full disk costs the note
                self._run.write_controller(state)
                self._scheduler.takeover_recorded(state.cluster)

    def _yield_to_heirs(self) -> None:
        """Who was taken for dead, and is not, must not write beside those who took the run over."""
        if self._ground is not None and time.monotonic() - self._looked >= METRIC_SECONDS:
            self._looked = time.monotonic()
            if self._ground.superseded():
                self._controller.stop("failed", "this run was taken over by a newer attempt")

    def _save(self, whole: bool = True) -> None:
        if self._ground is not None and self._ground.superseded():
            return
        self._saver.save(self._controller.status(), self._controller.gauges.state(), whole)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM ends the run as Ctrl-C does. A second Ctrl-C ends it without waiting for anybody."""
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
    """What config.json holds: enough to resume the run, and to use its policies without it. The options are as they
    were asked for, with None where the run chose for itself; `sizes` are what came of it."""
    return {
        "environment": experiment.environment,
        "lanes": to_data(environment),
        "options": to_data(options),
        "sizes": sizes_of(experiment),
        "policies": experiment.description,
    }
