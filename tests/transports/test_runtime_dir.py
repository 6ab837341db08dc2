"""Directories for sockets: those of dead runs are removed, but nothing of another user and nothing behind a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srl.controller.control_socket import live
from srl.transports import runtime_dir
from srl.transports.runtime_dir import SUPERVISOR, make_runtime, own_directories, runtime_root

NOBODY = 2**22 + 1  # above the largest process id


def dead_run(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / SUPERVISOR).write_text(f"{NOBODY} {runtime_dir._pid_namespace()} 1")
    return directory


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    return runtime_root()


def test_directories_of_dead_runs_are_removed_and_others_stay(root: Path) -> None:
    alive, dead = make_runtime("alive"), dead_run(root / "dead")
    assert own_directories() == [alive]
    assert not dead.exists()


def test_a_directory_whose_process_id_was_used_again_is_removed(root: Path) -> None:
    dead = dead_run(root / "dead")
    (dead / SUPERVISOR).write_text(f"{os.getpid()} {runtime_dir._pid_namespace()} 1")
    assert own_directories() == []
    assert not dead.exists()


def test_a_directory_that_names_no_process_is_removed_once_it_is_old(root: Path) -> None:
    unnamed = root / "unnamed"
    unnamed.mkdir(parents=True)
    assert own_directories() == [unnamed]
    os.utime(unnamed, (0, 0))
    assert own_directories() == []


def test_nothing_behind_a_link_is_touched(root: Path, tmp_path: Path) -> None:
    behind = dead_run(tmp_path / "elsewhere" / "run")
    root.mkdir(parents=True)
    (root / "run").symlink_to(behind)
    assert own_directories() == []
    (root / "run").unlink()
    root.rmdir()
    root.symlink_to(behind.parent)
    assert live() == {}
    with pytest.raises(PermissionError, match="is a link or belongs to another user"):
        make_runtime("run")
    assert (behind / SUPERVISOR).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_nothing_of_another_user_is_touched(root: Path) -> None:
    theirs = dead_run(root / "theirs")
    os.chown(theirs, 12345, 12345)
    assert own_directories() == []
    assert theirs.exists()
    os.chown(root, 12345, 12345)
    assert live() == {}
    with pytest.raises(PermissionError):
        make_runtime("run")
