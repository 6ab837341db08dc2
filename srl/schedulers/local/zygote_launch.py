"""Launch and end of a zygote. It may be launched before the run is known: importing torch takes longer than preparing
the run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from srl.schedulers.local.strays import MARK, kill_strays, new_mark, worker_marks

MESSAGE_BYTES = 1 << 20
END_SECONDS = 1.0
"""Time allowed for a zygote to end its workers and itself."""
PRELOAD = (
    "torch",
    "srl.algorithms.ppo.trainer",
    "srl.algorithms.torch_policy",
    "srl.networks.build",
    "srl.workers.actor.worker",
    "srl.workers.trainer.worker",
    "srl.workers.policy",
)
"""Modules that the workers of every training run need."""
ENVIRONMENT = {
    # One thread per worker: several spinning threads per worker on shared cores are ten times slower.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    # Keep large temporaries instead of returning them to the kernel at every update, 10-14% of a CNN's update.
    **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 30)),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class ZygoteHandle(NamedTuple):
    """A zygote that imports modules and waits for the run. It ends when the channel is closed."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    mark: int
    """Mark of its descendants (see `strays`)."""
    worker_marks: Iterator[int]
    """Marks of the descendants of its workers."""


_started_early: list[ZygoteHandle] = []


def start_early() -> None:
    """Start a zygote for the scheduler that this process will probably create."""
    if not _started_early:
        _started_early.append(_start(PRELOAD))


def take_zygote() -> ZygoteHandle:
    """Return the zygote that was started early if it is alive, else a new one."""
    if _started_early:
        handle = _started_early.pop()
        if handle.process.poll() is None:
            return handle
        handle.channel.close()
    return _start(())


def _start(preload: Sequence[str]) -> ZygoteHandle:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    mark = new_mark()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "srl.schedulers.local.zygote", str(theirs.fileno()), *preload],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,  # until it has a log
            start_new_session=True,  # so that Ctrl-C in a terminal reaches only the supervisor
            env={**os.environ, **ENVIRONMENT, MARK: str(mark)},
        )
    return ZygoteHandle(process, ours, mark, worker_marks(mark))


def end_zygote(handle: ZygoteHandle) -> None:
    """End a zygote and all of its descendants."""
    handle.channel.close()  # it ends its workers and itself
    handle.process.terminate()  # makes it check the channel, even while it imports modules
    try:
        handle.process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        kill_process_group(handle.process.pid)
        handle.process.wait()
        kill_strays(handle.mark)


def kill_process_group(leader: int) -> None:
    """Kill a process and those it started."""
    if leader:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)
