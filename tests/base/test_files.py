"""Files that grow hold what they cannot write, drop what is too much, and never raise."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.manual_clock import ManualClock

from srl.base.files import RETRY_SECONDS, Backlog, BoundedFile, Losses, simulate_full_disk, write_whole


class Disk:
    """A directory that can be broken: another file is in its place."""

    def __init__(self, root: Path) -> None:
        self.root = root / "disk"
        self.path = self.root / "file"

    def fail(self) -> None:
        self.root.touch()

    def repair(self) -> None:
        self.root.unlink()


def gap(dropped: int) -> bytes:
    return b"%d dropped\n" % dropped


def test_records_are_held_and_written_once_that_works_again(tmp_path: Path) -> None:
    clock, losses, disk = ManualClock(), Losses(), Disk(tmp_path)
    disk.fail()
    file = BoundedFile(disk.path, losses, now=clock.now)
    file.append(b"one\n")
    assert file.failing
    assert losses.totals() == {"file": 4}
    (message,) = losses.drain_messages()
    assert "file cannot be written" in message
    disk.repair()
    file.append(b"two\n")
    assert not disk.path.exists()  # not yet tried again
    clock.advance(RETRY_SECONDS)
    file.flush()
    assert disk.path.read_bytes() == b"one\ntwo\n"
    assert losses.drain_messages() == ["files can be written again; nothing was lost"]
    assert losses.totals() == {}


def test_the_oldest_records_are_dropped_counted_and_marked(tmp_path: Path) -> None:
    clock, losses, disk = ManualClock(), Losses(), Disk(tmp_path)
    file = BoundedFile(disk.path, losses, held_bytes=10, gap=gap, now=clock.now)
    file.append(b"0000\n")
    disk.path.unlink()
    disk.root.rmdir()
    disk.fail()
    for number in range(1, 6):
        file.append(b"%d%d%d%d\n" % ((number,) * 4))
    losses.drain_messages()
    disk.repair()
    file.flush(now=True)
    assert disk.path.read_bytes() == b"3 dropped\n4444\n5555\n"
    assert losses.totals() == {"file": 15}
    assert losses.drain_messages() == ["files can be written again; 0.0 MB of file was lost"]
    file.append(b"6666\n")
    assert disk.path.read_bytes() == b"3 dropped\n4444\n5555\n6666\n"


def test_a_simulated_full_disk_has_room_again_after_its_time(tmp_path: Path) -> None:
    losses = Losses()
    file = BoundedFile(tmp_path / "file", losses)
    simulate_full_disk(60.0)
    try:
        file.append(b"one\n")
        with pytest.raises(OSError, match="No space left"):
            write_whole(tmp_path / "other", b"")
    finally:
        simulate_full_disk(0.0)
    file.flush(now=True)
    write_whole(tmp_path / "other", b"")
    assert (tmp_path / "file").read_bytes() == b"one\n"
    assert "the disk is full" in losses.drain_messages()[0]


def test_several_files_cause_one_message(tmp_path: Path) -> None:
    losses, disk = Losses(), Disk(tmp_path)
    disk.fail()
    files = [BoundedFile(disk.root / name, losses) for name in "abc"]
    for file in files:
        file.append(b"x\n")
    assert len(losses.drain_messages()) == 1
    disk.repair()
    for file in files:
        file.flush(now=True)
    assert len(losses.drain_messages()) == 1


def test_a_file_and_its_predecessor_stay_within_their_limit(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = BoundedFile(path, max_bytes=100, header=b"continued\n")
    for number in range(50):
        file.append(b"line %04d\n" % number)
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= 100 + len(b"continued\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["log", "log.1"]
    both = (tmp_path / "log.1").read_bytes() + path.read_bytes()
    assert both.replace(b"continued\n", b"").endswith(b"line 0048\nline 0049\n")
    assert path.read_bytes().startswith(b"continued\n")


def test_a_partial_line_of_a_killed_writer_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"whole\npart")
    BoundedFile(path, lines=True).append(b"next\n")
    assert path.read_bytes() == b"whole\nnext\n"


def test_records_that_are_put_back_come_before_newer_ones() -> None:
    backlog = Backlog(max_bytes=4)
    backlog.add(b"aa")
    taken = backlog.take()
    backlog.add(b"bb")
    assert backlog.put_back(*taken) == 0
    backlog.add(b"cc")
    assert backlog.take() == ([b"bb", b"cc"], 1)
