"""The gauges of the workers of all hosts, as their agents told them last: one array, however many there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.scheduler import MAX_WORKERS, Usage
from srl.base.meter import PHASE_START, WORDS, Meter
from srl.base.tree import Array
from srl.schedulers.hosts.fleet import Host
from srl.schedulers.hosts.messages import USAGE

PID, CPU_PERCENT, RSS_MB, STOPPED = range(4)


class FleetBoard:
    """A place in the graph keeps its row; pages are taken from the kernel as rows come into use."""

    def __init__(self) -> None:
        self._words: Array = np.zeros((MAX_WORKERS, WORDS), np.int64)
        self._usage: Array = np.zeros((MAX_WORKERS, 4), np.float64)
        self._bytes = self._words.data.cast("B")
        self._rows: dict[tuple[str, int], int] = {}

    def row(self, key: tuple[str, int]) -> int:
        """For a new holder of this place."""
        row = self._rows.setdefault(key, len(self._rows))
        self._words[row] = 0
        self.left(row)
        return row

    def left(self, row: int) -> None:
        """Its process is gone; what it counted stays to be read."""
        self._usage[row] = 0.0

    def write(self, rows: Array, words: Array, ahead_ns: int, usage: Array | None = None) -> None:
        """`words` [rows, WORDS] of a host whose clock is `ahead_ns` behind ours, always by the same."""
        self._words[rows] = words
        self._words[rows, PHASE_START] += ahead_ns
        if usage is not None:
            self._usage[rows] = usage

    def hear(self, host: Host, rows: Sequence[int] | None, arrays: Sequence[Array]) -> None:
        """The beat of a host. `rows` are those of its workers as it listed them, -1 for who is none of its own; None:
        as it listed them the last time."""
        if len(arrays) != 2:
            return
        if rows is not None:
            host.roster = np.array(rows, np.int64)
        roster = host.roster
        if roster is None or arrays[0].shape != (len(roster), WORDS) or arrays[1].shape != (len(roster), len(USAGE)):
            return
        known = roster >= 0
        self.write(roster[known], arrays[0][known], host.ahead_ns, arrays[1][known])

    def hear_last(self, host: Host, row: int, arrays: Sequence[Array]) -> None:
        """What the gauges of a worker showed when it died."""
        if row >= 0 and len(arrays) == 1 and arrays[0].shape == (1, WORDS):
            self.write(np.array([row]), arrays[0], host.ahead_ns)

    def meter(self, row: int) -> Meter:
        begin = row * WORDS * 8
        return Meter(self._bytes[begin : begin + WORDS * 8].cast("q"))

    def pid(self, row: int) -> int:
        return int(self._usage[row, PID])

    def usage(self, row: int, host: str) -> Usage:
        _, cpu_percent, rss_mb, stopped = self._usage[row].tolist()
        return Usage(host, cpu_percent, rss_mb, bool(stopped))
