"""The recorder of a trainer's batches: bounded in size, and never in the way of training."""

import contextlib
import errno
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.counting import CountingConfig
from support.waiting import wait_for

from srl.api.spaces import Box, Discrete
from srl.api.streams import Batch
from srl.api.trainer import Trajectory
from srl.api.worker import RunBroken
from srl.datasets import stream_recorder
from srl.datasets.recorded_streams import RecordedStream, newest
from srl.datasets.stream_recorder import StreamRecorder, StreamRecording
from srl.datasets.stream_segments import SegmentFile, StreamError, read, read_head, segment_files, write

SPACES = Box((3,)), Discrete(2)
LANES = 64


def batch_of(update: int, lanes: int = LANES) -> Batch:
    rows = (2, lanes)
    data = Trajectory(
        observation=np.full((*rows, 3), update, np.float32),
        decision={"action": np.zeros(rows, np.int64), "value": np.zeros(rows, np.float32)},
        reward=np.zeros(rows, np.float32),
        terminated=np.zeros(rows, bool),
        truncated=np.zeros(rows, bool),
        acting=np.ones(rows, bool),
        first=np.zeros(rows, bool),
        version=np.zeros(rows, np.int32),
    )
    return Batch(update, data, np.full(lanes, update, np.int64), ("actors/0.0:0",))


class Recording:
    """A recorder and the trainer whose updates it records."""

    def __init__(self, folder: Path, max_mb: int = 1, threads: bool = False, rank: int = 0) -> None:
        folder.mkdir(exist_ok=True)
        self.config = CountingConfig(())
        self.trainer = self.config.build_trainer(*SPACES, seed=0)
        self.folder = folder / "policy" / str(rank)
        self.recorder = StreamRecorder(
            StreamRecording(str(folder / "policy"), max_mb), "policy", rank, rank + 1, 0, threads
        )
        self.update = 0
        self.messages: list[str] = []

    def make(self, count: int = 1, lanes: int = LANES) -> None:
        for _ in range(count):
            self.update += 1
            batch = batch_of(self.update, lanes)
            self.recorder.before(self.update, self.config, batch.data, 0.5, batch, self.trainer)
            batch.data.observation[...] = np.nan  # memory that is used again
            self.trainer.step(batch.data, 0.5)
            self.messages += self.recorder.after(self.trainer.parameters())

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir())


def test_batches_are_recorded_as_they_were_before_the_update(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_recorder, "WRITE_SECONDS", 1e9)
    recording = Recording(tmp_path / "streams")
    recording.make(3)
    recording.recorder.close()
    (file,) = segment_files(recording.folder)
    segment = read(file)
    assert (file.first, file.last) == (1, 3)
    for update in (1, 2, 3):
        arrays = segment.arrays[update]
        assert np.unique(arrays["observation"]).tolist() == [update]
        assert np.unique(arrays["lags"]).tolist() == [update]
        assert arrays["decision/action"].shape == (2, LANES)
    assert [one.progress for one in segment.head.updates] == [0.5] * 3
    assert segment.head.updates[0].samples == ["actors/0.0:0"]


def test_the_oldest_segments_are_removed_when_the_record_is_full(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "streams", max_mb=1)
    recording.make(12, lanes=4000)  # 300 kB each
    recording.recorder.close()
    files = segment_files(recording.folder)
    assert recording.nbytes <= 1_000_000
    assert files[0].first > 1
    assert files[-1].last == 12
    stream = RecordedStream(recording.folder.parent)
    assert stream.spans() == [(files[0].first, 12)]
    assert any(stream.has_state(update) for update in stream.updates)


def test_a_full_disk_does_not_stop_training_and_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(tmp_path / "streams")

    def fail(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(stream_recorder, "HELD_BYTES", 20_000)
    monkeypatch.setattr(stream_recorder, "WRITE_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(stream_recorder, "write", fail)
        recording.make(20)
    recording.make(2)
    messages = [*recording.messages, *recording.recorder.close()]
    assert "streams/policy/0 cannot be written: the disk is full" in messages[0]
    assert "updates from 1 on are missing" in messages[1]
    assert "can be written again" in messages[2]
    stream = RecordedStream(recording.folder.parent)
    ((first, last),) = stream.spans()
    assert (last, stream.has_state(first)) == (22, True)  # what is left can be replayed
    assert f"{first - 1} updates could not be recorded" in messages[-1]


def test_training_does_not_wait_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    allowed = threading.Event()

    def slow(*arguments: Any) -> Any:
        assert allowed.wait(60.0)
        return write(*arguments)

    monkeypatch.setattr(stream_recorder, "write", slow)
    monkeypatch.setattr(stream_recorder, "WRITE_SECONDS", 0.01)
    recording = Recording(tmp_path / "streams", threads=True)
    recording.make(5)  # would hang if it waited
    assert not segment_files(recording.folder)
    allowed.set()
    recording.recorder.close()
    assert segment_files(recording.folder)[-1].last == 5


def test_the_thread_writes_while_the_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_recorder, "WRITE_SECONDS", 0.01)
    recording = Recording(tmp_path / "streams", threads=True)
    recording.make()
    wait_for(lambda: segment_files(recording.folder), "a segment")
    recording.recorder.close()


def test_the_update_in_which_a_trainer_failed_is_recorded_without_a_result(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "streams")
    recording.make(2)
    batch = batch_of(3)
    recording.recorder.before(3, recording.config, batch.data, 0.5, batch, recording.trainer)
    recording.recorder.fail()
    stream = RecordedStream(recording.folder.parent)
    assert (stream.updates, stream.digest(3)) == ([1, 2, 3], "")
    assert stream.digest(2)


def test_only_rank_0_records_states(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "streams", rank=1)
    recording.make(2)
    recording.recorder.close()
    assert not read(segment_files(recording.folder)[0]).state


def test_a_host_without_the_run_directory_is_refused(tmp_path: Path) -> None:
    recording = StreamRecording(str(tmp_path / "missing" / "policy"), 1)
    with pytest.raises(RunBroken, match="--record-streams needs the run directory on the hosts of trainers"):
        StreamRecorder(recording, "policy", 0, 1, 0, threads=False)


def file(writer: int, number: int, first: int, last: int) -> SegmentFile:
    return SegmentFile(Path(f"{writer}-{number}"), writer, number, first, last, "")


def test_updates_of_a_later_writer_replace_those_of_an_earlier_one() -> None:
    old, other, new = file(1, 1, 1, 4), file(1, 2, 5, 9), file(2, 1, 4, 6)
    assert newest([new, other, old]) == {1: old, 2: old, 3: old, 4: new, 5: new, 6: new}


def test_files_with_other_names_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".77.0001-00000001-1-2-00000000.safetensors").write_bytes(b"partial")
    assert segment_files(tmp_path) == []
    with pytest.raises(StreamError, match="no recorded updates"):
        RecordedStream(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, b"\x10" + b"\0" * 7 + b'{"a": 1}        ', b"\x02" + b"\0" * 7 + b"{}"]
)
def test_files_that_are_no_segments_are_refused(tmp_path: Path, content: bytes) -> None:
    name = f"0001-00000001-1-2-{zlib.crc32(content):08x}.safetensors"
    (tmp_path / name).write_bytes(content)
    with pytest.raises(StreamError, match="damaged"):
        read(segment_files(tmp_path)[0])


def test_a_folder_that_is_removed_during_the_run_is_made_again_with_a_message(tmp_path: Path) -> None:
    import shutil

    recording = Recording(tmp_path / "streams")
    recording.make()
    recording.recorder.close()
    shutil.rmtree(tmp_path / "streams")
    recording.make()
    assert any("cannot be written" in text for text in [*recording.messages, *recording.recorder.close()])


def test_segments_with_any_changed_byte_are_refused_or_read_as_arrays(tmp_path: Path) -> None:
    """Also if whoever changed them knows the CRC."""
    recording = Recording(tmp_path / "streams")
    recording.make(2, lanes=2)
    recording.recorder.close()
    (file, *_) = segment_files(recording.folder)
    content, random = file.path.read_bytes(), np.random.default_rng(0)
    for trial in range(300):
        changed = bytearray(content)
        for _ in range(1 + trial % 3):
            changed[random.integers(min(len(content), 2000) if trial % 2 else len(content))] = random.integers(256)
        folder = tmp_path / "changed"
        folder.mkdir(exist_ok=True)
        path = folder / f"0001-00000001-{file.first}-{file.last}-{zlib.crc32(changed):08x}.safetensors"
        path.write_bytes(changed)
        (found,) = segment_files(folder)
        with contextlib.suppress(StreamError):
            assert all(isinstance(array, np.ndarray) for one in read(found).arrays.values() for array in one.values())
        path.unlink()


def test_a_pipe_in_the_place_of_a_segment_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0001-00000001-1-2-00000000.safetensors")
    (found,) = segment_files(tmp_path)
    for reader in (read, read_head):
        with pytest.raises(StreamError, match="cannot be read: it is not a regular file"):
            reader(found)
