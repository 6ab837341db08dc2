"""Destinations for metrics. Each reads the files of metrics in a thread of its own, so that none delays the run."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from srl.api.status import MetricSink
from srl.base.clock import Clock, SystemClock
from srl.base.files import BoundedFile, Losses, explain_os_error
from srl.storage.metric_rows import RowReader

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
RETRY_SECONDS = 30.0
CLOSE_SECONDS = 20.0
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
    from tensorboard.summary.writer.record_writer import RecordWriter

    framed = BytesIO()
    RecordWriter(framed).write(event.SerializeToString())
    return framed.getvalue()


class SinkThread:
    """A thread that feeds a sink with the rows of growing files. A row that fails is tried again, then left out.

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
        """Pass on the rows that are in the file."""
        found = True
        while found and self._clock.now() < self._deadline:
            found = False
            for row, end in reader.read():
                found = True
                for attempt in (1, 2):
                    if self._write(row):
                        break
                    if attempt == 1:
                        self._closing.wait(self._retry_seconds)
                    else:
                        self._num_skipped += 1
                reader.offset = end
                if self._clock.now() >= self._deadline:
                    return
        flush = getattr(self._sink, "flush", None)
        if flush is not None:
            flush()

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
