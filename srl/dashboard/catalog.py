"""The runs that the dashboard shows: those below a root, and all that are live."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from srl.api.status import RunStatus
from srl.controller.control_socket import addresses
from srl.dashboard.answers import Answers
from srl.experiments.session.slurm_queue import queued, submitted
from srl.schedulers.engines.slurm_commands import SlurmError
from srl.storage.curves import flat_options
from srl.storage.run_directory import RunDirectory, as_text, scan
from srl.storage.run_listing import listed

REFRESH_SECONDS = 0.5
QUEUE_SECONDS = 15.0
"""Time between questions to Slurm."""
SUBMITTED_SECONDS = 5.0
"""Time between searches for runs that were submitted to Slurm."""
CURVE_POINTS = 40
DAMAGED = "damaged"


class Summary(msgspec.Struct, frozen=True):
    """One row of the table of runs."""

    key: str  # path below the root, or absolute path of a run elsewhere
    name: str
    group: str  # sweep or population that the run belongs to, or an empty text
    state: str
    environment: str = ""
    algorithm: str = ""
    steps: int = 0
    target_steps: int = 0
    return_mean: float | None = None
    returns: dict[str, float | None] = {}  # of the policies of a run with several
    curve: list[float] = []
    fps: float = 0.0
    seconds_left: float | None = None
    when: float = 0.0
    hosts: list[str] = []
    live: bool = False
    error: str = ""


@dataclass
class Entry:
    """A run, and what was last read of it."""

    directory: RunDirectory
    summary: Summary
    runtime: Path | None = None  # directory with the address of its controller, while it is live
    status: RunStatus | None = None  # last answer of its controller
    note: str = ""  # what is wrong with the run, although its files can be read
    revision: int = 0  # of the catalog, when the summary changed
    stamp: tuple[Any, ...] = field(default=())  # of the files that the summary was made of


class Catalog:
    """All runs by key. Methods may be called from several threads; files and controllers are asked at most twice per
    second, whatever the number of browsers."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic, answers: Answers | None = None) -> None:
        self.root = root.expanduser().resolve()
        self.revision = time.time_ns() // 1_000_000  # higher than that of any earlier server
        self.removed = self.revision  # revision at which a run was last removed
        self._clock = clock
        self._answers = answers or Answers()
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._refreshed = self._asked_queue = self._searched = float("-inf")
        self._waiting: list[RunStatus] = []
        self._submitted: list[Path] = []

    def entries(self) -> dict[str, Entry]:
        """Return all runs, as they were at most REFRESH_SECONDS ago."""
        return self.snapshot()[2]

    def snapshot(self) -> tuple[int, int, dict[str, Entry]]:
        """Return the revision of the runs, the revision at which one was last removed, and the runs."""
        with self._lock:
            self._refresh_if_due()
            return self.revision, self.removed, dict(self._entries)

    def find(self, key: str) -> Entry:
        """Return a run. Raises LookupError for an unknown key; no path is made of it."""
        try:
            return self.entries()[key]
        except KeyError:
            raise LookupError(f"there is no run {key!r} any more; reload the table of runs") from None

    def summaries(self) -> list[Summary]:
        return [entry.summary for entry in self.entries().values()]

    def _refresh_if_due(self) -> None:
        if self._clock() - self._refreshed >= REFRESH_SECONDS:
            self._refresh()
            self._refreshed = self._clock()

    def _refresh(self) -> None:
        answers = {Path(one.status.path).resolve(): one for one in self._answers.newest(self._addresses())}
        waiting = {Path(status.path).resolve(): status for status in self._queue(set(map(str, answers)))}
        runs, unreadable = scan(self.root)
        paths = dict.fromkeys([*(run.path for run in runs), *answers, *self._elsewhere()])
        self.revision += 1
        found: dict[str, Entry] = {}
        for path in paths:
            entry = self._entry(path)
            answer = answers.get(path)
            entry.runtime, entry.status = (answer.runtime, answer.status) if answer is not None else (None, None)
            entry.note = f"it has not answered for {answer.age:.0f} s" if answer is not None and answer.is_late else ""
            before = entry.summary
            _update(entry, waiting.get(path))
            entry.revision = entry.revision if entry.summary == before else self.revision
            found[entry.summary.key] = entry
        for path, reason in unreadable.items():
            entry = self._entry(path)
            summary = msgspec.structs.replace(_empty(entry), state=DAMAGED, error=reason)
            entry.revision = entry.revision if entry.summary == summary else self.revision
            entry.runtime, entry.status, entry.summary = None, None, summary
            found[summary.key] = entry
        if any(key not in found for key in self._entries):
            self.removed = self.revision
        self._entries = found

    def _entry(self, path: Path) -> Entry:
        is_below = path.is_relative_to(self.root)
        key = as_text(path.relative_to(self.root) if is_below else path)
        group = as_text(path.parent.relative_to(self.root)).removeprefix(".") if is_below else ""
        return self._entries.get(key) or Entry(RunDirectory(path), Summary(key, as_text(path.name), group, ""))

    def _addresses(self) -> list[Path]:
        if self._clock() - self._searched >= SUBMITTED_SECONDS:
            self._searched = self._clock()
            self._submitted = submitted(self.root)
        return addresses(self._submitted)

    def _elsewhere(self) -> list[Path]:
        """Return the runs outside of the root that have ended since the server started."""
        known = [entry.directory for entry in self._entries.values() if entry.summary.key.startswith("/")]
        return [run.path for run in known if run.config.is_file()]

    def _queue(self, active: set[str]) -> Iterable[RunStatus]:
        """Return the runs that wait in Slurm's queue."""
        if self._clock() - self._asked_queue >= QUEUE_SECONDS:
            self._asked_queue = self._clock()
            try:
                self._waiting = [each.status() for each in queued(self.root, active)]
            except SlurmError:
                self._waiting = []
        return self._waiting


def _update(entry: Entry, waiting: RunStatus | None) -> None:
    """Read what has changed since the last call; files that are half-written or damaged are named, not raised."""
    status = entry.status or waiting
    if status is not None:
        entry.stamp = ()
        entry.summary = _summary_of(entry, status, is_live=entry.status is not None)
        return
    run = entry.directory
    stamp = tuple(_stamp(path) for path in (run.config, run.status, run.metrics))
    if stamp == entry.stamp and entry.summary.state not in ("running", "starting"):
        return
    try:
        ended = run.read_status()
        if ended is not None:
            entry.summary = _summary_of(entry, ended, is_live=False)
        else:
            so_far = listed(run)
            options = flat_options(run.read_raw_config())
            entry.summary = msgspec.structs.replace(
                _empty(entry),
                state=so_far.state,
                environment=str(options["environment"]),
                algorithm=str(options.get("algo", "")).rpartition(":")[2].removesuffix("Config"),
                steps=so_far.steps,
                return_mean=so_far.return_mean,
                returns=so_far.returns,
                when=so_far.when,
            )
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        entry.summary = msgspec.structs.replace(_empty(entry), state=DAMAGED, error=str(error))
    entry.stamp = stamp


def _empty(entry: Entry) -> Summary:
    before = entry.summary
    return Summary(before.key, before.name, before.group, "")


def _summary_of(entry: Entry, status: RunStatus, is_live: bool) -> Summary:
    several = len(status.policies) > 1
    curves = [policy.return_curve for policy in status.policies.values() if policy.learning and policy.return_curve]
    curve = status.return_curve or (curves[0] if curves else [])
    todo = status.target_steps - status.steps
    left = todo / status.train_fps if status.state == "running" and todo > 0 and status.train_fps > 0 else None
    return msgspec.structs.replace(
        _empty(entry),
        state=status.state,
        environment=status.environment,
        algorithm=status.algorithm,
        steps=status.steps,
        target_steps=status.target_steps,
        return_mean=status.return_mean,
        returns={name: policy.return_mean for name, policy in status.policies.items()} if several else {},
        curve=[round(value, 4) for value in thinned(curve)],
        fps=round(status.train_fps, 1) if is_live else 0.0,
        seconds_left=None if left is None else round(left),
        when=round(time.time()) if is_live else _changed(entry.directory.status),
        hosts=sorted({worker.host for worker in status.workers if worker.host}),
        live=is_live,
        error=entry.note,
    )


def thinned(curve: list[float]) -> list[float]:
    """Return at most CURVE_POINTS values of a curve, at even distances, with the last one."""
    step = max(1, -(-len(curve) // CURVE_POINTS))
    return curve[(len(curve) - 1) % step :: step] if curve else []


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _changed(path: Path) -> float:
    return _stamp(path)[0] * 1e-9
