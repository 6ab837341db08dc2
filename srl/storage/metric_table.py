"""A file of rows as columns, which grow with the file."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from srl.base.files import open_regular
from srl.base.tree import Array
from srl.storage.metric_rows import UPDATE, number_of

CLOCK_SECONDS = 2.0
"""Difference between clocks of hosts that is not taken for a resumed run, whose seconds begin at zero again."""
CHUNK_BYTES = 1 << 20
NOT_COLUMNS = {"facts"}


class _Column:
    """The values of a name, and the numbers of their rows."""

    def __init__(self, is_text: bool, first: int) -> None:
        self._first = first
        self._rows: array[int] | None = None  # while there is a value in each row since the first
        self.values: Any = [] if is_text else array("d")
        self.is_integer = not is_text

    def append(self, row: int, value: float | str) -> None:
        if self._rows is None and row != self._first + len(self.values):
            self._rows = array("q", self.rows)
        if self._rows is not None:
            self._rows.append(row)
        self.values.append(value)
        self.is_integer = self.is_integer and isinstance(value, int)

    @property
    def rows(self) -> Sequence[int]:
        return range(self._first, self._first + len(self.values)) if self._rows is None else self._rows

    @property
    def num_bytes(self) -> int:
        return 8 * (len(self.values) + (0 if self._rows is None else len(self._rows)))

    @property
    def is_text(self) -> bool:
        return isinstance(self.values, list)


class MetricTable:
    """The rows of metrics.jsonl or system.jsonl that count.

    A killed run resumes from its last checkpoint and repeats the updates after it. Only the repetition counts. So does
    the time: `elapsed` continues where the run was resumed. `read` adds the rows that were written since the last call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._clear()

    def _clear(self) -> None:
        self._offset = self._inode = 0
        self._columns: dict[str, _Column] = {}
        self._texts: dict[str, str] = {}
        self._count = 0
        self._dropped: set[int] = set()
        self._last: dict[str, int] = {}  # policy -> its last update
        self._before = self._newest = 0.0
        self.facts: set[str] = set()
        """Names of statistics that environments report."""

    def read(self) -> bool:
        """Read what was written since the last call. Return whether there was anything. Raises FileNotFoundError."""
        with open_regular(self.path) as file:
            end, inode = file.seek(0, os.SEEK_END), os.fstat(file.fileno()).st_ino
            if inode != self._inode or end < self._offset:  # another file
                self._clear()
                self._inode = inode
            begin = self._offset
            file.seek(begin)
            while chunk := file.read(CHUNK_BYTES):
                whole = chunk.rfind(b"\n") + 1
                if not whole:
                    break  # a line that is not complete, or longer than any row
                for line in chunk[:whole].splitlines():
                    self._add(line)
                self._offset += whole
                file.seek(self._offset)
        return self._offset != begin

    def _add(self, line: bytes) -> None:
        try:
            row = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return  # a partial line, left by a killed writer
        if not isinstance(row, dict) or not isinstance(row.get("step"), (int, float)):
            return
        is_update = row.get("kind") == UPDATE
        if is_update:
            try:
                policy, number = str(row.get("policy", "")), number_of(row)
            except (KeyError, TypeError, ValueError):
                return
            if number <= self._last.get(policy, 0):
                self._drop_repeated(policy, number, row["step"])
            self._last[policy] = number
            row[".update"] = number
        elapsed = row.get("elapsed")
        if isinstance(elapsed, (int, float)):
            if is_update or "kind" not in row:
                self._before += self._newest if elapsed < self._newest - CLOCK_SECONDS else 0.0
                self._newest = elapsed
            row["elapsed"] = self._before + elapsed
        if isinstance(facts := row.get("facts"), list):
            self.facts.update(fact for fact in facts if isinstance(fact, str))
        for name, value in row.items():
            if isinstance(value, (int, float, str)):
                self._append(name, value)
        self._count += 1

    def _append(self, name: str, value: float | str) -> None:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = _Column(isinstance(value, str), self._count)
        if isinstance(value, str):
            value = self._texts.setdefault(value, value)  # one object for the same text in all rows
        if column.is_text == isinstance(value, str):
            column.append(self._count, value)

    def _drop_repeated(self, policy: str, number: int, step: float) -> None:
        """Drop the rows of a policy's updates from `number` on, and all other rows from `step` on."""
        numbers = dict(zip(*self._raw(".update"), strict=True))
        policies = dict(zip(*self._raw("policy"), strict=True))
        for row, at in zip(*self._raw("step"), strict=True):
            if row in numbers:
                repeated = policies.get(row, "") == policy and numbers[row] >= number
            else:
                repeated = at >= step
            if repeated:
                self._dropped.add(row)

    def _raw(self, name: str) -> tuple[Any, Any]:
        column = self._columns.get(name)
        return (column.rows, column.values) if column is not None else ((), ())

    def __len__(self) -> int:
        return self._count - len(self._dropped)

    @property
    def num_bytes(self) -> int:
        """The memory of the columns."""
        texts = sum(len(text) + 100 for text in self._texts)
        return texts + sum(column.num_bytes for column in self._columns.values())

    @property
    def names(self) -> list[str]:
        """The names of all columns, in the order in which they appeared."""
        return [name for name in self._columns if name not in NOT_COLUMNS and not name.startswith(".")]

    def is_text(self, name: str) -> bool:
        return self._columns[name].is_text

    def column(self, name: str) -> tuple[Array, Array]:
        """Return the numbers of the rows that have a value, and the values; both are empty for an unknown name."""
        rows, values = self._raw(name)
        at = np.arange(rows.start, rows.stop) if isinstance(rows, range) else np.array(rows, np.int64)
        found = np.array(values, object if isinstance(values, list) else np.float64)
        if self._dropped and len(at):
            kept = ~np.isin(at, np.fromiter(self._dropped, np.int64))
            at, found = at[kept], found[kept]
        return at, found

    def at(self, name: str, rows: Array, default: Any = np.nan) -> Array:
        """Return the values of a column at these rows."""
        have, values = self.column(name)
        is_text = values.dtype == object or isinstance(default, str)
        found = np.full(len(rows), default, object if is_text else np.float64)
        if len(have):
            place = np.minimum(np.searchsorted(have, rows), len(have) - 1)
            known = have[place] == rows
            found[known] = values[place[known]]
        return found

    def whole(self, name: str) -> Array:
        """Return a value for every row, with NaN or an empty text where a row has none."""
        values = self.at(name, self.column("step")[0], "" if self.is_text(name) else np.nan)
        if self.is_text(name):
            return values.astype(str)
        return values.astype(np.int64) if self._columns[name].is_integer and np.isfinite(values).all() else values

    def texts(self, **where: str) -> Iterator[dict[str, Any]]:
        """Yield the rows whose columns have these texts, with all their values."""
        (first, text), *others = where.items()
        at, values = self.column(first)
        rows = at[values == text] if len(at) else at
        for name, other in others:
            rows = rows[self.at(name, rows, "") == other]
        columns = {name: self.at(name, rows, None if self.is_text(name) else np.nan).tolist() for name in self.names}
        for index in range(len(rows)):
            found = {name: values[index] for name, values in columns.items()}
            yield {
                name: int(value) if self._columns[name].is_integer else value
                for name, value in found.items()
                if value is not None and value == value
            }


def metric_columns(path: Path) -> dict[str, Array]:
    """Return the rows that count as arrays of equal length, with NaN where a row lacks a number. Raises
    FileNotFoundError."""
    table = MetricTable(path)
    table.read()
    return {name: table.whole(name) for name in table.names}
