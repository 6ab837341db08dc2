"""The journal contains each update once, and its check detects errors."""

import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from srl.api.control import JournalEntry
from srl.storage.update_journal import Gap, Journal, check, missing, read, updates


def entry(update: int, rank: int = 0, **changes: Any) -> JournalEntry:
    made = JournalEntry("policy", rank, update, f"d{update - 1}", f"d{update}", [f"actors/{rank}.0:{update}"], 1)
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
    assert [line.update for line in updates(read(path))] == list(range(1, 11))


def test_taking_over_a_long_journal_takes_a_fraction_of_its_size_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    for update in range(1, 2001):
        first.add(entry(update, samples=[f"actors/{actor}.0:{update}" for actor in range(16)]))
    tracemalloc.start()
    try:
        Journal(path).add(entry(2000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(list(read(path))) == 2000
    assert peak < path.stat().st_size / 2


def test_entries_that_could_not_be_recorded_leave_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srl.storage.update_journal.HELD_BYTES", 400)
    path = tmp_path / "disk" / "journal.jsonl"
    path.parent.touch()  # a file in place of the directory
    journal = Journal(path)
    for update in range(1, 11):
        journal.add(entry(update))
    assert not journal.complete
    path.parent.unlink()
    journal.close()
    assert journal.complete
    journal.add(entry(11))
    found = list(read(path))
    assert found[0] == Gap(missing(found))
    assert [line.update for line in updates(found)] == list(range(1 + missing(found), 12))
    successor = Journal(path)
    successor.add(entry(11))
    assert list(read(path)) == found


def test_the_check_allows_a_gap_and_nothing_else() -> None:
    assert check([entry(1), Gap(2), entry(4), entry(5)], max_lag=1) == []
    assert check([entry(1), entry(1, policy="b"), Gap(4), entry(4), entry(4, policy="b")], max_lag=1) == []
    assert "follows update 1" in str(check([entry(1), Gap(1), entry(4)], max_lag=1))
    assert "follows update 5" in str(check([entry(4), Gap(2), entry(5), entry(7)], max_lag=1))
    assert "follows update 4" in str(check([entry(4), Gap(9), entry(3)], max_lag=1))
    assert "does not start" in str(check([entry(1), Gap(1), entry(2, parent="x")], max_lag=1))
    assert "learned again" in str(check([entry(1), Gap(1), entry(3, samples=["actors/0.0:1"])], max_lag=1))


def test_a_long_journal_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srl.storage.update_journal.MAX_BYTES", 2000)
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for update in range(1, 101):
        journal.add(entry(update))
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 2000
    kept = [line.update for line in updates(read(path))]
    assert kept == list(range(kept[0], 101))
    assert check(read(path), max_lag=1) == []
    Journal(path).add(entry(kept[0]))  # repeated
    assert updates(read(path))[-1] == entry(100)


@dataclass
class Case:
    line: JournalEntry
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
