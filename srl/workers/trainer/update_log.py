"""The samples of every update: the trainer's part of a journal with which `srl chaos` checks a run."""

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

REPEATED = 16
"""Entries that a replacement repeats: more than are ever in transit between a trainer and its controller."""
ROOM = FACTS_BYTES // 2
"""Bytes of a commit's facts that they may use: with thousands of actors fewer entries fit."""


class UpdateJournal:
    """Reports an entry once its update is published, and so committed. Reports that are lost with a trainer or its host
    are in the facts of its commit: the replacement, which continues from the commit, repeats them."""

    def __init__(self, policy: str, rank: int, report: Callable[[Message], None]) -> None:
        self._policy = policy
        self._rank = rank
        self._report = report
        self._digest = ""
        self._last: UpdateRecord | None = None
        self._packed: deque[tuple[int, dict[str, Any]]] = deque(maxlen=REPEATED)  # with their bytes

    @property
    def last(self) -> list[dict[str, Any]]:
        """The last entries as plain data for the facts of a commit, as many as fit."""
        fitting: deque[dict[str, Any]] = deque()
        room = ROOM
        for num_bytes, entry in reversed(self._packed):
            room -= num_bytes
            if room < 0:
                break
            fitting.appendleft(entry)
        return list(fitting)

    def resume(self, facts: Mapping[str, Any], parameters: Array) -> None:
        self._digest = digest_of(parameters)
        if self._rank == 0:
            for packed in facts.get("journal", ()):
                entry = UpdateRecord(**{**packed, "samples": list(unpacked(packed["samples"]))})
                self._keep(entry)
                self._report(entry)

    def add(self, update: int, parameters: Array, batch: Batch) -> None:
        parent, self._digest = self._digest, digest_of(parameters)
        lag = int(batch.lags.max(initial=0))
        self._keep(UpdateRecord(self._policy, self._rank, update, parent, self._digest, list(batch.samples), lag))

    def _keep(self, entry: UpdateRecord) -> None:
        self._last = entry
        plain = {**msgspec.structs.asdict(entry), "samples": packed(entry.samples)}
        self._packed.append((len(msgspec.json.encode(plain)), plain))

    def report(self) -> None:
        """Report the last entry."""
        assert self._last is not None
        self._report(self._last)


def packed(samples: Iterable[str]) -> list[str]:
    """Join consecutive labels of one producer: `actors/0.0:7`, `actors/0.0:8` -> `actors/0.0:7-8`."""
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
