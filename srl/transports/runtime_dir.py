"""Directories for the sockets of runs and agents, and the removal of those that dead processes left behind."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from srl.base.process import start_ticks

SUPERVISOR = "supervisor"
UNNAMED_SECONDS = 60.0
"""Age from which a directory that names no process was left by one that was killed while it made the directory."""


def runtime_root() -> Path:
    """Return the directory for the sockets of this user's runs. Its path is short: the kernel allows 107 bytes."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"srl-{os.getuid()}"


def make_runtime(run: str) -> Path:
    """Make a directory for a run, and remove those of dead runs."""
    root = runtime_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_own(root):
        raise PermissionError(
            f"{root} is a link or belongs to another user; set XDG_RUNTIME_DIR to a directory of your own"
        )
    sweep(root)
    runtime = Path(tempfile.mkdtemp(prefix=f"{run[:24]}.", dir=root))
    # Process ids are only valid within their namespace, and several namespaces may share /tmp. They are used again.
    (runtime / SUPERVISOR).write_text(f"{os.getpid()} {_pid_namespace()} {start_ticks(os.getpid())}")
    return runtime


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def is_own(directory: Path) -> bool:
    """Return whether this is a directory of this user, and not a link. Anyone can create files in /tmp."""
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def own_directories() -> list[Path]:
    """Return the directories of this user's live runs, oldest first, and remove those of dead runs."""
    root = runtime_root()
    if not is_own(root):
        return []
    sweep(root)
    return sorted(filter(is_own, root.iterdir()), key=lambda directory: directory.stat().st_mtime)


def sweep(root: Path) -> None:
    """Remove the directories of runs whose supervisor was killed."""
    for directory in filter(is_own, root.iterdir()):
        if not _is_alive(directory):
            shutil.rmtree(directory, ignore_errors=True)


def _is_alive(directory: Path) -> bool:
    try:
        pid, namespace, began = (directory / SUPERVISOR).read_text().split(" ")
    except (OSError, ValueError):
        return _is_new(directory)
    try:
        return namespace != _pid_namespace() or start_ticks(int(pid)) == int(began)
    except OSError:
        return False


def _is_new(directory: Path) -> bool:
    try:
        return time.time() - directory.stat().st_mtime < UNNAMED_SECONDS  # it is still being made
    except OSError:
        return False
