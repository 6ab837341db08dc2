"""The journal of a run: one line for every update, and the check that each follows from its predecessor."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from srl.api.control import UpdateRecord

REMEMBERED = 20_000
"""Entries that are known if they are told again: after a death the last of them are."""
TAIL_BYTES = 1 << 24
"""Of the file, in which a new controller looks for them."""


class Journal:
    """Written only where trainers report their updates; the file is made with the first of them. What is told again,
    because who told it or who was told it has died, stands in it once."""

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
        """The last whole lines. Half a line, left by who died while it was written, is removed: it is told again."""
        if not self._path.exists():
            return []
        with self._path.open("rb+") as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(0, size - TAIL_BYTES))
            text = file.read()
            whole = text.rfind(b"\n") + 1
            file.truncate(begin + whole)
        lines = text[:whole].splitlines()[1 if begin else 0 :]
        return [msgspec.json.decode(line, type=UpdateRecord) for line in lines[-REMEMBERED:]]


def _key(entry: UpdateRecord) -> tuple[str, int, int, str]:
    return entry.policy, entry.rank, entry.update, entry.digest


def read(path: Path) -> Iterator[UpdateRecord]:
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break  # it is being written
            yield msgspec.json.decode(line, type=UpdateRecord)


def check(entries: Iterable[UpdateRecord], max_lag: int) -> list[str]:
    """What is wrong with it, in words; empty if all is well.

    Every update follows from the one before, once; all ranks have the same parameters; no block is used twice, be it by
    another update, by another rank of the same one, or within one; no decision is older than it may be.
    """
    wrong: list[str] = []
    last: dict[str, UpdateRecord] = {}
    digests: dict[tuple[str, int], str] = {}
    used: dict[tuple[str, str], tuple[int, int]] = {}  # policy and block -> the update and the rank that had it first
    for entry in entries:
        who = f"update {entry.update} of {entry.policy}, rank {entry.rank}"
        if entry.lag > max_lag:
            wrong.append(f"{who}: a decision was {entry.lag} versions behind, {max_lag} are allowed")
        if digests.setdefault((entry.policy, entry.update), entry.digest) != entry.digest:
            wrong.append(f"{who}: was made twice, or ranks differ")
        for sample, times in Counter(entry.samples).items():
            if times > 1:
                wrong.append(f"{who}: learned {times} times from block {sample}")
            own = (entry.update, entry.rank)
            update, rank = first = used.setdefault((entry.policy, sample), own)
            if update != entry.update:
                wrong.append(f"{who}: learned again from block {sample} of update {update}")
            elif first != own:
                wrong.append(f"{who}: learned from block {sample}, as rank {rank} did")
        if entry.rank == 0:
            former = last.get(entry.policy)
            if former is not None and entry.update != former.update + 1:
                wrong.append(f"{who}: follows update {former.update}")
            elif former is not None and entry.parent != former.digest:
                wrong.append(f"{who}: does not begin with the parameters that update {former.update} made")
            last[entry.policy] = entry
    return wrong
