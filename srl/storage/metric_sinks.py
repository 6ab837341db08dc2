"""Destinations for metrics: JSON lines and TensorBoard files. A full disk loses metrics but never stops the run."""

from __future__ import annotations

import json
import logging
import math
import mmap
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

from srl.api.status import MetricSink
from srl.base.clock import Clock, SystemClock
from srl.base.files import explain_os_error

logger = logging.getLogger(__name__)


class NamedSink(MetricSink, Protocol):
    """A sink with a name and a hint, both shown in a warning if it fails."""

    name: str
    hint: str


class JsonLinesSink:
    """One JSON object per line: `{"step": 4096, "time": 1700000000.5, "return": 21.3, ...}`; NaN and inf are null."""

    def __init__(self, path: Path) -> None:
        self.name, self.hint = path.name, ""
        self._file = _Appender(path)

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        record: dict[str, Any] = {"step": int(step), "time": round(wall, 3)}
        record.update((key, _plain(value)) for key, value in metrics.items() if key not in record)
        self._file.append(json.dumps(record, allow_nan=False).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


class TensorboardSink:
    """A TensorBoard event file of scalars. Imports tensorboard at the first write, and never torch."""

    def __init__(self, directory: Path) -> None:
        self.name, self.hint = "tensorboard", ""
        self._directory = directory
        self._file: _Appender | None = None

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        framed = BytesIO()
        records = RecordWriter(framed)
        file = self._file
        if file is None:
            host = socket.gethostname().replace("/", "-")
            file = _Appender(self._directory / f"events.out.tfevents.{int(wall)}.{host}.{os.getpid()}")
            records.write(Event(wall_time=wall, file_version="brain.Event:2").SerializeToString())
        values = [Summary.Value(tag=key, simple_value=_float32(value)) for key, value in sorted(metrics.items())]
        event = Event(wall_time=wall, step=int(step), summary=Summary(value=values))
        records.write(event.SerializeToString())
        file.append(framed.getvalue())
        self._file = file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class MetricSinks:
    """A group of sinks. A failing sink causes one warning and is retried every `retry_seconds`."""

    def __init__(
        self,
        sinks: Sequence[NamedSink],
        retry_seconds: float = 30.0,
        clock: Clock | None = None,
        warn: Callable[[str], object] = logger.warning,
    ) -> None:
        self._sinks = list(sinks)
        self._retry_seconds = retry_seconds
        self._clock = clock or SystemClock()
        self._warn = warn
        self._retry_at = [-math.inf] * len(self._sinks)
        self._warned = [False] * len(self._sinks)

    def write(self, step: int, metrics: Mapping[str, float], wall: float | None = None) -> None:
        """Write to all sinks. Never raises."""
        wall = self._clock.wall() if wall is None else wall
        for index, sink in enumerate(self._sinks):
            if self._clock.now() < self._retry_at[index]:
                continue
            try:
                sink.write(step, metrics, wall)
                self._retry_at[index] = -math.inf
            except Exception as error:  # an error in a sink must not stop the run
                self._failed(index, error)

    def close(self) -> None:
        for index, sink in enumerate(self._sinks):
            try:
                sink.close()
            except Exception as error:
                self._failed(index, error)

    def _failed(self, index: int, error: Exception) -> None:
        self._retry_at[index] = self._clock.now() + self._retry_seconds
        if not self._warned[index]:
            self._warned[index] = True
            reason = explain_os_error(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            sink = self._sinks[index]
            hint = f"{sink.hint}; " if sink.hint else ""
            self._warn(
                f"metrics are being lost: {sink.name} cannot write ({reason}); {hint}the run "
                f"continues, next try in {self._retry_seconds:.0f} s"
            )


class _Appender:
    """An append-only file of whole records; a partly written record is removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def append(self, record: bytes) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o644)
            if record.endswith(b"\n"):
                _remove_partial_line(self._descriptor)
        end = os.fstat(self._descriptor).st_size
        try:
            written = 0
            while written < len(record):
                written += os.write(self._descriptor, record[written:])
        except OSError:
            os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _remove_partial_line(descriptor: int) -> None:
    """Remove the partial last line left by a killed writer."""
    if size := os.fstat(descriptor).st_size:
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
        os.ftruncate(descriptor, end)


def _plain(value: Any) -> Any:
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    number = float(value)
    return number if math.isfinite(number) else None


def _float32(value: float) -> float:
    """Replace values outside the range of float32, which protobuf rejects, by infinity; TensorBoard draws a gap."""
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) > 3.4028234e38 else number
