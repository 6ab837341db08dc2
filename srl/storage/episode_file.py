"""The file of episodes: every episode whose last step an update learned from, in a compact binary form.

The file consists of chunks, each with its length and checksum. A chunk describes the columns of rows, or holds the rows
of one update and the checksum of their description. A partial chunk, which a killed process may leave behind, is
skipped.
"""

from __future__ import annotations

import csv
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from srl.api.block import IDENTITY, LANE, SEED, Episodes, kind_of
from srl.base.files import BoundedFile, Losses
from srl.base.tree import Array

MAGIC = b"SRLE"
HEADER = struct.Struct("<4scxxxII")  # magic, kind, number of bytes, checksum
KEY = struct.Struct("<I")
COLUMNS, ROWS = b"C", b"R"
FIXED = (("step", "<i8"), ("update", "<i8"), ("policy", "<u2"), ("worker", "<u4"))


class Columns(msgspec.Struct):
    """Description of the rows that follow."""

    kinds: list[tuple[str, str]] = []  # name and dtype of each column
    policies: list[str] = []
    workers: list[tuple[str, str]] = []  # actor and host
    resumed: dict[str, int] = {}  # policy -> update after which earlier rows of it do not count any more

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype([(name, kind) for name, kind in self.kinds])


class EpisodeFile:
    """Writer of the file. Each update is one write; writing never raises."""

    def __init__(self, path: Path, losses: Losses | None = None) -> None:
        self._file = BoundedFile(path, losses)
        self._columns = Columns(list(FIXED))
        self._empty_row = _empty(self._columns.dtype)
        self._changed = False
        self._key = b""  # checksum of the last description

    def resume(self, updates: Mapping[str, int]) -> None:
        """Note that the run continues from these updates, by policy, and repeats later ones."""
        self._columns.resumed = dict(updates)
        self._append(b"")
        self._columns.resumed = {}
        self._changed = True

    def add(
        self, policy: str, update: int, step: int, episodes: Mapping[str, Episodes], hosts: Mapping[str, str]
    ) -> None:
        """Write the episodes of one update, by actor."""
        found = {(actor, hosts.get(actor, "")): one for actor, one in episodes.items() if one.count}
        parts = [self._rows(policy, update, step, worker, one) for worker, one in found.items()]
        if parts:
            self._append(b"".join(self._widened(part).tobytes() for part in parts))

    def _rows(self, policy: str, update: int, step: int, worker: tuple[str, str], episodes: Episodes) -> Array:
        columns = self._columns
        arrays = episodes.arrays()
        known = {name for name, _ in columns.kinds}
        new = [(name, "<i4" if name == LANE else kind_of(name).str) for name in arrays if name not in known]
        if new or policy not in columns.policies or worker not in columns.workers:
            columns.kinds += new
            columns.policies += [policy] if policy not in columns.policies else []
            columns.workers += [worker] if worker not in columns.workers else []
            self._changed = True
            self._empty_row = _empty(columns.dtype)
        rows = self._empty_row.repeat(episodes.count)
        rows["step"], rows["update"] = step, update
        rows["policy"], rows["worker"] = columns.policies.index(policy), columns.workers.index(worker)
        for name, values in arrays.items():
            rows[name] = values
        return rows

    def _widened(self, rows: Array) -> Array:
        """Return rows with the columns that other actors' episodes added."""
        if rows.dtype == self._empty_row.dtype:
            return rows
        wide = self._empty_row.repeat(len(rows))
        for name in rows.dtype.names or ():
            wide[name] = rows[name]
        return wide

    def _append(self, rows: bytes) -> None:
        text = b""
        if self._changed or self._columns.resumed:
            self._changed = False
            described = msgspec.json.encode(self._columns)
            self._key = KEY.pack(zlib.crc32(described))
            text = _chunk(COLUMNS, described)
        self._file.append(text + (_chunk(ROWS, self._key + rows) if rows else b""))

    @property
    def complete(self) -> bool:
        """Whether every episode is in the file."""
        return not self._file.failing

    def close(self) -> None:
        self._file.close()


def _empty(dtype: np.dtype[Any]) -> Array:
    """Return a row without values: NaN, or -1 for numbers that are never negative."""
    rows = np.zeros(1, dtype)
    for name in dtype.names or ():
        if dtype[name].kind == "f":
            rows[name] = np.nan
    if LANE in (dtype.names or ()):
        rows[LANE] = -1
    return rows


def _chunk(kind: bytes, payload: bytes) -> bytes:
    return HEADER.pack(MAGIC, kind, len(payload), zlib.crc32(payload)) + payload


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and content of each complete chunk."""
    at = content.find(MAGIC)
    while 0 <= at <= len(content) - HEADER.size:
        _, kind, size, checksum = HEADER.unpack_from(content, at)
        begin = at + HEADER.size
        payload = content[begin : begin + size]
        if len(payload) == size and zlib.crc32(payload) == checksum:
            yield kind, payload
            at = content.find(MAGIC, begin + size)
        else:
            at = content.find(MAGIC, at + 1)


def read_episodes(path: Path) -> dict[str, Array]:
    """Return the episodes as arrays of equal length: `step`, `update`, `policy`, `actor`, `host`, `return`, `length`,
    `lane` and one per statistic of the environment, with NaN where an episode lacks it. Episodes of updates that a
    resumed run repeated count once. Raises FileNotFoundError."""
    described: dict[bytes, Columns] = {}
    parts: dict[int, tuple[Columns, Array]] = {}
    updates: dict[str, list[tuple[int, int]]] = {}  # policy -> updates and numbers of their parts

    def drop(policy: str, after: int) -> None:
        known = updates.get(policy, [])
        while known and known[-1][0] > after:
            parts.pop(known.pop()[1])

    for number, (kind, payload) in enumerate(_chunks(path.read_bytes())):
        if kind == COLUMNS:
            columns = described[KEY.pack(zlib.crc32(payload))] = msgspec.json.decode(payload, type=Columns)
            for policy, update in columns.resumed.items():
                drop(policy, update)
        elif payload[: KEY.size] in described:  # its description was written, although the disk was full for a while
            columns = described[payload[: KEY.size]]
            rows = np.frombuffer(payload, columns.dtype, offset=KEY.size)
            policy, update = columns.policies[rows["policy"][0]], int(rows["update"][0])
            if update:  # otherwise the policy does not learn
                drop(policy, update - 1)
                updates.setdefault(policy, []).append((update, number))
            parts[number] = columns, rows
    return _arrays(list(parts.values()))


def _arrays(parts: list[tuple[Columns, Array]]) -> dict[str, Array]:
    names = dict.fromkeys(name for columns, _ in parts for name, _ in columns.kinds)
    found: dict[str, Array] = {}
    for name in [*(name for name, _ in FIXED), "return", "length", *names]:
        if name == "policy":
            found["policy"] = _joined([np.array(columns.policies)[rows["policy"]] for columns, rows in parts], str)
        elif name == "worker":
            for place, key in enumerate(("actor", "host")):
                texts = [np.array([w[place] for w in columns.workers])[rows["worker"]] for columns, rows in parts]
                found[key] = _joined(texts, str)
        elif name not in found:
            kind = np.dtype(dict(FIXED).get(name, "<i4" if name == LANE else kind_of(name)))
            missing = -1 if kind.kind == "i" else np.nan
            values = [
                rows[name] if name in (rows.dtype.names or ()) else np.full(len(rows), missing) for _, rows in parts
            ]
            found[name] = _joined(values, kind)
    return found


def _joined(values: list[Array], kind: Any) -> Array:
    return np.concatenate(values).astype(kind) if values else np.zeros(0, kind)


def summary_of(columns: Mapping[str, Array]) -> list[str]:
    """Return lines with the number of episodes of each policy and the range and mean of their statistics."""
    lines = []
    for policy in np.unique(columns["policy"]):
        own = columns["policy"] == policy
        lines.append(f"{policy}: {np.count_nonzero(own):,} episodes")
        for name in [name for name in columns if columns[name].dtype.kind == "f" and name not in IDENTITY]:
            values = columns[name][own].astype(np.float64)
            known = values[np.isfinite(values)]
            if len(known):
                lines.append(f"  {name:<12} mean {known.mean():.4g}, from {known.min():.4g} to {known.max():.4g}")
    return lines or ["no episode has ended"]


def write_episodes(columns: Mapping[str, Array], path: Path) -> None:
    """Write arrays of equal length as a .csv or .parquet file. Raises ValueError for another name, and ImportError."""
    if path.suffix in (".csv", ".parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(_texts(name, values) for name, values in columns.items()), strict=True))
    elif path.suffix == ".parquet":
        try:
            from pyarrow import parquet, table
        except ImportError as error:
            raise ImportError('Parquet files need pyarrow; pip install "srl-rl[parquet]", or write a .csv') from error
        parquet.write_table(table(dict(columns)), path)
    else:
        raise ValueError(f"{path.name} must end with .csv or .parquet")


def _texts(name: str, values: Array) -> list[Any]:
    if values.dtype.kind != "f":
        return list(values.tolist())
    texts = (f"{value:.0f}" if name == SEED else f"{value:.7g}" for value in values.tolist())
    return ["" if text == "nan" else text for text in texts]
