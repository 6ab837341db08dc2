"""The agent of the controller's own host, as a process that outlives its controller and is found by the next one."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path

import msgspec

from srl.base.files import write_whole

MODULE = "srl.schedulers.agent.join"
UNSEEN = 256
"""In place of an exit code: it was no child of ours."""


class _Note(msgspec.Struct, frozen=True):
    pid: int
    began: int
    """In the kernel's ticks: numbers of processes are used again."""


def write_down(pid: int, path: Path) -> None:
    write_whole(path, msgspec.json.encode(_Note(pid, _began(pid))))


class OrphanAgent:
    """One that a predecessor started, with as much of Popen as the end of a process needs."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self._descriptor >= 0:
            watch = select.poll()
            watch.register(self._descriptor, select.POLLIN)
            if not watch.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(MODULE, timeout or 0.0)
            self.close()
        return UNSEEN

    def kill(self) -> None:
        if self._descriptor >= 0:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def find(path: Path) -> OrphanAgent | None:
    """The agent that was written down there, or None if it is gone. Raises OSError if nobody can tell."""
    try:
        note = msgspec.json.decode(path.read_bytes(), type=_Note)
    except msgspec.MsgspecError as error:
        raise OSError(f"{path} does not say which agent it was: {error}") from error
    try:
        agent = OrphanAgent(os.pidfd_open(note.pid))  # first: from here on the number stands for no other process
    except ProcessLookupError:
        return None
    try:
        same = _began(note.pid) == note.began and MODULE.encode() in Path(f"/proc/{note.pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        same = False
    except BaseException:
        agent.close()
        raise
    if not same or agent.poll() is not None:
        agent.close()
        return None
    return agent


def _began(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[19])  # the name, in brackets, may hold anything
