"""A link that loses, delays, reorders and repeats packets, for benchmarks (Linux, root): not every kernel has netem.

The cable between a host of `support.namespaces` and the switch becomes a pair of TAP devices, and a process carries the
frames between them.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import json
import os
import random
import select
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from namespaces import Hosts

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
MAX_FRAME = 2048
LATE_SECONDS = 0.02  # by which a reordered frame is later than others
BUFFER_SECONDS = 0.4  # of frames that wait for a slow link; more are dropped


@dataclass(frozen=True)
class Quality:
    """What a link does to each frame, in each direction."""

    loss: float = 0.0  # probability
    twice: float = 0.0
    late: float = 0.0
    delay: float = 0.0  # seconds
    rate: float = 0.0  # bytes per second; 0: unlimited


@dataclass
class Relay:
    """The process that carries a host's frames."""

    pid: int
    _control: int

    def set(self, quality: Quality) -> None:
        os.write(self._control, json.dumps(asdict(quality)).encode() + b"\n")


@contextmanager
def relay(hosts: Hosts, index: int) -> Iterator[Relay]:
    """Replace the cable of a host by a relay, which at first does nothing to its frames."""
    reading, writing = os.pipe()
    ready, started = os.pipe()
    space, switch, address = hosts.space(index), hosts.switch, hosts.address(index)  # named after this process
    pid = os.fork()
    if pid == 0:
        try:
            ends = _replace_cable(space, switch, index, address)
            os.write(started, b".")
            _carry(ends, reading)
        finally:
            os._exit(1)
    try:
        os.close(started)
        if not os.read(ready, 1):
            raise OSError(f"the cable of host {index} could not be replaced")
        yield Relay(pid, writing)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for descriptor in (reading, writing, ready):
            os.close(descriptor)


def _replace_cable(space: str, switch: str, index: int, address: str) -> tuple[int, int]:
    """Return the TAP devices at the host and at the switch."""
    port = f"port{index}"
    _ip("-n", space, "link", "delete", "eth0")
    ends = _tap(space, "eth0"), _tap(switch, port)
    _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
    _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
    _ip("-n", space, "link", "set", "eth0", "up")
    return ends


def _tap(space: str, name: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/run/netns/{space}").open() as there:
        if libc.setns(there.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return descriptor


def _ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)


def _carry(ends: tuple[int, int], control: int) -> None:
    """Carry frames until killed."""
    other = {ends[0]: ends[1], ends[1]: ends[0]}
    quality, free_at = Quality(), dict.fromkeys(ends, 0.0)
    waiting: list[tuple[float, int, int, bytes]] = []  # a heap: time, order, destination, frame
    order = itertools.count()
    while True:
        pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for source in select.select([control, *ends], [], [], pause)[0]:
            if source == control:
                quality = Quality(**json.loads(os.read(control, 1000).splitlines()[-1]))
                continue
            with suppress(BlockingIOError):
                while True:
                    frame, now, target = os.read(source, MAX_FRAME), time.monotonic(), other[source]
                    begins = max(now, free_at[target]) if quality.rate else now
                    if random.random() < quality.loss or begins - now > BUFFER_SECONDS:
                        continue
                    free_at[target] = begins + (len(frame) / quality.rate if quality.rate else 0.0)
                    for _ in range(1 + (random.random() < quality.twice)):
                        late = LATE_SECONDS if random.random() < quality.late else 0.0
                        due = (free_at[target] if quality.rate else now) + quality.delay + late
                        heapq.heappush(waiting, (due, next(order), target, frame))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, target, frame = heapq.heappop(waiting)
            with suppress(OSError):  # its queue is full: the frame is lost
                os.write(target, frame)
