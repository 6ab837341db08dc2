"""Where zygotes are born. One may be begun before anybody knows what it is for: importing torch takes longer than
finding that out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

MESSAGE_BYTES = 1 << 20
PRELOAD = (
    "torch",
    "srl.algorithms.ppo.trainer",
    "srl.workers.actor.worker",
    "srl.workers.trainer.worker",
    "srl.workers.policy",
)
"""What the workers of any training run need."""
ENVIRONMENT = {
    # One thread for each worker: teams of spinning threads on shared cores cost a factor of ten.
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    # Keep large temporaries instead of giving them back to the kernel at every update: 10-14 % of a CNN's update.
    **dict.fromkeys(("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"), str(1 << 30)),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


class ZygoteHandle(NamedTuple):
    """A zygote that imports, and waits to be told what the run is. It ends when our end of the channel is closed."""

    process: subprocess.Popen[bytes]
    channel: socket.socket


_early: list[ZygoteHandle] = []


def begin_early() -> None:
    """Begin a zygote for the scheduler that will be built in this process, if there will be one."""
    if not _early:
        _early.append(_bear(PRELOAD))


def zygote() -> ZygoteHandle:
    """The one that was begun early, if it lives, else a new one."""
    if _early:
        newborn = _early.pop()
        if newborn.process.poll() is None:
            return newborn
        newborn.channel.close()
    return _bear(())


def _bear(preload: Sequence[str]) -> ZygoteHandle:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MESSAGE_BYTES)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "srl.schedulers.local.zygote", str(theirs.fileno()), *preload],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=sys.__stderr__,  # until it is given a log
            start_new_session=True,  # a terminal's Ctrl-C is for the supervisor alone
            env={**os.environ, **ENVIRONMENT},
        )
    return ZygoteHandle(process, ours)
