"""Directories for the sockets of runs and agents, and the removal of those that dead processes left behind."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

SUPERVISOR = "supervisor"


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
    # Process ids are only valid within their namespace, and several namespaces may share /tmp.
    (runtime / SUPERVISOR).write_text(f"{os.getpid()} {_pid_namespace()}")
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
        try:
            pid, _, namespace = (directory / SUPERVISOR).read_text().partition(" ")
            if namespace == _pid_namespace() and not Path(f"/proc/{int(pid)}").exists():
                shutil.rmtree(directory, ignore_errors=True)
        except (OSError, ValueError):
            continue  # it is still being made
