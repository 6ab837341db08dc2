"""A table of the gauges of all workers on all hosts, as last reported by their agents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from srl.api.scheduler import MAX_WORKERS, Usage
from srl.base.meter import PHASE_START, WORDS, Meter
from srl.base.tree import Array
from srl.schedulers.hosts.agent_connections import Host
from srl.schedulers.hosts.messages import USAGE

PID = USAGE.index("pid")


class RemoteMeters:
    """Table with one row per worker (group and index). Its arrays are large, but only rows in use take up memory."""

    def __init__(self) -> None:
        self._words: Array = np.zeros((MAX_WORKERS, WORDS), np.int64)
        self._usage: Array = np.zeros((MAX_WORKERS, len(USAGE)), np.float64)
        self._bytes = self._words.data.cast("B")
        self._rows: dict[tuple[str, int], int] = {}

    def row(self, key: tuple[str, int]) -> int:
        """Return the row for a worker's group and index, cleared for its next incarnation."""
        row = self._rows.setdefault(key, len(self._rows))
        self._words[row] = 0
        self.clear_usage(row)
        return row

    def clear_usage(self, row: int) -> None:
        """Clear the usage of a process that ended; its counters stay readable."""
        self._usage[row] = 0.0

    def write_heartbeat(self, host: Host, rows: Sequence[int] | None, arrays: Sequence[Array]) -> None:
        """Write the gauges and usage of a host's workers. `rows` contains the row of each worker in the heartbeat, or
        -1 for an unknown one; None means the same rows as in the last heartbeat."""
        if len(arrays) != 2:
            return
        if rows is not None:
            host.rows = np.array(rows, np.int64)
        words, usage = arrays
        if host.rows is None or words.shape != (len(host.rows), WORDS) or usage.shape != (len(host.rows), len(USAGE)):
            return
        known = host.rows >= 0
        self._write(host.rows[known], words[known], host)
        self._usage[host.rows[known]] = usage[known]

    def write_last(self, host: Host, row: int, arrays: Sequence[Array]) -> None:
        """Write the gauges that a worker had when it died."""
        if row >= 0 and len(arrays) == 1 and arrays[0].shape == (1, WORDS):
            self._write(np.array([row]), arrays[0], host)

    def _write(self, rows: Array, words: Array, host: Host) -> None:
        self._words[rows] = words
        self._words[rows, PHASE_START] += host.clock_offset_ns

    def meter(self, row: int) -> Meter:
        begin = row * WORDS * 8
        return Meter(self._bytes[begin : begin + WORDS * 8].cast("q"))

    def pid(self, row: int) -> int:
        return int(self._usage[row, PID])

    def usage(self, row: int, host: str) -> Usage:
        _, cpu_percent, rss_mb, stopped = self._usage[row].tolist()
        return Usage(host, cpu_percent, rss_mb, bool(stopped))
