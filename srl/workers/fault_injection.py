"""Faults that the controller injects into a worker, for `srl chaos`."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time

from srl.api.control import InjectFault
from srl.base.meter import Counter, Meter

SLOW_SECONDS = 0.2
"""Pause at each read of the controller's messages (up to 50 per second), which slows a worker about tenfold."""


class Faults:
    """Faults in effect, applied whenever the controller's messages are read. Without faults, this costs nothing."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._ends: dict[str, float] = {}

    def add(self, message: InjectFault) -> None:
        self._ends[message.fault] = time.monotonic() + message.seconds

    def apply(self) -> None:
        now = time.monotonic()
        for fault, end in list(self._ends.items()):
            if now > end:
                del self._ends[fault]
            elif fault == "slow":
                time.sleep(SLOW_SECONDS)
            else:
                self._meter.add(Counter.BROKEN_CONNECTIONS, break_connections())

    def __bool__(self) -> bool:
        return bool(self._ends)


def break_connections() -> int:
    """Shut down all TCP connections of this process and return their number. New ones last until the next call."""
    num_broken = 0
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or a listener, which has no peer
            if stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                with socket.socket(fileno=os.dup(int(entry))) as sock:
                    if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername():
                        sock.shutdown(socket.SHUT_RDWR)
                        num_broken += 1
    return num_broken
