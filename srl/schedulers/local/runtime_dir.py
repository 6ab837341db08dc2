"""Directories for the sockets of live runs and agents, and what becomes of those of the dead."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

SUPERVISOR = "supervisor"


def runtime_root() -> Path:
    """Where the sockets of this user's runs lie. Short, because the kernel allows 107 bytes for a socket's path."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"srl-{os.getuid()}"


def make_runtime(run: str) -> Path:
    """A directory of its own for a run; those of dead runs are swept away."""
    root = runtime_root()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():
        raise PermissionError(f"{root} belongs to another user; set XDG_RUNTIME_DIR to a directory of your own")
    sweep(root)
    runtime = Path(tempfile.mkdtemp(prefix=f"{run[:24]}.", dir=root))
    (runtime / SUPERVISOR).write_text(_marker(os.getpid()))
    return runtime


def _marker(pid: int) -> str:
    """A process and the namespace in which its number means something: /tmp may be shared by several."""
    return f"{pid} {_namespace()}"


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def sweep(root: Path) -> None:
    """Remove what runs left whose supervisor was killed."""
    for directory in root.iterdir():
        try:
            pid, _, namespace = (directory / SUPERVISOR).read_text().partition(" ")
            if namespace == _namespace() and not Path(f"/proc/{int(pid)}").exists():
                shutil.rmtree(directory, ignore_errors=True)
        except (OSError, ValueError):
            continue  # just being made
