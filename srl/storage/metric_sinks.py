"""Destinations for metrics. Each reads the files of metrics in a thread of its own, so that none delays the run."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from srl.api.status import MetricSink
from srl.base.clock import Clock, SystemClock
from srl.base.files import BoundedFile, Losses, explain_os_error
from srl.base.tree import Array
from srl.storage.metric_rows import RowReader

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RETRY_SECONDS = 30.0
CLOSE_SECONDS = 20.0
LAST_RETRY_SECONDS = 1.0
CHUNK_BYTES = 256
NOT_METRICS = ("step", "time")  # the other columns that are no metrics are not numbers


class TensorboardSink:
    """A TensorBoard event file of scalars, with the run's options as its hyper-parameters. Never imports torch."""

    def __init__(
        self,
        directory: Path,
        losses: Losses | None = None,
        options: Mapping[str, Any] | None = None,
        system: Mapping[str, Any] | None = None,
    ) -> None:
        self._directory = directory
        self._losses = losses
        self._options = options or {}
        self._system = system or {}
        self._file: BoundedFile | None = None

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        if self._file is None:
            host = socket.gethostname().replace("/", "-")
            path = self._directory / f"events.out.tfevents.{int(wall)}.{host}.{os.getpid()}"
            self._file = BoundedFile(path, self._losses, name="tensorboard")
            self._file.hold(_framed(Event(wall_time=wall, file_version="brain.Event:2")))
            for summary in self._descriptions():
                self._file.hold(_framed(Event(wall_time=wall, summary=summary)))
        values = [Summary.Value(tag=key, simple_value=_float32(value)) for key, value in sorted(metrics.items())]
        self._file.hold(_framed(Event(wall_time=wall, step=int(step), summary=Summary(value=values))))

    def _descriptions(self) -> list[Any]:
        """Return summaries of the options, for the tabs HPARAMS and TEXT, and of the system."""
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.text.metadata import create_summary_metadata

        if not self._options:
            return []
        plain = {
            name: v if isinstance(v, (bool, int, float, str)) else json.dumps(v) for name, v in self._options.items()
        }
        found = [hparams_pb(plain, trial_id=self._directory.parent.name)]
        for tag, content in (("options", self._options), ("system", self._system)):
            table = "\n".join(f"| {name} | {value} |" for name, value in content.items())
            tensor = TensorProto(dtype=DT_STRING, string_val=[f"| | |\n|---|---|\n{table}".encode()])
            metadata = create_summary_metadata(tag, "")
            found.append(Summary(value=[Summary.Value(tag=f"{tag}/text_summary", tensor=tensor, metadata=metadata)]))
        return found

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.flush(now=True)


def _framed(event: Any) -> bytes:
    """Return an event as a record of TensorBoard's files: its length and content, each with a masked checksum."""
    content: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    return length + _masked(crc32c(length)) + content + _masked(crc32c(content))


def _masked(checksum: int) -> bytes:
    rotated = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


@cache
def _crc32c_tables() -> Array:
    """Return the remainders of each byte followed by 255, 254, ..., 0 zero bytes [256 * 256]."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    tables = [table]
    for _ in range(CHUNK_BYTES - 1):
        tables.append((tables[-1] >> 8) ^ table[tables[-1] & 0xFF])
    return np.concatenate(tables[::-1])


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of at least 4 bytes. TensorBoard's own loops over bytes in Python, which takes
    five times as long for an event."""
    tables, offsets = _crc32c_tables(), np.arange(0, 256 * CHUNK_BYTES, 256)
    padded = np.zeros(-(-len(data) // CHUNK_BYTES) * CHUNK_BYTES, np.uint8)  # zeros in front change nothing
    begin = len(padded) - len(data)
    padded[begin:] = np.frombuffer(data, np.uint8)
    padded[begin : begin + 4] ^= 0xFF
    state = np.uint32(0)
    for chunk in padded.reshape(-1, CHUNK_BYTES):
        chunk[:4].view("<u4")[0] ^= state
        state = np.bitwise_xor.reduce(tables.take(offsets + chunk))
    return int(state) ^ 0xFFFFFFFF


class SinkThread:
    """A thread that feeds a sink with the rows of growing files. A row that fails is tried again, and left out if the
    sink accepts the next one.

    The thread makes the sink, so that a service that does not respond delays nothing. While a sink fails, rows wait in
    their files, not in memory.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], MetricSink],
        readers: Sequence[RowReader],
        warn: Callable[[str], object] = logger.warning,
        hint: str = "",
        clock: Clock | None = None,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self.name = name
        self._make = make
        self._readers = readers
        self._warn, self._hint = warn, hint
        self._retry_seconds = retry_seconds
        self._clock = clock or SystemClock()
        self._sink: MetricSink | None = None
        self._warned = False
        self._num_skipped = 0
        self._last_chance_used = False
        self._closing = threading.Event()
        self._deadline = math.inf
        self._thread = threading.Thread(target=self._work, name=f"metrics to {name}", daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Give the sink `seconds` for the rows that it lacks."""
        self._deadline = self._clock.now() + seconds
        self._closing.set()

    def close(self) -> int:
        """Wait until the sink has all rows or its time is over. Return the number of rows that it never got."""
        self._thread.join(max(0.0, self._deadline - self._clock.now()))
        if self._thread.is_alive():
            self._fail(TimeoutError("it did not accept the last metrics in time"))
        return self._num_skipped + sum(reader.num_unread() for reader in self._readers)

    def _work(self) -> None:
        closing = False
        while not closing:
            closing = self._closing.is_set()
            for reader in self._readers:
                self._forward(reader)
            if not closing:
                self._closing.wait(POLL_SECONDS)
        try:
            if self._sink is not None:
                self._sink.close()
        except Exception as error:
            self._fail(error)

    def _forward(self, reader: RowReader) -> None:
        """Pass on the rows that are in the file. If a row fails, the next one shows whether the sink or the row is at
        fault: while both fail, nothing is left out."""
        found = True
        while found:
            found = False
            waiting: list[
                tuple[Mapping[str, Any], int]
            ] = []  # rows that were not accepted, two at most, and their ends
            for item in reader.read():
                waiting.append(item)
                attempts = 0
                while waiting:
                    if self._clock.now() >= self._deadline:
                        return
                    accepted = next((i for i, (row, _) in enumerate(waiting) if self._write(row)), None)
                    if accepted is not None:
                        found = True
                        self._num_skipped += accepted
                        reader.offset = waiting[accepted][1]
                        del waiting[: accepted + 1]
                        continue
                    attempts += 1
                    if attempts == 2 and len(waiting) == 1:
                        break
                    if not self._pause():
                        return
        flush = getattr(self._sink, "flush", None)
        if flush is not None:
            flush()

    def _pause(self) -> bool:
        """Wait before another attempt. When the run has ended, there is only one, so that its command does not wait."""
        if self._closing.wait(self._retry_seconds):
            if self._last_chance_used:
                return False
            self._last_chance_used = True
            threading.Event().wait(min(LAST_RETRY_SECONDS, self._retry_seconds))
        return True

    def _write(self, row: Mapping[str, Any]) -> bool:
        metrics = {name: value for name, value in row.items() if name not in NOT_METRICS and _is_number(value)}
        if not metrics:
            return True
        try:
            if self._sink is None:
                self._sink = self._make()
            self._sink.write(int(row["step"]), metrics, float(row.get("time", 0.0)))
        except Exception as error:  # an error in a sink must not stop the run
            self._fail(error)
            return False
        return True

    def _fail(self, error: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        reason = explain_os_error(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        hint = f"{self._hint}; " if self._hint else ""
        self._warn(f"{self.name} cannot write metrics ({reason}); {hint}the run and its own files are not affected")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _float32(value: float) -> float:
    """Replace values outside the range of float32, which protobuf rejects, by infinity; TensorBoard draws a gap."""
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) > 3.4028234e38 else number
