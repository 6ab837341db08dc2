"""The journal contains each update once, and its check detects errors."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from srl.api.control import UpdateRecord
from srl.storage.update_journal import Journal, check, read


def entry(update: int, rank: int = 0, **changes: Any) -> UpdateRecord:
    made = UpdateRecord("policy", rank, update, f"d{update - 1}", f"d{update}", [f"actors/{rank}.0:{update}"], 1)
    return msgspec.structs.replace(made, **changes)


GOOD = [entry(1), entry(1, rank=1), entry(2), entry(2, rank=1), entry(3)]


def test_a_repeated_report_is_written_once_even_after_a_change_of_controllers(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for line in [*GOOD, GOOD[-1]]:
        journal.add(line)
    successor = Journal(path)
    for line in [entry(2), entry(3), entry(4)]:
        successor.add(line)
    assert list(read(path)) == [*GOOD, entry(4)]
    assert check(read(path), max_lag=1) == []


def test_a_partial_line_of_a_dead_controller_is_not_read_and_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).add(entry(1))
    line = path.read_bytes()
    path.write_bytes(line + line[:10])
    assert list(read(path)) == [entry(1)]
    Journal(path).add(entry(2))
    assert list(read(path)) == [entry(1), entry(2)]


def test_repeated_reports_are_recognized_in_a_long_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    for update in range(1, 10):
        first.add(entry(update))
    monkeypatch.setattr("srl.storage.update_journal.TAIL_BYTES", path.stat().st_size // 2)
    successor = Journal(path)
    for update in (8, 9, 10):
        successor.add(entry(update))
    assert [line.update for line in read(path)] == list(range(1, 11))


@dataclass
class Case:
    line: UpdateRecord
    message: str


@pytest.mark.parametrize(
    "case",
    [
        Case(entry(5), "follows update 3"),
        Case(entry(3), "follows update 3"),
        Case(entry(3, digest="other"), "was computed twice"),
        Case(entry(4, parent="d2"), "does not start from the parameters of update 3"),
        Case(entry(4, samples=["actors/0.0:2"]), "learned again from block actors/0.0:2 of update 2"),
        Case(entry(4, samples=["actors/0.0:4", "actors/0.0:4"]), "learned 2 times from block actors/0.0:4"),
        Case(entry(2, rank=2, samples=["actors/1.0:2"]), "learned from block actors/1.0:2, as rank 1 did"),
        Case(entry(4, rank=1, samples=["actors/0.0:3"]), "learned again from block actors/0.0:3 of update 3"),
        Case(entry(4, lag=2), "2 versions behind, 1 are allowed"),
        Case(entry(3, rank=1, digest="other"), "ranks differ"),
    ],
    ids=lambda case: case.message,
)
def test_errors_are_detected(case: Case) -> None:
    errors = check([*GOOD, case.line], max_lag=1)
    assert any(case.message in text for text in errors), errors
