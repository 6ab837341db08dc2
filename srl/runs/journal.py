"""The journal of a run: one line for every update, and the check that each follows from its predecessor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from srl.api.control import Learnt


class Journal:
    """Written only where trainers report their updates; the file is made with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, entry: Learnt) -> None:
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(entry) + b"\n")


def read(path: Path) -> Iterator[Learnt]:
    with path.open("rb") as file:
        for line in file:
            yield msgspec.json.decode(line, type=Learnt)


def check(entries: Iterable[Learnt], max_lag: int) -> list[str]:
    """What is wrong with it, in words; empty if all is well.

    Every update follows from the one before, once; all ranks have the same parameters; no block is used twice; no
    decision is older than it may be. A trainer that died may have told of its last update twice, in the same words.
    """
    wrong: list[str] = []
    last: dict[str, Learnt] = {}
    digests: dict[tuple[str, int], str] = {}
    used: dict[tuple[str, str], int] = {}
    for entry in entries:
        who = f"update {entry.update} of {entry.policy}, rank {entry.rank}"
        if entry.lag > max_lag:
            wrong.append(f"{who}: a decision was {entry.lag} versions behind, {max_lag} are allowed")
        if digests.setdefault((entry.policy, entry.update), entry.digest) != entry.digest:
            wrong.append(f"{who}: was made twice, or ranks differ")
        for sample in entry.samples:
            if used.setdefault((entry.policy, sample), entry.update) != entry.update:
                wrong.append(f"{who}: learnt again from block {sample} of update {used[(entry.policy, sample)]}")
        former = last.get(entry.policy)
        if entry.rank == 0 and former != entry:
            if former is not None and entry.update != former.update + 1:
                wrong.append(f"{who}: follows update {former.update}")
            elif former is not None and entry.parent != former.digest:
                wrong.append(f"{who}: does not begin with the parameters that update {former.update} made")
            last[entry.policy] = entry
    return wrong
