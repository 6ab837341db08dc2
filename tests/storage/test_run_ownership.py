"""One process at a time owns a run directory, on one host and on hosts that share a file system."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.waiting import wait_for

from srl.storage import checkpoints, run_ownership
from srl.storage.run_ownership import Owned, Owner, Ownership, Superseded, acquire, is_owned, newest

HOLD = """
import signal, sys
from pathlib import Path
from srl.storage.run_ownership import acquire
acquire(Path(sys.argv[1]))
print("owned", flush=True)
signal.pause()
"""


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every owner appear to be on another host, and time pass quickly."""
    monkeypatch.setattr(Owner, "is_local", property(lambda owner: False))
    monkeypatch.setattr(run_ownership, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(run_ownership, "LEASE_SECONDS", 2.0)  # a hundred beats, for slow machines
    monkeypatch.setattr(run_ownership, "LOOK_SECONDS", 0.01)


def die(ownership: Ownership) -> None:
    """Let an owner end without releasing its directory."""
    ownership._released.set()
    ownership._thread.join()


def test_a_directory_has_one_owner_at_a_time_and_each_has_a_higher_number(tmp_path: Path) -> None:
    assert not is_owned(tmp_path)
    for epoch in (1, 2):
        ownership = acquire(tmp_path)
        assert is_owned(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [f"owner.{epoch}"]
        with pytest.raises(Owned):
            acquire(tmp_path)
        ownership.check()
        ownership.release()
        assert not is_owned(tmp_path)


def test_a_killed_owner_on_this_host_is_replaced_at_once(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(Owned):
            acquire(tmp_path)
        process.kill()
        process.wait()
        assert not is_owned(tmp_path)
        acquire(tmp_path).release()


def test_a_reused_process_id_is_not_the_owner(tmp_path: Path) -> None:
    ownership = acquire(tmp_path)
    die(ownership)
    ownership._write(msgspec.structs.replace(ownership.owner, started=ownership.owner.started + 1))
    acquire(tmp_path).release()


def test_a_directory_is_taken_from_a_host_only_if_its_beats_stop(hosts: None, tmp_path: Path) -> None:
    first = acquire(tmp_path)
    with pytest.raises(Owned) as refused:
        acquire(tmp_path)
    assert refused.value.owner is not None
    assert is_owned(tmp_path)
    die(first)
    second = acquire(tmp_path)
    assert second.epoch == 2
    first._write(first.owner)  # the first was only frozen, and continues
    assert first.lost
    with pytest.raises(Superseded):
        first.check()
    second.check()
    second.release()


@pytest.mark.parametrize("skew", [-100_000.0, 100_000.0])
@pytest.mark.parametrize("foreign", [False, True])
def test_an_owner_on_a_host_with_another_clock_is_seen(
    hosts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: float, foreign: bool
) -> None:
    real = time.time
    monkeypatch.setattr(run_ownership, "_clocks", {})
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    if foreign:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    ownership = acquire(tmp_path)
    assert is_owned(tmp_path)
    die(ownership)
    os.utime(ownership.path, (real() - 60, real() - 60))
    assert not is_owned(tmp_path)
    assert list(tmp_path.iterdir()) == [ownership.path]


def test_an_owner_whose_file_system_has_set_its_clock_back_is_seen(hosts: None, tmp_path: Path) -> None:
    ownership = acquire(tmp_path)
    die(ownership)
    os.utime(ownership.path, (time.time() + 1000, time.time() + 1000))
    assert not is_owned(tmp_path)


def test_an_owner_that_lives_on_can_be_replaced_by_force_and_writes_no_checkpoint(hosts: None, tmp_path: Path) -> None:
    first = acquire(tmp_path)
    second = acquire(tmp_path, force=True)
    arrays, root = {"x": np.zeros(3, np.float32)}, tmp_path / "checkpoints"
    with pytest.raises(checkpoints.CheckpointError, match="another process has taken over"):
        checkpoints.write(root, 1, arrays, {}, check=first.check)
    assert list(root.iterdir()) == []
    checkpoints.write(root, 1, arrays, {}, check=second.check)
    wait_for(lambda: first.lost, "the first owner notices by itself")
    first.release()
    second.check()
    second.release()


def test_an_incomplete_record_is_replaced_after_a_while(hosts: None, tmp_path: Path) -> None:
    (tmp_path / "owner.7").touch()
    ownership = acquire(tmp_path)
    assert ownership.epoch == 8
    ownership.release()


@pytest.mark.parametrize("dead", [False, True])
def test_of_many_that_try_at_once_one_becomes_the_owner(hosts: None, tmp_path: Path, dead: bool) -> None:
    if dead:
        die(acquire(tmp_path))
    barrier, owners, refused = threading.Barrier(8), [], []

    def attempt() -> None:
        barrier.wait()
        try:
            owners.append(acquire(tmp_path))
        except Owned:
            refused.append(1)

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(owners), len(refused)) == (1, 7)
    owners[0].check()
    owners[0].release()


def test_a_process_that_was_slow_does_not_reuse_an_old_number(tmp_path: Path) -> None:
    for _ in range(3):
        acquire(tmp_path).release()
    assert run_ownership._claim(tmp_path, 2) is None
    assert newest(tmp_path)[0] == 3
    assert os.listdir(tmp_path) == ["owner.3"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    (tmp_path / "owner.1").symlink_to(other)
    assert not is_owned(tmp_path)
    with pytest.raises(OSError, match="symbolic"):
        acquire(tmp_path)
    assert other.read_text() == "mine"
