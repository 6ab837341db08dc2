"""What every update was made from: the trainer's part of a journal that shows whether a run kept its promises."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from srl.api.control import Learnt
from srl.api.transport import Message
from srl.base.tree import Array
from srl.workers.prefetch import Batch


class UpdateJournal:
    """An entry is reported once its update is published, and so committed. A trainer that dies in between leaves it in
    the facts of its commit: whoever goes on from there reports it."""

    def __init__(self, policy: str, rank: int, report: Callable[[Message], None]) -> None:
        self._policy = policy
        self._rank = rank
        self._report = report
        self._digest = ""
        self._entry: Learnt | None = None

    @property
    def last(self) -> dict[str, Any] | None:
        """The last entry as plain data, for the facts of a commit."""
        return None if self._entry is None else msgspec.structs.asdict(self._entry)

    def resume(self, facts: Mapping[str, Any], parameters: Array) -> None:
        self._digest = digest_of(parameters)
        if self._rank == 0 and facts.get("journal"):
            self._entry = Learnt(**facts["journal"])
            self.report()

    def add(self, update: int, parameters: Array, batch: Batch) -> None:
        parent, self._digest = self._digest, digest_of(parameters)
        lag = int(batch.lags.max(initial=0))
        self._entry = Learnt(self._policy, self._rank, update, parent, self._digest, list(batch.samples), lag)

    def report(self) -> None:
        if self._entry is not None:
            self._report(self._entry)


def digest_of(parameters: Array) -> str:
    return hashlib.sha256(parameters.data).hexdigest()[:32]
