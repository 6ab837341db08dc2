"""Checkpoints of a run: when to write one, what it contains, and restoring a run from it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
import numpy as np

from srl.api.control import OptionValue
from srl.api.experiment import Experiment
from srl.api.parameters import ParameterStore
from srl.api.scheduler import Scheduler
from srl.api.status import RunStatus
from srl.base.config import TrustCode, refuse_code, to_data
from srl.base.files import explain_os_error
from srl.base.snapshot import Snapshot
from srl.base.state import NotResumable, NotResumableYet, State
from srl.base.tree import Array
from srl.experiments.options.train_options import TrainOptions
from srl.populations.opponent_pool import refill
from srl.replay.saved import ReplayArchive
from srl.storage import checkpoints
from srl.storage.checkpoints import Retention

SLOW_SECONDS = 5.0
"""Time for a checkpoint after which the disk is reported as slow."""
WAIT_SECONDS = 0.25


@dataclass(frozen=True)
class Restored:
    """Content of a checkpoint, by part."""

    source: Path
    states: dict[str, State]  # policy -> state of its trainer
    metadata: dict[str, Any]
    workers: State | None  # state of all workers; None if only the trainers are restored
    why_not: str = ""  # reason why the run cannot be resumed exactly
    damaged: Mapping[Path, str] = field(default_factory=dict)  # newer checkpoints that are damaged, and how

    @property
    def policies(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.metadata["policies"]
        return found

    @property
    def changes(self) -> dict[str, OptionValue]:
        """Values of options that were changed during the run."""
        try:
            return msgspec.convert(self.metadata.get("changes", {}), dict[str, OptionValue])
        except msgspec.ValidationError as error:
            raise checkpoints.CheckpointError(
                f"{self.source} has changes of options that are invalid: {error}"
            ) from error

    def refuse_texts(self, trust_code: TrustCode) -> None:
        """Raise UntrustedCode if a checkpoint of someone else would set attributes of environments to texts."""
        texts = [f"option {name}={value}" for name, value in self.changes.items() if isinstance(value, str)]
        refuse_code(texts, str(self.source), trust_code or checkpoints.is_own(self.source))

    @property
    def steps(self) -> int:
        return sum(int(policy["steps"]) for policy in self.policies.values())

    @property
    def version(self) -> int:
        return max(int(policy["version"]) for policy in self.policies.values())


def read(source: Path) -> Restored:
    """Read and verify a checkpoint."""
    arrays, metadata = checkpoints.read(source)
    checkpoints.policies_in(source, metadata)
    states: dict[str, dict[str, Any]] = {policy: {} for policy in metadata["policies"]}
    for key, value in arrays.items():
        policy, _, name = key.partition("/")
        if policy not in states:
            raise checkpoints.CheckpointError(f"{source} has arrays of an unknown policy {policy!r}")
        states[policy][name] = value
    workers = checkpoints.read_workers(source)
    return Restored(source, dict(states), metadata, workers, metadata.get("why_not_exact", ""))


def read_newest(root: Path) -> Restored | None:
    """Read the newest undamaged checkpoint. Returns None if there are no checkpoints, and raises CheckpointError if all
    of them are damaged."""
    damaged: dict[Path, str] = {}
    for source in reversed(checkpoints.checkpoints(root)):
        try:
            return dataclasses.replace(read(source), damaged=damaged)
        except checkpoints.DamagedCheckpoint as error:
            damaged[source] = error.reason
    if damaged:
        listed = "; ".join(f"{path.name}: {reason}" for path, reason in damaged.items())
        raise checkpoints.CheckpointError(
            f"all checkpoints in {root} are damaged ({listed}). Restore one from a copy, or start a new run with "
            "another --name; this run does not start from the beginning by itself"
        )
    return None


def for_graph(restored: Restored, experiment: Experiment, scheduler: str) -> Restored:
    """Return the checkpoint, without the state of workers if it does not fit this graph or scheduler."""
    if restored.workers is None:
        return restored
    if scheduler != "inline":
        why = "the run continues in several processes"
    elif restored.metadata.get("graph") != fingerprint(experiment):
        why = "workers, streams or their sizes have changed"
    else:
        return restored
    return dataclasses.replace(restored, workers=None, why_not=why)


def fingerprint(experiment: Experiment) -> str:
    """Return a hash that is equal for experiments with the same workers, regardless of their number of steps."""
    groups = [[group.name, group.count, to_data(group.config.with_target_steps(0))] for group in experiment.groups]
    return hashlib.sha256(json.dumps(groups, sort_keys=True).encode()).hexdigest()


class BackgroundWriter:
    """Runs write jobs one at a time: in a thread if `threaded`, else immediately.

    A disk may need half a minute for a checkpoint. A controller that waited for it would send nothing in that time, and
    hosts would conclude that it had died. A run in a single process has no hosts and writes immediately. The thread is
    a daemon, so that a process can end although its disk does not answer.
    """

    def __init__(self, threaded: bool, notify: Callable[[str], None] = lambda text: None) -> None:
        self._notify = notify
        self._queue: SimpleQueue[tuple[Future[None], Callable[[], None]] | None] = SimpleQueue()
        self._jobs: deque[Future[None]] = deque()
        self._began = time.monotonic()  # when the first of these jobs became the first
        self._slow = False
        self._thread = threading.Thread(target=self._run, name="checkpoint-writer", daemon=True) if threaded else None
        if self._thread is not None:
            self._thread.start()

    def _run(self) -> None:
        while (submitted := self._queue.get()) is not None:
            future, job = submitted
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)

    @property
    def busy(self) -> bool:
        """Whether a job is waiting or running."""
        self.check()
        return bool(self._jobs)

    def check(self) -> None:
        """Report a slow disk. Raises unexpected errors of jobs, as `busy` and `finish` do."""
        while self._jobs and self._jobs[0].done():
            self._began = time.monotonic()
            self._jobs.popleft().result()
        if self._jobs and not self._slow and time.monotonic() - self._began > SLOW_SECONDS:
            self._slow = True
            self._notify(
                f"the disk has not written a checkpoint for {SLOW_SECONDS:.0f} s. Training continues; a run that ends "
                "waits for the checkpoint, unless it is interrupted a second time"
            )
        elif self._slow and not self._jobs:
            self._slow = False
            self._notify("the disk writes checkpoints again")

    def submit(self, job: Callable[[], None]) -> None:
        if self._thread is None:
            job()
            return
        if not self._jobs:
            self._began = time.monotonic()
        future: Future[None] = Future()
        self._jobs.append(future)
        self._queue.put((future, job))

    def finish(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Wait until all jobs are done. Calls `waiting` once if the disk is slow."""
        was_slow = False
        while self.busy:
            if self._slow and not was_slow:
                was_slow = True
                waiting()
            wait((self._jobs[0],), WAIT_SECONDS)

    def close(self) -> None:
        """End the thread once its jobs are done. Waits for that only if there are none."""
        if self._thread is not None:
            self._queue.put(None)
            if not self._jobs:
                self._thread.join()


@dataclass(eq=False)
class CheckpointWriter:
    """Writes a run's checkpoints from the trainers' committed states, which are in shared memory, so that no worker is
    interrupted. For a single-threaded run, the state of all workers is included if possible."""

    _experiment: Experiment
    _root: Path
    _commits: Mapping[str, Snapshot]
    _scheduler: Scheduler
    _retention: Retention
    _seconds: float
    _why_not: str  # reason why the run cannot be resumed exactly
    _notify: Callable[[str], None]
    _writer: BackgroundWriter
    _check: Callable[[], None]  # raises an OSError if this process may no longer write
    _best_by: str = "return"  # statistic of the episodes by which checkpoints are compared
    _own: bool = True  # whether to sign them as those of the user's own run
    on_written: Callable[[Path], object] = lambda path: None
    replay: ReplayArchive | None = None  # where to save the replay
    _saved_updates: int = -1
    _saved: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        if self._scheduler.inline and self._why_not:
            self._warn()

    def _warn(self) -> None:
        self._notify(
            f"if this run is resumed, it starts new episodes instead of continuing the current ones: {self._why_not}"
        )

    def restore(self, restored: Restored) -> None:
        """Restore trainers and workers. Call it before the first worker starts."""
        for path, reason in restored.damaged.items():
            self._notify(
                f"checkpoint {path.name} is damaged ({reason}), so the run continues from {restored.source.name}; "
                f"{checkpoints.set_aside(path)}"
            )
        for policy, state in restored.states.items():
            metadata = dict(restored.policies[policy])
            self._commits[policy].write(int(metadata.pop("version")), state, metadata)
        self._saved_updates = self._updates
        for problem in self.replay.fill() if self.replay is not None else ():
            self._notify(problem)
        if self._scheduler.inline:
            if restored.workers is not None:
                self._scheduler.restore(restored.workers)
            else:
                self._notify(f"new episodes start: {restored.why_not or 'the checkpoint contains only trainers'}")

    @property
    def _updates(self) -> int:
        """Total number of updates of all policies."""
        return sum(snapshot.version for snapshot in self._commits.values())

    @property
    def due(self) -> bool:
        late = time.monotonic() - self._saved >= self._seconds
        return late and self._updates > self._saved_updates and not self._writer.busy

    def save(self, status: RunStatus, more: Mapping[str, Any], with_workers: bool = True) -> None:
        """Start writing a checkpoint if there is a new update. `more` is further metadata. Use `with_workers=False`
        after workers have ended."""
        updates = self._updates
        if updates <= self._saved_updates:
            return
        arrays: dict[str, Any] = {}
        metadata: dict[str, Any] = {"policies": {}}
        for policy, snapshot in self._commits.items():
            committed = snapshot.read()
            if committed is None:
                return
            version, state, committed_metadata = committed
            arrays.update({f"{policy}/{key}": value for key, value in state.items()})
            mean = status.policies[policy].return_mean
            metadata["policies"][policy] = {**committed_metadata, "version": version, "return_mean": mean}
        try:
            workers = self._workers() if with_workers else None
        except NotResumableYet:
            return  # the next call follows soon
        metadata |= {
            checkpoints.SCORE: _score(status, self._best_by),
            "return_mean": status.return_mean,
            **more,
            "description": self._experiment.description,
            "graph": fingerprint(self._experiment),
            "why_not_exact": self._why_not,
        }
        step = sum(int(one["steps"]) for one in metadata["policies"].values())
        previous, self._saved_updates = self._saved_updates, updates
        self._saved = time.monotonic()

        def write() -> None:
            try:
                path = checkpoints.write(
                    self._root, step, arrays, metadata, self._retention, workers, self._check, self._own
                )
                self._save_replay()
                self.on_written(path)
            except checkpoints.CheckpointError as error:
                self._saved_updates = previous
                self._notify(f"no checkpoint was written: {error}")

        self._writer.submit(write)

    def _save_replay(self) -> None:
        if self.replay is not None:
            try:
                self._check()
                self.replay.write()
            except OSError as error:
                self._notify(f"the replay was not saved: {explain_os_error(error)}; the checkpoint was")

    def _workers(self) -> State | None:
        if not self._scheduler.inline or self._why_not:
            return None
        try:
            return self._scheduler.state()
        except NotResumableYet:
            raise
        except NotResumable as error:
            self._why_not = str(error)
            self._warn()
            return None


def _score(status: RunStatus, name: str) -> float | None:
    """Return the number by which checkpoints are compared: the mean of a statistic over the policies that learn."""
    found = [policy.score(name) for policy in status.policies.values() if policy.learning]
    known = [mean for mean in found if mean is not None]
    return sum(known) / len(known) if known else None


def steps_between_kept(options: TrainOptions) -> int:
    """Return the number of steps between kept checkpoints. In self-play, the default keeps one per opponent."""
    if options.checkpoints.keep_every or options.agents.self_play == "none":
        return options.checkpoints.keep_every
    return max(1, options.run.steps // options.agents.self_play_versions)


def restore_opponents(
    root: Path, restored: Restored, stores: Mapping[str, ParameterStore], size: int, notify: Callable[[str], None]
) -> None:
    """Publish up to `size` past versions from the kept checkpoints, spread over the run, and then the restored version.

    Call it before the first worker starts.
    """
    known = checkpoints.checkpoints(root)
    before = known[: known.index(restored.source)]
    chosen = sorted({round(i) for i in np.linspace(0, len(before) - 1, min(size, len(before)))})
    past: dict[str, list[tuple[int, Array]]] = {policy: [] for policy in stores}
    for number in chosen:
        try:
            arrays, metadata = checkpoints.read(before[number])
            for policy, versions in past.items():
                versions.append((int(metadata["policies"][policy]["version"]), arrays[f"{policy}/parameters"]))
        except (checkpoints.CheckpointError, KeyError) as error:
            notify(f"an opponent is missing: {error}")
    for policy, store in stores.items():
        newest = int(restored.policies[policy]["version"])
        found = refill(store, [pair for pair in past[policy] if pair[0] < newest])
        store.push(newest, restored.states[policy]["parameters"])
        notify(f"{found} past versions of {policy!r} were restored as opponents")
