"""Reports on updates: metrics, episodes and, with `--journal`, the samples with which `srl chaos` checks a run."""

from __future__ import annotations

import base64
import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from srl.api.control import EpisodeReport, JournalEntry, UpdateRecord
from srl.api.streams import Batch
from srl.api.trainer import TrainResult
from srl.api.transport import Message
from srl.api.worker import WorkerId
from srl.base.tree import Array

REPEATED = 16  # records that a replacement repeats: more than are ever in transit to the controller
MAX_BYTES = 640 << 10
"""Limit for these records in a commit's metadata. One record fits always, all of them with 2,000 episodes each."""


class UpdateReporter:
    """Reporter of one record per update, sent once the update is durable. A report can be lost with a trainer or its
    host, but the commit's metadata also contains the record, and the replacement, which continues from the commit,
    repeats it."""

    def __init__(
        self, policy: str, worker_id: WorkerId, ranks: int, journal: bool, report: Callable[[Message], None]
    ) -> None:
        self._policy = policy
        self._rank, self._incarnation = worker_id.index, worker_id.incarnation
        self._ranks = ranks
        self._journal = journal
        self._report = report
        self._digest = ""
        self._unreported: deque[UpdateRecord] = deque()
        self._encoded: deque[str] = deque(maxlen=REPEATED)

    @property
    def last(self) -> list[str]:
        """Last records, as many as fit into a commit's metadata, as text."""
        fitting: deque[str] = deque()
        left = MAX_BYTES
        for text in reversed(self._encoded):
            left -= len(text)
            if left < 0:
                break
            fitting.appendleft(text)
        return list(fitting)

    def resume(self, metadata: Mapping[str, Any], parameters: Array) -> None:
        """Queue the records in the last commit's metadata for another report."""
        self._digest = digest_of(parameters) if self._journal else ""
        if self._rank == 0:
            for text in metadata.get("records", ()):
                self._unreported.append(_decoded(text))
                self._encoded.append(text)

    def announce(self, update: int, batch: Batch) -> None:
        """Report the episodes of the next update's batch, if another rank reports the update. That rank can commit the
        update only after this one has taken part in it, so the report cannot be lost with this process."""
        if self._rank > 0:
            episodes, (total, count, most) = batch.episodes, batch.lag_totals
            lags = {"lag_sum": total, "lag_count": count, "lag_max": most}
            self._report(EpisodeReport(self._policy, episodes, update, self._rank, self._incarnation, **lags))

    def add(self, update: int, steps: int, result: TrainResult, parameters: Array, batch: Batch) -> None:
        if self._rank > 0 and not self._journal:
            return
        total, count, most = batch.lag_totals
        entry = None
        if self._journal:
            parent, self._digest = self._digest, digest_of(parameters)
            entry = JournalEntry(self._policy, self._rank, update, parent, self._digest, list(batch.samples), most)
        record = UpdateRecord(
            self._policy,
            update,
            steps,
            time.time(),
            {name: float(value) for name, value in result.metrics.items()} if self._rank == 0 else {},
            batch.episodes if self._rank == 0 else {},
            total,
            count,
            most,
            self._rank,
            self._ranks,
            self._incarnation,
            entry,
        )
        self._unreported.append(record)
        self._encoded.append(_encoded(record))

    def report(self, durable: int) -> None:
        """Report the updates up to version `durable` that have not been reported."""
        while self._unreported and self._unreported[0].update <= durable:
            self._report(self._unreported.popleft())


def _encoded(record: UpdateRecord) -> str:
    """Return the record as text for JSON, which has no NaN."""
    if record.journal is not None:
        entry = msgspec.structs.replace(record.journal, samples=packed(record.journal.samples))
        record = msgspec.structs.replace(record, journal=entry)
    return base64.b64encode(msgspec.msgpack.encode(record)).decode()


def _decoded(text: str) -> UpdateRecord:
    record = msgspec.msgpack.decode(base64.b64decode(text), type=UpdateRecord)
    if record.journal is None:
        return record
    entry = msgspec.structs.replace(record.journal, samples=list(unpacked(record.journal.samples)))
    return msgspec.structs.replace(record, journal=entry)


def packed(samples: Iterable[str]) -> list[str]:
    """Merge consecutive labels from one producer: `actors/0.0:7`, `actors/0.0:8` -> `actors/0.0:7-8`."""
    rows: dict[str, list[list[int]]] = {}
    for sample in samples:
        producer, _, number = sample.rpartition(":")
        ranges = rows.setdefault(producer, [])
        if ranges and int(number) == ranges[-1][1] + 1:
            ranges[-1][1] += 1
        else:
            ranges.append([int(number), int(number)])
    return [f"{producer}:{first}-{last}" for producer, ranges in rows.items() for first, last in ranges]


def unpacked(rows: Iterable[str]) -> Iterator[str]:
    for row in rows:
        producer, _, numbers = row.rpartition(":")
        first, _, last = numbers.partition("-")
        yield from (f"{producer}:{number}" for number in range(int(first), int(last) + 1))


def digest_of(parameters: Array) -> str:
    return hashlib.sha256(parameters.data).hexdigest()[:32]
