"""Files of metrics: one JSON object per line. metrics.jsonl has a row per update, system.jsonl one per moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from srl.base.files import BoundedFile, Losses
from srl.base.tree import Array

TAIL_BYTES = 1 << 20  # number of bytes read from the end of a file to find its last updates
UPDATE = "update"
CLOCK_SECONDS = 2.0
"""Difference between clocks of hosts that is not taken for a resumed run, whose seconds begin at zero again."""


class RowFile:
    """A file of rows: `{"step": 4096, "time": 1700000000.5, "return": 21.3, ...}`; NaN and infinity are null.

    Each row is one write, so that a killed process loses none. Writing never raises: while the disk is full, the newest
    rows are held in memory.
    """

    def __init__(self, path: Path, losses: Losses | None = None) -> None:
        self.path = path
        self._file = BoundedFile(path, losses, lines=True)

    def append(self, step: int, row: Mapping[str, Any], wall: float) -> None:
        whole = {"step": step, "time": round(wall, 3), **row}
        self._file.append(msgspec.json.encode(whole) + b"\n")

    @property
    def complete(self) -> bool:
        """Whether every row is in the file."""
        return not self._file.failing

    def close(self) -> None:
        self._file.close()


class RowReader:
    """Reader of a file of rows that grows. It returns complete lines only."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path = path
        self.offset = offset  # position of the next line

    def read(self, max_bytes: int = 1 << 20) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the next rows, each with the position after it. Only the caller advances `offset`."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                text = file.read(max_bytes)
        except FileNotFoundError:
            return
        at = self.offset
        for line in text[: text.rfind(b"\n") + 1].splitlines(keepends=True):
            at += len(line)
            row = _parsed(line)
            yield ({} if row is None else row), at

    def num_unread(self) -> int:
        """Return the number of rows that have not been read."""
        try:
            with self._path.open("rb") as file:
                file.seek(self.offset)
                return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))
        except FileNotFoundError:
            return 0


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None  # a partial line, left by a killed writer
    return row if isinstance(row, dict) and "step" in row else None


def all_rows(path: Path) -> list[dict[str, Any]]:
    """Return all rows of a file. Raises FileNotFoundError."""
    with path.open("rb") as file:
        return [row for line in file if (row := _parsed(line)) is not None]


def current_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl that count. Raises FileNotFoundError.

    A killed run resumes from its last checkpoint and repeats the updates after it. Only the repetition counts. So does
    the time: `elapsed` continues where the run was resumed.
    """
    rows: list[dict[str, Any]] = []
    last: dict[str, int] = {}
    before = newest = 0.0
    for row in all_rows(path):
        if row.get("kind") == UPDATE:
            policy, number = str(row.get("policy", "")), number_of(row)
            if number <= last.get(policy, 0):
                rows = [one for one in rows if not _is_repeated(one, policy, number, row["step"])]
            last[policy] = number
        elapsed = row.get("elapsed")
        if elapsed is not None:
            if row.get("kind") == UPDATE:
                before += newest if elapsed < newest - CLOCK_SECONDS else 0.0
                newest = elapsed
            row["elapsed"] = before + elapsed
        rows.append(row)
    return rows


def metric_columns(path: Path) -> dict[str, Array]:
    """Return the rows that count as arrays of equal length, with NaN where a row lacks a number. Raises
    FileNotFoundError."""
    rows = current_rows(path)
    found: dict[str, Array] = {}
    for name in dict.fromkeys(name for row in rows for name in row if name != "facts"):
        values = [row.get(name) for row in rows]
        is_text = any(isinstance(value, str) for value in values)
        found[name] = np.array([("" if is_text else np.nan) if value is None else value for value in values])
    return found


def number_of(row: Mapping[str, Any]) -> int:
    """Return the number of a row's update."""
    return int(row["update"] if "update" in row else row[f"{row['policy']}/update"])


def _is_repeated(row: Mapping[str, Any], policy: str, number: int, step: int) -> bool:
    if row.get("kind") == UPDATE:
        return bool(row.get("policy", "") == policy and number_of(row) >= number)
    return bool(row["step"] >= step)


def last_updates(path: Path) -> dict[str, int]:
    """Return the number of each policy's last update in metrics.jsonl, if it is near the end of the file."""
    try:
        with path.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(begin)
            lines = file.read().splitlines(keepends=True)[1 if begin else 0 :]
    except OSError:
        return {}
    rows = [row for line in lines if line.endswith(b"\n") and (row := _parsed(line)) is not None]
    return {str(row["policy"]): number_of(row) for row in rows if row.get("kind") == UPDATE}
