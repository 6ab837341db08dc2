"""Files of metrics: one JSON object per line. metrics.jsonl has a row per update, system.jsonl one per moment."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from srl.base.files import BoundedFile, Losses

TAIL_BYTES = 1 << 20  # number of bytes read from the end of a file to find its last updates
UPDATE, EVENT = "update", "event"


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
    except (ValueError, RecursionError):
        return None  # a partial line, left by a killed writer
    return row if isinstance(row, dict) and "step" in row else None


def number_of(row: Mapping[str, Any]) -> int:
    """Return the number of a row's update."""
    return int(row["update"] if "update" in row else row[f"{row['policy']}/update"])


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
