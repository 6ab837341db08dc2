"""Recorder of the batches that reach a trainer, bounded in size. A thread writes them, so that training never waits for
the disk (docs/decisions/0028-recorded-streams.md)."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from srl.api.algorithm import AlgorithmConfig
from srl.api.streams import Batch
from srl.api.trainer import Trainer
from srl.api.worker import RunBroken
from srl.base.config import to_data
from srl.base.files import explain_os_error
from srl.base.tree import Array
from srl.datasets.stream_segments import (
    KINDS,
    SUFFIX,
    SegmentHead,
    UpdateHead,
    arrays_of,
    digest_of,
    segment_files,
    write,
)

WRITE_SECONDS = 1.0
"""Time between segments, which is also what the death of a trainer can lose."""
SEGMENT_BYTES = 8 << 20
HELD_BYTES = 256 << 20
"""Amount of batches that are held in memory while the disk is slow or full. Beyond it, all of them are dropped."""
SPARE_BYTES = 32 << 20
"""Arrays that were written and are used again: new memory costs several times as much as a copy."""
STATE_SHARE = 4
"""A trainer's state is recorded again after this multiple of its size, so that states take a fifth of the space, and
not more often than once per `SEGMENT_BYTES`."""
MAX_SEGMENTS = 10_000  # of one rank, so that a slow run does not fill the disk with small files
CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class StreamRecording:
    """Where, and how much, the trainers of a policy record."""

    folder: str  # of the policy, in a folder of the run directory that exists
    max_mb: int  # of each trainer


@dataclass
class _Update:
    """An update on its way to the disk. All arrays are copies."""

    head: UpdateHead
    arrays: Mapping[str, Array]
    algorithm: AlgorithmConfig
    state: Mapping[str, Array]  # of the trainer before the update, if it is recorded
    nbytes: int
    parameters: Array | None = None  # after the update; None if the trainer failed in it


class StreamRecorder:
    """Records one rank of a policy's trainers. `before` and `after` never raise because of a disk, and never wait for
    it if there are `threads`."""

    def __init__(
        self, recording: StreamRecording, policy: str, rank: int, ranks: int, seed: int, threads: bool
    ) -> None:
        """Raises RunBroken if this host does not have the run directory."""
        folder = Path(recording.folder)
        if not folder.parent.is_dir():
            raise RunBroken(
                f"--record-streams needs the run directory on the hosts of trainers, but {folder.parent} does not "
                "exist on this one. Choose a --root that all hosts share, or place trainers on the host of the run: "
                "--resources trainers=node:NAME"
            )
        self._folder = folder / str(rank)
        self._policy, self._rank, self._ranks, self._seed = policy, rank, ranks, seed
        self._max_bytes = recording.max_mb * 1_000_000
        self._segment_bytes = min(SEGMENT_BYTES, self._max_bytes // 8)
        self._messages: deque[str] = deque(maxlen=8)
        self._failing = False  # whether the last segment could not be written
        self._dropped = 0  # updates that were never written
        self._current: _Update | None = None
        self._spare: dict[tuple[Any, ...], deque[Array]] = {}
        self._spare_bytes = 0
        self._queue: deque[_Update] = deque()
        self._queued = 0  # bytes in the queue
        self._lock = threading.Lock()
        self._wants_state = rank == 0
        self._since_state = 0  # bytes since the last recorded state
        self._state_bytes = 0
        self._files: deque[tuple[Path, int]] | None = None  # oldest first; None: the folder is not open
        self._writer = self._number = 0
        self._digest = ""  # after the last update that was written
        self._last = -1  # its number
        self._written = time.monotonic()
        self._wake, self._closing = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="record", daemon=True) if threads else None
        if self._thread is not None:
            self._thread.start()

    def before(
        self, update: int, algorithm: AlgorithmConfig, data: Any, progress: float, batch: Batch, trainer: Trainer
    ) -> None:
        """Copy what an update learns from: `data`, which is that of the batch or a part of it."""
        views = arrays_of(data, batch.lags)
        nbytes = sum(array.nbytes for array in views.values())
        self._make_room(nbytes)
        is_whole = not trainer.uncommitted_state()
        head = UpdateHead(
            update,
            KINDS[type(data)],
            progress,
            time.time(),
            num_decisions=getattr(data, "num_decisions", 0),
            burn_in=getattr(data, "burn_in", 0),
            is_whole=is_whole,
            samples=list(batch.samples),
        )
        copies = {path: self._copied(array) for path, array in views.items()}
        state = self._due_state(trainer) if is_whole else {}
        self._since_state = nbytes if state else self._since_state + nbytes
        nbytes += sum(array.nbytes for array in state.values())
        self._current = _Update(head, copies, algorithm, state, nbytes)

    def _copied(self, array: Array) -> Array:
        with self._lock:
            spare = self._spare.get((array.shape, array.dtype))
            copy = spare.popleft() if spare else None
            self._spare_bytes -= 0 if copy is None else copy.nbytes
        if copy is None:
            return array.copy()
        np.copyto(copy, array)
        return copy

    def _reuse(self, group: list[_Update]) -> None:
        """Keep the arrays of updates that were written for later ones."""
        with self._lock:
            for array in (array for one in group for array in one.arrays.values()):
                if self._spare_bytes + array.nbytes > SPARE_BYTES:  # of sizes that are not used any more
                    self._spare.clear()
                    self._spare_bytes = 0
                self._spare.setdefault((array.shape, array.dtype), deque()).append(array)
                self._spare_bytes += array.nbytes

    def _due_state(self, trainer: Trainer) -> Mapping[str, Array]:
        """Return a copy of the trainer's state if it is to be recorded now. It is not if it would take most of the
        space: a replay then starts from checkpoints."""
        enough = max(STATE_SHARE * self._state_bytes, self._segment_bytes)
        if self._rank > 0 or not (self._wants_state or self._since_state >= enough):
            return {}
        self._wants_state = False
        state = trainer.state()
        self._state_bytes = sum(array.nbytes for array in state.values())
        if self._state_bytes * STATE_SHARE > self._max_bytes:
            return {}
        return {name: array.copy() for name, array in state.items()}

    def _make_room(self, nbytes: int) -> None:
        """Drop what waits if it is too much. What follows begins with a state, so that it can be replayed."""
        if self._queued + nbytes <= HELD_BYTES:
            return
        with self._lock:
            if not self._queue:
                return
            if not self._dropped:
                self._messages.append(
                    f"{self._name}: the disk is too slow or too full for --record-streams, so that updates from "
                    f"{self._queue[0].head.update:,} on are missing; training continues"
                )
            self._dropped += len(self._queue)
            self._queue.clear()
            self._queued = 0
            self._wants_state = self._rank == 0

    @property
    def _name(self) -> str:
        return f"streams/{self._policy}/{self._rank}"

    def after(self, parameters: Array) -> list[str]:
        """Record the update that `before` has copied: it is committed, and these are its parameters. Return messages
        for the user."""
        if self._current is not None:
            self._current.parameters = parameters.copy()
            self._post()
        return self.drain_messages()

    def drain_messages(self) -> list[str]:
        return [self._messages.popleft() for _ in range(len(self._messages))]

    def fail(self) -> None:
        """Record the update in which the trainer failed, and end: it is the one to replay."""
        if self._current is not None:
            self._post()
        self.close()

    def _post(self) -> None:
        assert self._current is not None
        with self._lock:
            self._queue.append(self._current)
            self._queued += self._current.nbytes
        self._current = None
        if self._thread is None:
            if self._queued >= self._segment_bytes or time.monotonic() - self._written >= WRITE_SECONDS:
                self._write_all()
        elif self._queued >= self._segment_bytes:
            self._wake.set()

    def close(self) -> list[str]:
        """Write what waits, unless the disk does not answer. Return messages for the user."""
        self._closing = True
        if self._thread is None:
            self._write_all()
        else:
            self._wake.set()
            self._thread.join(CLOSE_SECONDS)
        if missing := self._dropped + len(self._queue):
            self._messages.append(f"{self._name}: {missing:,} updates could not be recorded")
        return self.drain_messages()

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(WRITE_SECONDS)
            self._wake.clear()
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        while group := self._take():
            try:
                self._write(group)
            except OSError as error:
                with self._lock:
                    self._queue.extendleft(reversed(group))
                    self._queued += sum(one.nbytes for one in group)
                if not self._failing:
                    self._messages.append(
                        f"{self._name} cannot be written: {explain_os_error(error)}. Training continues; up to "
                        f"{HELD_BYTES >> 20} MB are held in memory"
                    )
                self._failing = True
                break
            self._reuse(group)
            if self._failing:
                self._failing = False
                self._messages.append(f"{self._name} can be written again; {self._dropped:,} updates are missing")
        self._written = time.monotonic()

    def _take(self) -> list[_Update]:
        """Remove the updates of the next segment from the queue."""
        group: list[_Update] = []
        taken = 0
        with self._lock:
            while self._queue and taken < self._segment_bytes:
                following = self._queue[0]
                if group and (
                    following.state
                    or following.algorithm is not group[-1].algorithm
                    or following.head.update != group[-1].head.update + 1
                ):
                    break
                group.append(self._queue.popleft())
                taken += following.nbytes
            self._queued -= taken
        return group

    def _write(self, group: list[_Update]) -> None:
        files = self._open()
        first = group[0]
        parent = self._digest if first.head.update == self._last + 1 else ""
        if not parent and first.state:
            parent = digest_of(first.state["parameters"])
        heads = [
            one.head if one.parameters is None else msgspec.structs.replace(one.head, digest=digest_of(one.parameters))
            for one in group
        ]
        head = SegmentHead(
            self._policy,
            self._rank,
            self._ranks,
            self._seed,
            to_data(first.algorithm),
            heads,
            parent,
            has_state=bool(first.state),
        )
        written = write(self._folder, self._writer, self._number + 1, head, first.state, [one.arrays for one in group])
        self._number += 1
        self._digest, self._last = heads[-1].digest, heads[-1].update
        files.append(written)
        while len(files) > 1 and (len(files) > MAX_SEGMENTS or sum(size for _, size in files) > self._max_bytes):
            files.popleft()[0].unlink(missing_ok=True)

    def _open(self) -> deque[tuple[Path, int]]:
        """Return the segments in the folder, those of earlier trainers included."""
        if self._files is None:
            self._folder.parent.mkdir(exist_ok=True)
            self._folder.mkdir(exist_ok=True)
            for path in self._folder.glob(f".*{SUFFIX}"):
                path.unlink(missing_ok=True)  # a trainer was killed while it wrote this
            known = segment_files(self._folder)
            self._writer = max((file.writer for file in known), default=0) + 1
            self._files = deque((file.path, os.stat(file.path).st_size) for file in known)
        return self._files
