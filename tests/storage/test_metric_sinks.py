"""Metrics are written as complete records that others can read, and never stop a run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from support.manual_clock import ManualClock

from srl.storage.metric_sinks import JsonLinesSink, MetricSinks, TensorboardSink
from srl.storage.run_directory import create
from srl.storage.service_sinks import sinks_of


def lines(path: Path) -> list[dict[str, float]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def test_each_line_is_an_object_and_nan_is_null(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "m.jsonl")
    sink.write(1, {"loss": float("nan"), "best": -math.inf, "n": 3}, 10.12345)
    sink.write(2, {"loss": np.float64(0.5), "big": 2**60, "step": 9}, 11.0)
    assert lines(tmp_path / "m.jsonl") == [
        {"step": 1, "time": 10.123, "loss": None, "best": None, "n": 3},
        {"step": 2, "time": 11.0, "loss": 0.5, "big": 2**60},
    ]
    sink.close()


def test_a_resumed_run_continues_after_the_last_complete_line(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "lo')
    sink = JsonLinesSink(path)
    sink.write(2, {}, 0.0)
    sink.close()
    assert [line["step"] for line in lines(path)] == [1, 2]


def test_tensorboard_reads_what_was_written_and_torch_is_not_imported(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib\nfrom srl.storage.metric_sinks import TensorboardSink\n"
        "assert not [m for m in sys.modules if m.startswith(('tensorboard', 'torch'))]\n"
        "sink = TensorboardSink(pathlib.Path(sys.argv[1]))\n"
        "sink.write(10, {'loss': 0.5, 'huge': 1e300, 'nan': float('nan')}, 100.0)\n"
        "sink.write(20, {'loss': 0.25}, 101.0)\n"
        "assert 'torch' not in sys.modules and 'tensorflow' not in sys.modules\nsink.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    [file] = tmp_path.iterdir()
    events = list(EventFileLoader(str(file)).Load())
    assert events[0].file_version == "brain.Event:2"
    written = [(e.step, e.wall_time, v.tag, v.tensor.float_val[0]) for e in events for v in e.summary.value]
    assert (10, 100.0, "loss", 0.5) in written
    assert (20, 101.0, "loss", 0.25) in written
    assert (10, 100.0, "huge", math.inf) in written


class BrokenSink:
    name, hint = "broken", ""

    def __init__(self) -> None:
        self.broken = True
        self.steps: list[int] = []
        self.tried: list[int] = []

    def write(self, step: int, metrics: Mapping[str, float], wall: float) -> None:
        self.tried.append(step)
        if self.broken:
            raise OSError(28, "No space left on device")
        self.steps.append(step)

    def close(self) -> None:
        if self.broken:
            raise OSError(28, "No space left on device")


def test_a_failing_sink_causes_one_warning_and_is_retried() -> None:
    clock, broken, sound, warnings = ManualClock(), BrokenSink(), BrokenSink(), list[str]()
    sound.broken = False
    sinks = MetricSinks([broken, sound], retry_seconds=30, clock=clock, warn=warnings.append)
    sinks.write(1, {})
    clock.advance(10)
    sinks.write(2, {})
    assert broken.tried == [1]
    clock.advance(20)
    sinks.write(3, {})
    assert broken.tried == [1, 3]
    broken.broken = False
    clock.advance(30)
    sinks.write(4, {})
    sinks.write(5, {})
    assert broken.steps == [4, 5]
    assert sound.steps == [1, 2, 3, 4, 5]
    assert len(warnings) == 1
    assert "broken cannot write (the disk is full" in warnings[0]
    broken.broken = True
    sinks.close()  # does not raise


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "small"
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(root)], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    yield root
    subprocess.run(["umount", str(root)], check=True)


def test_a_full_disk_leaves_complete_records_and_writing_continues_once_there_is_space(small_disk: Path) -> None:
    run = create(small_disk, "run")
    warnings = list[str]()
    sinks = sinks_of(run, retry_seconds=0, warn=warnings.append)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * 40_000)
    for step in range(500):
        sinks.write(step, {"a_metric_with_a_long_name": 1.0})
    assert len(warnings) in (1, 2)
    complete = lines(run.metrics)
    filler.unlink()
    sinks.write(1000, {"loss": 1.0})
    sinks.close()
    assert lines(run.metrics)[:-1] == complete
    assert lines(run.metrics)[-1]["step"] == 1000
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    [file] = run.tensorboard.iterdir()
    assert [event.step for event in EventFileLoader(str(file)).Load()][-1] == 1000


def test_a_sink_that_never_wrote_closes_quietly(tmp_path: Path) -> None:
    JsonLinesSink(tmp_path / "x").close()
    TensorboardSink(tmp_path).close()
    assert not list(tmp_path.iterdir())
