"""Journal of a run: one line per update, and a check that each update follows from its predecessor.

Updates that could not be recorded, because the disk was full or broken for long, are replaced by a `Gap`.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Union

import msgspec

from srl.api.control import JournalEntry
from srl.api.transport import Message
from srl.base.files import BoundedFile, Losses, rotated

REMEMBERED = 20_000
"""Number of newest entries that are remembered to recognize updates reported again after a death."""
TAIL_BYTES = 1 << 24  # number of bytes a new controller reads from the end of the file to find them
MAX_BYTES = 1_000_000_000
"""Maximum size of a journal, with its predecessor: the updates of about a week at ten per second."""
HELD_BYTES = 1 << 24  # size of the newest entries that are held in memory while the file cannot be written


class Gap(Message, frozen=True):
    """Entries that are missing at this place, because the disk was full or broken for too long."""

    entries: int


Line = Union[JournalEntry, Gap]


class Journal:
    """A file of updates, created when a trainer reports the first one. Writing it never raises.

    An update that is reported again because the trainer or the controller died is written only once.
    """

    def __init__(self, path: Path, losses: Losses | None = None) -> None:
        self._path = path
        self._known: dict[int, None] | None = None  # keys of entries, oldest first
        self._file = BoundedFile(
            path,
            losses,
            max_bytes=MAX_BYTES,
            held_bytes=HELD_BYTES,
            gap=lambda entries: _line(Gap(entries)),
            lines=True,
        )

    def add(self, entry: JournalEntry) -> None:
        if self._known is None:
            self._known = dict.fromkeys(self._tail())
        key = _key(entry)
        if key in self._known:
            return
        self._file.append(_line(entry))
        self._known[key] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]

    @property
    def complete(self) -> bool:
        """Whether every entry is in the file, so that agents need not keep their reports."""
        return not self._file.failing

    def close(self) -> None:
        """Write the entries that are still held in memory, if possible."""
        self._file.close()

    def _tail(self) -> deque[int]:
        """Return the keys of the last complete entries. The update of a partial one will be reported again."""
        found: deque[int] = deque(maxlen=REMEMBERED)
        for path in (rotated(self._path), self._path):
            try:
                with path.open("rb") as file:
                    begin = file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
                    if begin:
                        file.readline()
                    # One line at a time: decoded together, the entries would take four times the size of the file.
                    found.extend(_key(line) for line in _complete(file) if isinstance(line, JournalEntry))
            except OSError:
                continue
        return found


def _line(entry: Line) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def updates(lines: Iterable[Line]) -> list[JournalEntry]:
    """Return the lines without gaps."""
    return [line for line in lines if isinstance(line, JournalEntry)]


def _key(entry: JournalEntry) -> int:
    """Return a number of 64 bits for an update of a rank, which takes a third of the memory of its fields."""
    return hash((entry.policy, entry.rank, entry.update, entry.digest))


def _complete(file: Iterable[bytes]) -> Iterator[Line]:
    for line in file:
        if not line.endswith(b"\n"):
            return  # it is still being written
        yield msgspec.json.decode(line, type=Line)


def read(path: Path) -> Iterator[Line]:
    older = rotated(path)
    for each in (older, path) if older.exists() else (path,):
        with each.open("rb") as file:
            yield from _complete(file)


def missing(entries: Iterable[Line]) -> int:
    """Return the number of entries that could not be recorded."""
    return sum(entry.entries for entry in entries if isinstance(entry, Gap))


def check(entries: Iterable[Line], max_lag: int) -> list[str]:
    """Return descriptions of the errors in a journal; empty if there are none.

    Each update must follow from the previous one, exactly once. All ranks must have the same parameters. No block may
    be used twice, whether by another update, by another rank of the same update, or within one rank. No decision may be
    older than `max_lag` versions. A gap is no error: the update after it may be as many updates ahead as entries are
    missing, and the missing ones are not checked.
    """
    errors: list[str] = []
    last: dict[str, JournalEntry] = {}
    lost = 0  # number of entries missing so far
    lost_before: dict[str, int] = {}  # the same at the last update of each policy
    digests: dict[tuple[str, int], str] = {}
    used: dict[tuple[str, str], tuple[int, int]] = {}  # policy and block -> update and rank that used it first
    for entry in entries:
        if isinstance(entry, Gap):
            lost += entry.entries
            continue
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
            skipped = entry.update - previous.update - 1 if previous is not None else 0
            if 0 < skipped <= lost - lost_before.get(entry.policy, 0):
                pass
            elif previous is not None and skipped:
                errors.append(f"{subject}: follows update {previous.update}")
            elif previous is not None and entry.parent != previous.digest:
                errors.append(f"{subject}: does not start from the parameters of update {previous.update}")
            last[entry.policy] = entry
            lost_before[entry.policy] = lost
    return errors
