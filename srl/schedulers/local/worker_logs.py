"""Logs of workers: pipes that one thread reads, and files that another writes, so that workers never wait for the disk.

A worker that wrote to its log file itself would get the errors of a full disk inside `print`, and the file could not be
rotated. See decision 16.
"""

from __future__ import annotations

import os
import select
import threading
import time
from pathlib import Path
from typing import Protocol

from srl.base.files import HELD_BYTES, RETRY_SECONDS, BoundedFile, Losses

LOG_BYTES = 32_000_000  # maximum size of a worker's log, with its predecessor
CHUNK_BYTES = 1 << 16  # capacity of a pipe
TAIL_BYTES = 1 << 14
COLLECT_SECONDS = 0.002
"""Pause between two rounds of reading: one large read costs less than many small ones. A pipe holds the output of this
time at 32 MB/s."""
FLUSH_SECONDS = 1.0
"""Time limit for a thread that waits until a log is in its file."""


class LogStore(Protocol):
    """A destination of logs. No method waits for the disk, except `flush` and `close` for a limited time."""

    def add(self, name: str, text: bytes) -> None: ...

    def flush(self) -> None:
        """Wait until the added text is in its file."""

    def close(self) -> None: ...


class LogFiles:
    """Log files in a directory, each bounded by `max_bytes` together with its predecessor `NAME.log.1`."""

    def __init__(self, directory: Path, losses: Losses | None = None, max_bytes: int = LOG_BYTES) -> None:
        self._directory = directory
        self._losses = losses or Losses()
        self._max_bytes = max_bytes
        self._files: dict[str, BoundedFile] = {}
        self._changed = threading.Condition()
        self._added: set[str] = set()
        self._busy = self._closing = False
        self._thread = threading.Thread(target=self._write, name="log-writer", daemon=True)
        self._thread.start()

    def add(self, name: str, text: bytes) -> None:
        file = self._files.get(name) or self._files.setdefault(name, self._file(name))
        file.hold(text)
        with self._changed:
            self._added.add(name)
            self._changed.notify_all()

    def _file(self, name: str) -> BoundedFile:
        path = self._directory / f"{Path(name.replace(chr(0), '')).name}.log"  # other hosts send names
        return BoundedFile(
            path,
            self._losses,
            max_bytes=self._max_bytes,
            held_bytes=min(HELD_BYTES, self._max_bytes // 4),
            gap=lambda dropped: b"srl: output was dropped here, because the disk was full or too slow\n",
            header=f"srl: earlier output is in {path.name}.1; what was before that has been removed\n".encode(),
        )

    def flush(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._added and not self._busy, FLUSH_SECONDS)

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(FLUSH_SECONDS)

    def _write(self) -> None:
        closing, failing = False, set[str]()
        while not closing:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._added or self._closing, RETRY_SECONDS if failing else None)
                names, self._added, self._busy, closing = self._added | failing, set(), True, self._closing
            for name in names:
                self._files[name].flush(now=closing)
            failing = {name for name in names if self._files[name].failing}


class WorkerLogs:
    """Output of a host's workers. Each writes to a pipe, which a thread empties into the store."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._pipes: dict[int, str] = {}  # reading end -> name of its log
        self._sizes: dict[str, int] = {}  # bytes read so far
        self._tails: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._epoll = select.epoll()
        self._closing = os.eventfd(0, os.EFD_CLOEXEC)
        self._epoll.register(self._closing, select.EPOLLIN)
        self._thread = threading.Thread(target=self._read_all, name="log-reader", daemon=True)
        self._thread.start()

    def open(self, name: str) -> int:
        """Return a descriptor for a worker's output, which the caller closes. If there are no descriptors left, it is
        that of the null device."""
        self._store.add(name, b"")  # `srl logs` lists every worker
        try:
            reading, writing = os.pipe2(os.O_CLOEXEC)
        except OSError:
            return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.set_blocking(reading, False)
        with self._lock:
            self._pipes[reading] = name
            self._epoll.register(reading, select.EPOLLIN)
        return writing

    def write(self, name: str, text: str) -> None:
        """Add a line after the output so far, and wait until both are stored."""
        self.drain(name)
        self._store.add(name, f"{text}\n".encode())
        self._store.flush()

    def drain(self, name: str) -> None:
        """Read what an ended worker has written."""
        for descriptor, own in list(self._pipes.items()):
            if own == name:
                self._read(descriptor)

    def size(self, name: str) -> int:
        """Return the number of bytes that were read so far."""
        return self._sizes.get(name, 0)

    def tail(self, name: str, begin: int = 0) -> str:
        """Return the output from this number of bytes on, at most the last 16 kB."""
        with self._lock:
            new = min(self._sizes.get(name, 0) - begin, TAIL_BYTES)
            return self._tails.get(name, b"")[-new:].decode(errors="replace") if new > 0 else ""

    def close(self) -> None:
        """Store what workers have written, and close the store. Workers must have ended."""
        if self._closing < 0:
            return
        os.eventfd_write(self._closing, 1)
        self._thread.join()
        for name in set(self._pipes.values()):
            self.drain(name)
        for descriptor in self._pipes:
            os.close(descriptor)
        self._pipes.clear()
        self._epoll.close()
        os.close(self._closing)
        self._closing = -1
        self._store.close()

    def _read_all(self) -> None:
        while True:
            for descriptor, _ in self._epoll.poll():
                if descriptor == self._closing:
                    return
                self._read(descriptor)
            time.sleep(COLLECT_SECONDS)

    def _read(self, descriptor: int) -> None:
        """Read at most as much from a pipe as it can hold."""
        with self._lock:
            name = self._pipes.get(descriptor)
            if name is None:
                return
            try:
                text = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not text:
                del self._pipes[descriptor]
                self._epoll.unregister(descriptor)
                os.close(descriptor)
                return
            self._sizes[name] = self._sizes.get(name, 0) + len(text)
            self._tails[name] = (self._tails.get(name, b"") + text)[-TAIL_BYTES:]
            self._store.add(name, text)
