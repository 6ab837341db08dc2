"""What a journal of updates proves, and what it does not let pass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from srl.api.control import Learnt
from srl.runs.journal import Journal, check, read


def entry(update: int, rank: int = 0, **changes: Any) -> Learnt:
    made = Learnt("policy", rank, update, f"d{update - 1}", f"d{update}", [f"actors/{rank}.0:{update}"], 1)
    return msgspec.structs.replace(made, **changes)


GOOD = [entry(1), entry(1, rank=1), entry(2), entry(2, rank=1), entry(3)]


def test_a_chain_of_updates_is_good_also_if_one_is_told_twice(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.jsonl")
    for line in [*GOOD, GOOD[-1], entry(4)]:
        journal.add(line)
    assert check(read(tmp_path / "journal.jsonl"), max_lag=1) == []


@dataclass
class Case:
    line: Learnt
    says: str


@pytest.mark.parametrize(
    "case",
    [
        Case(entry(5), "follows update 3"),
        Case(entry(3, digest="other"), "was made twice"),
        Case(entry(4, parent="d2"), "does not begin with the parameters that update 3 made"),
        Case(entry(4, samples=["actors/0.0:2"]), "learnt again from block actors/0.0:2 of update 2"),
        Case(entry(4, lag=2), "2 versions behind, 1 are allowed"),
        Case(entry(3, rank=1, digest="other"), "ranks differ"),
    ],
    ids=lambda case: case.says,
)
def test_what_must_not_happen_is_found(case: Case) -> None:
    wrong = check([*GOOD, case.line], max_lag=1)
    assert any(case.says in text for text in wrong), wrong
