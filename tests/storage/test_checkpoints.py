"""Checkpoints are complete or absent, and a damaged one is never used."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.base.tree import Array
from srl.storage.checkpoints import (
    CheckpointError,
    DamagedCheckpoint,
    Retention,
    best_of,
    checkpoints,
    copy_as_newest,
    last_good,
    latest,
    read,
    read_workers,
    set_aside,
    step_of,
    write,
)

ARRAYS: dict[str, Array] = {
    "policy/weight": np.arange(12, dtype=np.float32).reshape(3, 4).T,  # not contiguous
    "scalar": np.array(3, np.int64),
    "flags": np.array([True, False]),
    "nothing": np.zeros((0, 4), np.float64),
}


def test_arrays_and_facts_round_trip(tmp_path: Path) -> None:
    path = write(tmp_path / "checkpoints", 128, ARRAYS, {"version": 7, "loss": float("inf")})
    assert path.name == "0001-step-128"
    assert step_of(path) == 128
    arrays, metadata = read(path)
    assert metadata == {"version": 7, "loss": float("inf")}
    assert arrays.keys() == ARRAYS.keys()
    for key, array in ARRAYS.items():
        assert arrays[key].dtype == array.dtype
        np.testing.assert_array_equal(arrays[key], array)
        assert arrays[key].shape == array.shape
        assert arrays[key].flags.writeable


def test_the_last_checkpoints_are_kept_and_the_newest_is_the_last_written(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40, 15):
        write(tmp_path, step, ARRAYS, {})
    assert [step_of(path) for path in checkpoints(tmp_path)] == [30, 40, 15]
    assert latest(tmp_path) == last_good(tmp_path) == tmp_path / "0005-step-15"
    write(tmp_path, 15, ARRAYS, {}, retention=Retention(1))
    assert [path.name for path in tmp_path.iterdir()] == ["0006-step-15"]
    assert latest(tmp_path / "elsewhere") is None


def test_the_best_and_one_per_number_of_steps_are_kept_too(tmp_path: Path) -> None:
    for step, score in ((10, 1.0), (20, 9.0), (35, 2.0), (48, float("nan")), (52, 3.0), (70, None), (90, 4.0)):
        write(tmp_path, step, {}, {"score": score}, Retention(last=2, every=25))
    assert [step_of(path) for path in checkpoints(tmp_path)] == [20, 35, 52, 70, 90]
    assert best_of(checkpoints(tmp_path)) == tmp_path / "0002-step-20"
    write(tmp_path, 95, {}, {"score": 9.0}, Retention(last=1))
    assert [step_of(path) for path in checkpoints(tmp_path)] == [95]  # of equal ones the newest is the best
    assert best_of(checkpoints(tmp_path / "elsewhere")) is None


@pytest.mark.parametrize(("options", "text"), [({"last": 0}, "keep_last=0"), ({"every": -1}, "keep_every=-1")])
def test_invalid_retention_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Retention(**options)


def test_the_state_of_workers_is_stored_in_a_separate_file(tmp_path: Path) -> None:
    path = write(tmp_path, 1, ARRAYS, {}, workers={"actors/0/block": np.ones(3, np.float32)})
    assert read(path)[0].keys() == ARRAYS.keys()
    workers = read_workers(path)
    assert workers is not None
    np.testing.assert_array_equal(workers["actors/0/block"], np.ones(3, np.float32))
    assert read_workers(write(tmp_path, 2, ARRAYS, {})) is None
    content = bytearray((path / "workers.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "workers.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"workers.safetensors is corrupt"):
        read_workers(path)


@pytest.mark.parametrize("name", ["arrays.safetensors", "facts.json", "workers.safetensors", "manifest.json"])
def test_a_flipped_bit_is_detected_and_the_last_good_checkpoint_suggested(tmp_path: Path, name: str) -> None:
    good = write(tmp_path, 1, ARRAYS, {"a": 1})
    path = write(tmp_path, 2, ARRAYS, {"a": 1}, workers=ARRAYS)
    content = (path / name).read_bytes()
    for position in range(0, len(content), max(1, len(content) // 150)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << (position % 8)
        (path / name).write_bytes(damaged)
        with pytest.raises(
            CheckpointError, match=f"{re.escape(str(path))} .*the last good one is {re.escape(str(good))}"
        ):
            read(path)
        assert last_good(tmp_path) == good
    (path / name).write_bytes(content)
    read(path)


@pytest.mark.parametrize("name", ["arrays.safetensors", "facts.json", "manifest.json"])
def test_a_truncated_or_missing_file_is_detected_and_named(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, 1, ARRAYS, {"a": 1})
    size = (path / name).stat().st_size
    for remaining in (size - 1, size // 2, 0):
        os.truncate(path / name, remaining)
        with pytest.raises(CheckpointError, match=f"{name} .*there is no good one"):
            read(path)
    (path / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        read(path)


def test_other_files_are_not_taken_for_checkpoints(tmp_path: Path) -> None:
    good = write(tmp_path, 1, ARRAYS, {})
    foreign = tmp_path / "0009-step-9"
    foreign.mkdir()
    for content in ("[]", "null", '{"format": "other", "sha256": ""}', '{"sha256": 1}', "\udcff", "[" * 100_000):
        (foreign / "manifest.json").write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(CheckpointError, match=str(good)):
            read(foreign)
    shutil.rmtree(foreign)
    with pytest.raises(CheckpointError, match="it does not exist"):
        read(foreign)
    foreign.write_text("a file")
    with pytest.raises(CheckpointError, match="it is not a directory"):
        read(foreign)


def test_a_damaged_checkpoint_set_aside_keeps_its_number(tmp_path: Path) -> None:
    write(tmp_path, 1, ARRAYS, {})
    assert set_aside(write(tmp_path, 2, ARRAYS, {})) == "it was renamed to damaged-0002-step-2"
    write(tmp_path, 2, ARRAYS, {}, Retention(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0003-step-2", "damaged-0002-step-2"]


def test_a_copy_becomes_the_newest_checkpoint(tmp_path: Path) -> None:
    outside = write(tmp_path / "backup", 7, ARRAYS, {"a": 1}, workers=ARRAYS)
    write(tmp_path / "run", 9, ARRAYS, {})
    assert copy_as_newest(outside, tmp_path / "run") == latest(tmp_path / "run") == tmp_path / "run" / "0002-step-7"
    assert read(tmp_path / "run" / "0002-step-7")[1] == {"a": 1}
    assert read_workers(tmp_path / "run" / "0002-step-7") is not None


def test_a_checkpoint_that_cannot_be_opened_is_not_taken_for_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, 1, ARRAYS, {})

    def refuse(path: Path, limit: int) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("srl.storage.checkpoints.read_regular", refuse)
    with pytest.raises(CheckpointError, match="permission denied") as found:
        read(path)
    assert not isinstance(found.value, DamagedCheckpoint)


def test_leftovers_of_a_dead_writer_are_ignored_and_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale = tmp_path / f".writing-{dead.pid}-0001-step-1"
    stale.mkdir()
    (stale / "arrays.safetensors").write_text("half")
    assert latest(tmp_path) is None
    living = tmp_path / ".writing-1-0001-step-1"
    living.mkdir()
    write(tmp_path, 2, ARRAYS, {})
    assert not stale.exists()
    assert living.exists()


def test_only_numbers_can_be_stored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'names' has the dtype object"):
        write(tmp_path, 1, {"names": np.array(["a", None])}, {})
    assert not list(tmp_path.iterdir())


def assert_earlier_is_untouched(root: Path, earlier: Path, error: str) -> None:
    assert "earlier ones are untouched" in error
    assert str(earlier) in error
    assert [path.name for path in root.iterdir()] == [earlier.name]
    read(earlier)


def test_a_full_disk_leaves_the_earlier_checkpoints(tmp_path: Path) -> None:
    root = tmp_path / "small"
    root.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(root)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root; the next test covers the same path")
    try:
        earlier = write(root, 1, ARRAYS, {})
        with pytest.raises(CheckpointError, match="the disk is full; free some space") as caught:
            write(root, 2, {"big": np.zeros(10**6)}, {})
        assert_earlier_is_untouched(root, earlier, str(caught.value))
        write(root, 3, ARRAYS, {})
    finally:
        subprocess.run(["umount", str(root)], check=True)


def test_a_file_that_may_not_grow_leaves_the_earlier_checkpoints(tmp_path: Path) -> None:
    earlier = write(tmp_path, 1, ARRAYS, {})
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CheckpointError, match="ulimit -f") as caught:
            write(tmp_path, 2, {"big": np.zeros(10**6)}, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert_earlier_is_untouched(tmp_path, earlier, str(caught.value))


WRITER = """
import sys
from pathlib import Path
import numpy as np
from srl.base.tree import Array
from srl.storage.checkpoints import Retention, write
print("ready", flush=True)
for step in range(1, 10**6):
    write(Path(sys.argv[1]), step, {"a": np.full(300_000, step, np.float32)}, {"step": step}, retention=Retention(2))
    print(step, flush=True)
"""


@pytest.mark.parametrize("written", range(4))
def test_a_writer_killed_while_writing_leaves_complete_checkpoints_only(tmp_path: Path, written: int) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer, writer.stdout:
        for _ in range(1 + written):
            line = writer.stdout.readline()
        deadline = time.monotonic() + 60
        while not any(tmp_path.glob(".writing-*")) and time.monotonic() < deadline:
            pass
        writer.kill()
    if written:
        assert len(checkpoints(tmp_path)) >= 1
        assert step_of(checkpoints(tmp_path)[-1]) >= int(line)
    for path in checkpoints(tmp_path):
        arrays, metadata = read(path)
        assert (arrays["a"] == metadata["step"]).all()
    write(tmp_path, 0, {}, {})
    assert not list(tmp_path.glob(".*"))
