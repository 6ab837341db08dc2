"""Faults that a worker inflicts on itself when it is asked to, for `srl chaos`."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import time

from srl.api.control import InjectFault
from srl.base.meter import Counter, Meter

SLOW_SECONDS = 0.2
"""Lost at every look at the controller's messages, of which there are at most 50 a second: about ten times slower."""


class Faults:
    """Costs nothing until something is to be suffered: looked at only when the controller was listened to."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._ends: dict[str, float] = {}

    def begin(self, order: InjectFault) -> None:
        self._ends[order.fault] = time.monotonic() + order.seconds

    def suffer(self) -> None:
        now = time.monotonic()
        for fault, end in list(self._ends.items()):
            if now > end:
                del self._ends[fault]
            elif fault == "slow":
                time.sleep(SLOW_SECONDS)
            else:
                self._meter.add(Counter.BROKEN_CONNECTIONS, cut_connections())

    def __bool__(self) -> bool:
        return bool(self._ends)


def cut_connections() -> int:
    """Break every TCP connection of this process; returns how many. Who reconnects is cut again by the next call."""
    num_cut = 0
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it was closed meanwhile, or has no peer: a listener
            if stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                with socket.socket(fileno=os.dup(int(entry))) as sock:
                    if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername():
                        sock.shutdown(socket.SHUT_RDWR)
                        num_cut += 1
    return num_cut
