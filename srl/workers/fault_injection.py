"""Faults that the controller injects into workers and hosts, for `srl chaos`."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence

from srl.api.control import InjectFault
from srl.base.meter import Counter, Meter

SLOW_SECONDS = 0.2
"""Pause at each read of the controller's messages (up to 50 per second), which slows a worker about tenfold."""

SLOW_LINK_RATE = 100_000  # bytes per second and connection
UNLIMITED = -1
SO_MAX_PACING_RATE = 47  # Linux; `socket` does not have it


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
                if fault == "slow-link":
                    limit_rate(UNLIMITED)
            elif fault == "slow":
                time.sleep(SLOW_SECONDS)
            elif fault == "slow-link":
                self._meter.add(Counter.DISTURBED_CONNECTIONS, limit_rate(SLOW_LINK_RATE))
            else:
                self._meter.add(Counter.DISTURBED_CONNECTIONS, break_connections())

    def __bool__(self) -> bool:
        return bool(self._ends)


def break_connections() -> int:
    """Shut down all TCP connections of this process and return their number. New ones last until the next call."""
    return sum(_shut_down(sock) for sock in _connections())


def limit_rate(bytes_per_second: int) -> int:
    """Limit what each TCP connection of this process sends per second. Return the number of connections."""
    num_limited = 0
    for sock in _connections():
        sock.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, bytes_per_second)
        num_limited += 1
    return num_limited


def freeze(pids: Sequence[int], seconds: float) -> None:
    """Suspend processes, possibly including this one, for some seconds."""
    words = " ".join(map(str, pids))
    script = f"(sleep {seconds}; kill -CONT {words}) & kill -STOP {words}"
    subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _connections() -> Iterator[socket.socket]:
    """Yield a copy of each connected TCP socket of this process."""
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or a listener, which has no peer
            if stat.S_ISSOCK(os.fstat(int(entry)).st_mode):
                with socket.socket(fileno=os.dup(int(entry))) as sock:
                    if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername():
                        yield sock


def _shut_down(sock: socket.socket) -> bool:
    try:
        sock.shutdown(socket.SHUT_RDWR)
        return True
    except OSError:  # the other end has closed it
        return False
