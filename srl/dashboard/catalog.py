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
from srl.controller.control_socket import live
from srl.experiments.session.slurm_queue import queued, submitted
from srl.schedulers.engines.slurm_commands import SlurmError
from srl.storage.curves import flat_options
from srl.storage.run_directory import RunDirectory, all_runs
from srl.storage.run_listing import listed

REFRESH_SECONDS = 1.0
QUEUE_SECONDS = 15.0
"""Time between questions to Slurm."""
CURVE_POINTS = 40
DAMAGED = "damaged"


class Summary(msgspec.Struct, frozen=True):
    """One row of the table of runs."""

    key: str  # path below the root, or `live/NAME` for a run elsewhere
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
    status: RunStatus | None = None  # answer of its controller
    stamp: tuple[Any, ...] = field(default=())  # of the files that the summary was made of


class Catalog:
    """All runs by key. Methods may be called from several threads; files and controllers are asked at most once per
    second, whatever the number of browsers."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.root = root.expanduser().resolve()
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._refreshed = self._asked_queue = float("-inf")
        self._waiting: list[RunStatus] = []

    def entries(self) -> dict[str, Entry]:
        """Return all runs, as they were at most a second ago."""
        with self._lock:
            if self._clock() - self._refreshed >= REFRESH_SECONDS:
                self._refresh()
                self._refreshed = self._clock()
            return dict(self._entries)

    def find(self, key: str) -> Entry:
        """Return a run. Raises LookupError for an unknown key; no path is made of it."""
        try:
            return self.entries()[key]
        except KeyError:
            raise LookupError(f"there is no run {key!r} any more; reload the table of runs") from None

    def summaries(self) -> list[Summary]:
        return [entry.summary for entry in self.entries().values()]

    def _refresh(self) -> None:
        answers = live(submitted(self.root))
        by_path = {Path(status.path).resolve(): (runtime, status) for runtime, status in answers.values()}
        active = {name: runtime for name, (runtime, _) in answers.items()}
        waiting = {Path(status.path).resolve(): status for status in self._queue(active)}
        directories = {run.path: run for run in all_runs(self.root)}
        directories |= {path: RunDirectory(path) for path in by_path if path not in directories}
        found: dict[str, Entry] = {}
        for path, directory in directories.items():
            key = self._key(path)
            entry = self._entries.get(key) or Entry(directory, Summary(key, path.name, self._group(path), ""))
            entry.runtime, entry.status = by_path.get(path, (None, None))
            _update(entry, waiting.get(path))
            found[key] = entry
        self._entries = found

    def _queue(self, active: dict[str, Path]) -> Iterable[RunStatus]:
        """Return the runs that wait in Slurm's queue."""
        if self._clock() - self._asked_queue >= QUEUE_SECONDS:
            self._asked_queue = self._clock()
            try:
                self._waiting = [each.status() for each in queued(self.root, active)]
            except SlurmError:
                self._waiting = []
        return self._waiting

    def _key(self, path: Path) -> str:
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else f"live/{path.name}"

    def _group(self, path: Path) -> str:
        return str(path.parent.relative_to(self.root)).removeprefix(".") if path.is_relative_to(self.root) else ""


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
    except (OSError, ValueError, TypeError, LookupError) as error:
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
