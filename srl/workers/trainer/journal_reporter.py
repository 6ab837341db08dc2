"""Reports on the samples used by each update, with which `srl chaos` checks that a run lost none."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from srl.api.control import UpdateRecord
from srl.api.transport import Message
from srl.base.snapshot import FACTS_BYTES
from srl.base.tree import Array
from srl.workers.trainer.batches import Batch

REPEATED = 16  # entries that a replacement repeats: more than are ever in transit to the controller
MAX_BYTES = FACTS_BYTES // 2  # limit for these entries in a commit's metadata; with thousands of actors, fewer fit


class JournalReporter:
    """Reporter of one entry per update, sent once the update is durable. A report can be lost with a trainer or its
    host, but the commit's metadata also contains the entry, and the replacement, which continues from the commit,
    repeats it."""

    def __init__(self, policy: str, rank: int, report: Callable[[Message], None]) -> None:
        self._policy = policy
        self._rank = rank
        self._report = report
        self._digest = ""
        self._unreported: deque[UpdateRecord] = deque()
        self._packed: deque[tuple[int, dict[str, Any]]] = deque(maxlen=REPEATED)  # number of bytes and entry

    @property
    def last(self) -> list[dict[str, Any]]:
        """Last entries, as many as fit into a commit's metadata, as plain data."""
        fitting: deque[dict[str, Any]] = deque()
        left = MAX_BYTES
        for num_bytes, entry in reversed(self._packed):
            left -= num_bytes
            if left < 0:
                break
            fitting.appendleft(entry)
        return list(fitting)

    def resume(self, metadata: Mapping[str, Any], parameters: Array) -> None:
        """Queue the entries in the last commit's metadata for another report."""
        self._digest = digest_of(parameters)
        if self._rank == 0:
            for packed in metadata.get("journal", ()):
                self._keep(UpdateRecord(**{**packed, "samples": list(unpacked(packed["samples"]))}))

    def add(self, update: int, parameters: Array, batch: Batch) -> None:
        parent, self._digest = self._digest, digest_of(parameters)
        lag = int(batch.lags.max(initial=0))
        self._keep(UpdateRecord(self._policy, self._rank, update, parent, self._digest, list(batch.samples), lag))

    def _keep(self, entry: UpdateRecord) -> None:
        self._unreported.append(entry)
        plain = {**msgspec.structs.asdict(entry), "samples": packed(entry.samples)}
        self._packed.append((len(msgspec.json.encode(plain)), plain))

    def report(self, durable: int) -> None:
        """Report the updates up to version `durable` that have not been reported."""
        while self._unreported and self._unreported[0].update <= durable:
            self._report(self._unreported.popleft())


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
