"""Metrics are written as complete rows that others can read; sinks follow them and never stop a run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.waiting import until

from srl.base.files import Losses
from srl.storage.metric_rows import RowFile, RowReader, last_updates
from srl.storage.metric_sinks import SinkThread, TensorboardSink, crc32c
from srl.storage.metric_table import MetricTable, metric_columns


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_each_line_is_an_object_and_nan_is_null(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "m.jsonl")
    file.append(1, {"loss": float("nan"), "best": -math.inf, "n": 3}, 10.12345)
    file.append(2, {"kind": "update", "big": 2**60}, 11.0)
    assert lines(tmp_path / "m.jsonl") == [
        {"step": 1, "time": 10.123, "loss": None, "best": None, "n": 3},
        {"step": 2, "time": 11.0, "kind": "update", "big": 2**60},
    ]
    file.close()


def test_a_resumed_run_continues_after_the_last_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    RowFile(path).append(2, {}, 0.0)
    assert [line["step"] for line in lines(path)] == [1, 2]


def update(number: int, elapsed: float, policy: str = "policy", **values: Any) -> dict[str, Any]:
    return {"kind": "update", "policy": policy, "update": number, "elapsed": elapsed, **values}


def test_updates_that_a_killed_run_repeated_count_once(tmp_path: Path) -> None:
    """The run was killed after update 4 and resumed from update 2."""
    path = tmp_path / "m.jsonl"
    file = RowFile(path)
    for number in (1, 2, 3, 4):
        file.append(10 * number, update(number, float(number), loss=number), 0.0)
        file.append(10 * number, {"kind": "evaluation", "elapsed": number + 0.5, "eval/return": number}, 0.0)
    assert last_updates(path) == {"policy": 4}
    for number in (3, 4):
        file.append(10 * number, update(number, number - 2.5, loss=-number), 0.0)
    with path.open("a") as half:
        half.write('{"step": 50, "kind": "upd')  # still being written
    table = MetricTable(path)
    table.read()
    assert [(row["step"], row["loss"], row["elapsed"]) for row in table.texts(kind="update")] == [
        (10, 1, 1.0),
        (20, 2, 2.0),
        (30, -3, 4.5),
        (40, -4, 5.5),
    ]
    assert [row["eval/return"] for row in table.texts(kind="evaluation")] == [1, 2]
    assert last_updates(path) == {"policy": 4}
    assert last_updates(tmp_path / "missing") == {}


def test_updates_of_one_policy_do_not_replace_those_of_another(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "m.jsonl")
    for step, (policy, number) in enumerate([("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2)]):
        file.append(step, {"kind": "update", "policy": policy, f"{policy}/update": number}, 0.0)
    assert len(metric_columns(tmp_path / "m.jsonl")["step"]) == 5
    assert last_updates(tmp_path / "m.jsonl") == {"a": 3, "b": 2}


def test_tensorboard_reads_what_was_written_and_torch_is_not_imported(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\nfrom srl.storage.metric_sinks import TensorboardSink\n"
        "assert not [m for m in sys.modules if m.startswith(('tensorboard', 'torch'))]\n"
        "sink = TensorboardSink(pathlib.Path(sys.argv[1]), None, {'algo.lr': 0.1, 'sinks': ['a']}, {'cpu': 'fast'})\n"
        "sink.write(10, {'loss': 0.5, 'huge': 1e300, 'nan': float('nan')}, 100.0)\n"
        "sink.write(20, {'loss': 0.25}, 101.0)\n"
        "assert 'torch' not in sys.modules and 'tensorflow' not in sys.modules\nsink.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

    [file] = tmp_path.iterdir()
    events = list(EventFileLoader(str(file)).Load())
    assert events[0].file_version == "brain.Event:2"
    values = {value.tag: value for event in events for value in event.summary.value}
    start = parse_session_start_info_plugin_data(values["_hparams_/session_start_info"].metadata.plugin_data.content)
    assert start.hparams["algo.lr"].number_value == 0.1
    assert b"| cpu | fast |" in values["system/text_summary"].tensor.string_val[0]
    written = [(e.step, e.wall_time, v.tag, v.tensor.float_val[0]) for e in events for v in e.summary.value if e.step]
    assert (10, 100.0, "loss", 0.5) in written
    assert (20, 101.0, "loss", 0.25) in written
    assert (10, 100.0, "huge", math.inf) in written


class ListSink:
    """A sink that keeps steps. It fails while `broken` and at the step `refused`, and hangs until `go` is set."""

    def __init__(self) -> None:
        self.broken = False
        self.refused = -1
        self.go = threading.Event()
        self.go.set()
        self.steps: list[int] = []
        self.num_failed = 0
        self.closed = False

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        self.go.wait(30)
        if self.broken or step == self.refused:
            self.num_failed += 1
            raise OSError(28, "No space left on device")
        self.steps.append(step)

    def close(self) -> None:
        self.closed = True


Follow = Callable[..., tuple[ListSink, SinkThread]]


@pytest.fixture
def rows(tmp_path: Path) -> RowFile:
    return RowFile(tmp_path / "m.jsonl")


@pytest.fixture
def follow(rows: RowFile) -> Iterator[Follow]:
    made: list[tuple[ListSink, SinkThread]] = []

    def start(**options: Any) -> tuple[ListSink, SinkThread]:
        sink = ListSink()
        made.append((sink, SinkThread("mine", lambda: sink, [RowReader(rows.path)], **options)))
        return made[-1]

    yield start
    for sink, thread in made:
        sink.go.set()
        thread.finish(0.0)
        thread._thread.join(30)


def test_a_sink_gets_every_row_and_is_closed(rows: RowFile, follow: Follow) -> None:
    sink, thread = follow()
    for step in range(100):
        rows.append(step, {"kind": "update", "loss": 1.0}, 0.0)
    thread.finish(30.0)
    assert thread.close() == 0
    assert sink.steps == list(range(100))
    assert sink.closed


def test_an_outage_of_a_sink_loses_no_row(rows: RowFile, follow: Follow) -> None:
    warnings: list[str] = []
    sink, thread = follow(warn=warnings.append, retry_seconds=0.01)
    sink.broken = True
    for step in range(5):
        rows.append(step, {"loss": 1.0}, 0.0)
    until(lambda: sink.num_failed >= 10)
    sink.broken = False
    thread.finish(30.0)
    assert thread.close() == 0
    assert sink.steps == list(range(5))
    assert len(warnings) == 1
    assert "mine cannot write metrics (the disk is full" in warnings[0]


def test_a_row_that_a_working_sink_refuses_is_left_out(rows: RowFile, follow: Follow) -> None:
    sink, thread = follow(warn=lambda text: None, retry_seconds=0.01)
    sink.refused = 1
    for step in range(4):
        rows.append(step, {"loss": 1.0}, 0.0)
    until(lambda: sink.steps == [0, 2, 3])
    thread.finish(30.0)
    assert thread.close() == 1
    assert sink.num_failed >= 3


def test_a_sink_that_still_fails_at_the_end_has_one_more_attempt(rows: RowFile, follow: Follow) -> None:
    sink, thread = follow(warn=lambda text: None, retry_seconds=600.0)
    sink.broken = True
    for step in range(100):
        rows.append(step, {"loss": 1.0}, 0.0)
    until(lambda: sink.num_failed >= 1)
    thread.finish(600.0)
    assert thread.close() == 100
    assert sink.num_failed <= 6


def test_a_sink_that_hangs_delays_nothing_and_its_losses_are_counted(rows: RowFile, follow: Follow) -> None:
    warnings: list[str] = []
    sink, thread = follow(warn=warnings.append)
    sink.go.clear()
    for step in range(50):
        rows.append(step, {"loss": 1.0}, 0.0)
    thread.finish(0.01)
    assert thread.close() == 50
    assert "did not accept the last metrics in time" in warnings[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "small"
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield root
    subprocess.run(["umount", str(root)], check=True)


def test_a_full_disk_leaves_complete_rows_and_writing_continues_once_there_is_space(small_disk: Path) -> None:
    losses = Losses()
    file = RowFile(small_disk / "metrics.jsonl", losses)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 40_000)
    for step in range(600):
        file.append(step, {"a_metric_with_a_long_name": 1.0}, 0.0)
    assert lines(file.path)[-1]["step"] < 599
    assert not file.complete
    (message,) = losses.drain_messages()
    assert "cannot be written: the disk is full" in message
    assert losses.totals().keys() == {"metrics.jsonl"}
    filler.unlink()
    file.close()
    assert [line["step"] for line in lines(file.path)] == list(range(600))
    assert losses.totals() == {}


def test_a_sink_that_never_wrote_closes_quietly(tmp_path: Path) -> None:
    RowFile(tmp_path / "x").close()
    TensorboardSink(tmp_path).close()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),  # this one and the next two: RFC 3720, B.4
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_checksums_are_those_of_the_standard(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@pytest.mark.parametrize("count", [4, 255, 256, 257, 5000])
def test_checksums_of_any_length_are_those_that_tensorboard_expects(count: int) -> None:
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as expected

    data = bytes((7 * index * index + 3) % 251 for index in range(count))
    assert crc32c(data) == expected(data)
