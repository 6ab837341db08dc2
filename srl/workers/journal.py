"""What every update was made from: the trainer's part of a journal that shows whether a run kept its promises."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from srl.api.control import Learnt
from srl.api.transport import Message
from srl.base.tree import Array
from srl.workers.prefetch import Batch

REPEATED = 16
"""Entries that are repeated after a death: more than are ever on their way between a trainer and its controller."""


class UpdateJournal:
    """An entry is reported once its update is published, and so committed. What a trainer or its host takes along when
    it dies, reports on their way included, is in the facts of its commit: whoever goes on from there repeats them."""

    def __init__(self, policy: str, rank: int, report: Callable[[Message], None]) -> None:
        self._policy = policy
        self._rank = rank
        self._report = report
        self._digest = ""
        self._last: deque[Learnt] = deque(maxlen=REPEATED)

    @property
    def last(self) -> list[dict[str, Any]]:
        """The last entries as plain data, for the facts of a commit."""
        return [msgspec.structs.asdict(entry) for entry in self._last]

    def resume(self, facts: Mapping[str, Any], parameters: Array) -> None:
        self._digest = digest_of(parameters)
        if self._rank == 0:
            self._last.extend(Learnt(**entry) for entry in facts.get("journal", ()))
            for entry in self._last:
                self._report(entry)

    def add(self, update: int, parameters: Array, batch: Batch) -> None:
        parent, self._digest = self._digest, digest_of(parameters)
        lag = int(batch.lags.max(initial=0))
        self._last.append(Learnt(self._policy, self._rank, update, parent, self._digest, list(batch.samples), lag))

    def report(self) -> None:
        """The last one."""
        self._report(self._last[-1])


def digest_of(parameters: Array) -> str:
    return hashlib.sha256(parameters.data).hexdigest()[:32]
