"""The updates of a run, each complete and reported once, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from srl.api.block import joined
from srl.api.control import EpisodeReport, UpdateRecord

MAX_WAITING = 64
"""Number of a policy's updates that wait for the reports of other ranks. Beyond this, a report counts as lost."""

NO_LIMIT = 1 << 40

Report = UpdateRecord | EpisodeReport


class UpdateRecords:
    """Joins the reports of all ranks on each update, and drops repetitions, which follow the death of a trainer.

    `emit` receives each update once. The reports of other ranks are sent before rank 0 can commit the update, but may
    arrive later. If one was lost with its host, the update is emitted without it once the ranks have been replaced.
    """

    def __init__(self, emit: Callable[[UpdateRecord], None]) -> None:
        self._emit = emit
        self.last: dict[str, int] = {}  # policy -> its newest update that was emitted
        self._waiting: dict[str, deque[UpdateRecord]] = {}
        self._parts: dict[str, dict[tuple[int, int, int], EpisodeReport]] = {}  # update, incarnation and rank -> report
        self.num_incomplete = 0  # updates without the episodes of some rank

    def add(self, message: Report) -> None:
        policy = message.policy
        if isinstance(message, UpdateRecord) and message.rank > 0:
            return  # it only carries an entry of the journal
        if message.update <= self.last.get(policy, 0):
            return
        if isinstance(message, EpisodeReport):
            self._parts.setdefault(policy, {})[message.update, message.incarnation, message.rank] = message
        else:
            waiting = self._waiting.setdefault(policy, deque())
            if waiting and message.update <= waiting[-1].update:
                return
            waiting.append(message)
        self._advance(policy)

    def _advance(self, policy: str, all_of_them: bool = False) -> None:
        waiting, parts = self._waiting.get(policy), self._parts.setdefault(policy, {})
        while waiting:
            record = waiting[0]
            found = [parts.get((record.update, record.incarnation, rank)) for rank in range(1, record.ranks)]
            known = [part for part in found if part is not None]
            if len(known) < len(found):
                replaced = waiting[-1].incarnation > record.incarnation
                if not (replaced or all_of_them or len(waiting) > MAX_WAITING):
                    return
                self.num_incomplete += 1
            waiting.popleft()
            self.last[policy] = record.update
            for key in [key for key in parts if key[0] <= record.update]:
                del parts[key]
            self._emit(_merged(record, known) if known else record)

    def flush(self) -> None:
        """Emit the updates that still wait, at the end of the run."""
        for policy in list(self._waiting):
            self._advance(policy, all_of_them=True)

    def num_waiting(self, policy: str) -> int:
        return len(self._waiting.get(policy, ()))

    def state(self) -> list[Any]:
        """Return the reports that wait, as plain data, for a takeover by another controller."""
        records = [record for waiting in self._waiting.values() for record in waiting]
        parts = [part for found in self._parts.values() for part in found.values()]
        waiting: list[Report] = [*parts, *records]
        return [msgspec.to_builtins(message) for message in waiting]

    def take_over(self, state: list[Any]) -> None:
        for saved in state:
            self.add(msgspec.convert(saved, Report))


def _merged(record: UpdateRecord, parts: list[EpisodeReport]) -> UpdateRecord:
    pairs = [*record.episodes.items(), *(pair for part in parts for pair in part.episodes.items())]
    return msgspec.structs.replace(
        record,
        episodes=joined(pairs, NO_LIMIT),
        lag_sum=record.lag_sum + sum(part.lag_sum for part in parts),
        lag_count=record.lag_count + sum(part.lag_count for part in parts),
        lag_max=max(record.lag_max, *(part.lag_max for part in parts)),
    )
