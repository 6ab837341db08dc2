"""Journal of a run: one line per update, and a check that each update follows from its predecessor."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from srl.api.control import UpdateRecord

REMEMBERED = 20_000
"""Number of newest entries that are remembered to recognize updates reported again after a death."""
TAIL_BYTES = 1 << 24  # number of bytes a new controller reads from the end of the file to find them


class Journal:
    """A file of updates, created when a trainer reports the first one.

    An update that is reported again because the trainer or the controller died is written only once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[tuple[str, int, int, str], None] | None = None  # oldest first

    def add(self, entry: UpdateRecord) -> None:
        if self._known is None:
            self._known = dict.fromkeys(map(_key, self._tail()))
        key = _key(entry)
        if key in self._known:
            return
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")
        self._known[key] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    def _tail(self) -> list[UpdateRecord]:
        """Return the last complete entries. Removes a partial one, whose update will be reported again."""
        if not self._path.exists():
            return []
        with self._path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(0, size - TAIL_BYTES))
            text = file.read()
            complete = text.rfind(b"\n") + 1
            file.truncate(begin + complete)
        lines = text[:complete].splitlines()[1 if begin else 0 :]
        return [msgspec.json.decode(line, type=UpdateRecord) for line in lines[-REMEMBERED:]]


def _key(entry: UpdateRecord) -> tuple[str, int, int, str]:
    return entry.policy, entry.rank, entry.update, entry.digest


def read(path: Path) -> Iterator[UpdateRecord]:
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is still being written
            yield msgspec.json.decode(line, type=UpdateRecord)


def check(entries: Iterable[UpdateRecord], max_lag: int) -> list[str]:
    """Return descriptions of the errors in a journal; empty if there are none.

    Each update must follow from the previous one, exactly once. All ranks must have the same parameters. No block may
    be used twice, whether by another update, by another rank of the same update, or within one rank. No decision may be
    older than `max_lag` versions.
    """
    errors: list[str] = []
    last: dict[str, UpdateRecord] = {}
    digests: dict[tuple[str, int], str] = {}
    used: dict[tuple[str, str], tuple[int, int]] = {}  # policy and block -> update and rank that used it first
    for entry in entries:
        subject = f"update {entry.update} of {entry.policy}, rank {entry.rank}"
        if entry.lag > max_lag:
            errors.append(f"{subject}: a decision was {entry.lag} versions behind, {max_lag} are allowed")
        if digests.setdefault((entry.policy, entry.update), entry.digest) != entry.digest:
            errors.append(f"{subject}: was computed twice, or ranks differ")
        for sample, times in Counter(entry.samples).items():
            if times > 1:
                errors.append(f"{subject}: learned {times} times from block {sample}")
            own = (entry.update, entry.rank)
            update, rank = first = used.setdefault((entry.policy, sample), own)
            if update != entry.update:
                errors.append(f"{subject}: learned again from block {sample} of update {update}")
            elif first != own:
                errors.append(f"{subject}: learned from block {sample}, as rank {rank} did")
        if entry.rank == 0:
            previous = last.get(entry.policy)
            if previous is not None and entry.update != previous.update + 1:
                errors.append(f"{subject}: follows update {previous.update}")
            elif previous is not None and entry.parent != previous.digest:
                errors.append(f"{subject}: does not start from the parameters of update {previous.update}")
            last[entry.policy] = entry
    return errors
