"""A flood of connections from strangers, for `srl chaos`."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

CONNECTIONS_PER_SECOND = 500
MAX_OPEN = 128
NOISE_BYTES = 256


class Flood(threading.Thread):
    """Connections without a secret to addresses of this machine: some send noise, the others nothing. At most MAX_OPEN
    are open at a time, and all are closed after `seconds`."""

    def __init__(self, addresses: Sequence[str], seconds: float) -> None:
        super().__init__(daemon=True)
        self._addresses = [address.removeprefix("tcp:").partition("/")[0].rpartition(":") for address in addresses]
        self._seconds = seconds

    def run(self) -> None:
        opened: deque[socket.socket] = deque()
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            host, _, port = random.choice(self._addresses)
            stranger = socket.socket()
            opened.append(stranger)
            stranger.setblocking(False)
            with contextlib.suppress(OSError):  # in progress, or refused
                stranger.connect((host, int(port)))
            if len(opened) > MAX_OPEN // 2 and random.random() < 0.5:
                with contextlib.suppress(OSError):
                    opened[len(opened) // 2].send(os.urandom(NOISE_BYTES))
            if len(opened) > MAX_OPEN:
                opened.popleft().close()
            time.sleep(1.0 / CONNECTIONS_PER_SECOND)
        for stranger in opened:
            stranger.close()
