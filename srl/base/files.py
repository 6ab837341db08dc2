"""Files: atomic and durable writes, files that grow and never raise, and readable explanations of disk errors."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

RETRY_SECONDS = 1.0
"""Time between attempts to write a file after an error."""
HELD_BYTES = 1 << 20
"""Amount of a file's newest data that is held in memory while it cannot be written."""

REMEDIES = {
    errno.ENOSPC: "the disk is full; free some space or choose another directory with --root",
    errno.EDQUOT: "your disk quota is used up; free some space or choose another directory with --root",
    errno.EFBIG: "the file would exceed the allowed size; raise `ulimit -f` or choose another directory with --root",
    errno.EACCES: "permission denied; change its permissions or choose another directory with --root",
    errno.EPERM: "permission denied; change its permissions or choose another directory with --root",
    errno.EROFS: "the file system is read-only; choose another directory with --root",
    errno.ENOTDIR: "a part of this path is a file; choose another directory with --root",
    errno.EEXIST: "a file of that name exists; choose another directory with --root",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter --name or --root",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
    errno.ENOENT: "it does not exist",
}


_full_until = 0.0  # time until which the disk counts as full


def simulate_full_disk(seconds: float) -> None:
    """Make writing files fail in this process for some seconds, for `srl chaos`."""
    global _full_until
    _full_until = time.monotonic() + seconds


def _check_room() -> None:
    if time.monotonic() < _full_until:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def explain_os_error(error: OSError) -> str:
    """Describe a disk error and how to fix it."""
    return REMEDIES.get(error.errno or 0, error.strerror or str(error))


def read_regular(path: Path, limit: int) -> bytes:
    """Return the content of a file. Raises OSError if it is a device or a pipe, or has more than `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes; the limit is {limit:,}", str(path))
        return file.read(limit)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError if it is a device or a pipe, without waiting for its writer."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")


def write_synced(path: Path, content: bytes) -> None:
    """Create a file and flush its content to disk."""
    _check_room()
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path with the same suffix, whose file atomically replaces `path` when the block ends. If the
    block raises, `path` is unchanged.
    """
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        temporary.unlink(missing_ok=True)
        _check_room()
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to report
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, content: bytes, sync: bool = False) -> None:
    """Replace the file atomically: readers see either the old content or the new, never a partial file."""
    with replacing(path) as temporary:
        if sync:
            write_synced(temporary, content)
        else:
            temporary.write_bytes(content)


def sync_directory(path: Path) -> None:
    """Flush a directory to disk, so that creating, renaming or removing files in it survives a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Backlog:
    """Records that wait to be written. If they exceed `max_bytes`, the oldest are dropped and counted."""

    def __init__(self, max_bytes: int = HELD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._records: deque[bytes] = deque()
        self._dropped = 0
        self._lock = threading.Lock()
        self.num_bytes = 0

    def add(self, record: bytes) -> int:
        """Add a record. Returns the number of bytes that were dropped for it."""
        with self._lock:
            self._records.append(record)
            self.num_bytes += len(record)
            return self._trim()

    def take(self) -> tuple[list[bytes], int]:
        """Remove and return all records, and the number of those that were dropped before them."""
        with self._lock:
            records, dropped = list(self._records), self._dropped
            self._records.clear()
            self.num_bytes = self._dropped = 0
            return records, dropped

    def put_back(self, records: list[bytes], dropped: int) -> int:
        """Undo `take`. Returns the number of bytes that were dropped for newer records."""
        with self._lock:
            self._records.extendleft(reversed(records))
            self.num_bytes += sum(map(len, records))
            self._dropped += dropped
            return self._trim()

    def _trim(self) -> int:
        before = self.num_bytes
        while self.num_bytes > self._max_bytes and len(self._records) > 1:
            self.num_bytes -= len(self._records.popleft())
            self._dropped += 1
        return before - self.num_bytes


class Losses:
    """What the files of a run lack because they could not be written, and messages about that for the user."""

    def __init__(self) -> None:
        self._messages: deque[str] = deque(maxlen=8)
        self._lock = threading.Lock()
        self._dropped: dict[str, int] = {}
        self._held: dict[str, int] = {}  # bytes in memory of each file that cannot be written
        self._reported: dict[str, int] = {}

    def totals(self) -> dict[str, int]:
        """Return the number of missing bytes by file, including those that may still be written."""
        with self._lock:
            names = sorted({*self._dropped, *(name for name, held in self._held.items() if held)})
            return {name: self._dropped.get(name, 0) + self._held.get(name, 0) for name in names}

    def drain_messages(self) -> list[str]:
        """Return the messages since the last call."""
        return [self._messages.popleft() for _ in range(len(self._messages))]

    def drop(self, name: str, num_bytes: int) -> None:
        if num_bytes:
            with self._lock:
                self._dropped[name] = self._dropped.get(name, 0) + num_bytes

    def failed(self, name: str, error: OSError, held: int) -> None:
        with self._lock:
            if not self._held:
                self._messages.append(
                    f"{name} cannot be written: {explain_os_error(error)}. The run continues, and the newest data of "
                    "each file is held in memory"
                )
            self._held[name] = held

    def recovered(self, name: str) -> None:
        with self._lock:
            self._held.pop(name, None)
            if self._held:
                return
            new = {each: lost - self._reported.get(each, 0) for each, lost in self._dropped.items()}
            self._reported = dict(self._dropped)
            lost = describe_losses({each: num_bytes for each, num_bytes in new.items() if num_bytes})
            self._messages.append(f"files can be written again; {lost or 'nothing'} was lost")


def describe_losses(losses: dict[str, int]) -> str:
    """Describe the missing bytes of each file: `3.1 MB of actors-0.log, 0.2 MB of journal.jsonl`."""
    return ", ".join(f"{num_bytes / 1e6:,.1f} MB of {name}" for name, num_bytes in losses.items())


class BoundedFile:
    """A file that grows by whole records. Writing it never raises.

    If the disk is full or broken, the newest `held_bytes` are held in memory and written once that works again. `gap`
    returns the record that replaces a number of dropped records. With `max_bytes`, the file is renamed to `NAME.1` when
    it has half that size, and the new one begins with `header`. The file is closed between writes, so that a user can
    remove it to free space. `name` is used in messages.
    """

    def __init__(
        self,
        path: Path,
        losses: Losses | None = None,
        *,
        name: str = "",
        max_bytes: int = 0,
        held_bytes: int = HELD_BYTES,
        gap: Callable[[int], bytes] = lambda dropped: b"",
        header: bytes = b"",
        lines: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lines`: remove a partial last line, which a killed writer may have left."""
        self._path = path
        self._name = name or path.name
        self._losses = losses or Losses()
        self._max_bytes = max_bytes
        self._gap, self._header = gap, header
        self._now = now
        self._backlog = Backlog(held_bytes)
        self._writing = threading.Lock()
        self._repair = lines
        self._exists = False
        self._retry_at: float | None = None  # time of the next attempt, after an error

    @property
    def failing(self) -> bool:
        return self._retry_at is not None

    def append(self, record: bytes) -> None:
        self.hold(record)
        self.flush()

    def hold(self, record: bytes) -> None:
        """Add a record without writing it."""
        self._losses.drop(self._name, self._backlog.add(record))

    def flush(self, now: bool = False) -> None:
        """Write the records that are held. After an error, wait for the time of the next attempt, unless `now`."""
        with self._writing:
            if self._retry_at is not None and not now and self._now() < self._retry_at:
                return
            records, dropped = self._backlog.take()
            if not records and not dropped and self._exists:
                return
            try:
                self._write((self._gap(dropped) if dropped else b"") + b"".join(records))
                self._exists = True
            except OSError as error:
                self._losses.drop(self._name, self._backlog.put_back(records, dropped))
                self._losses.failed(self._name, error, self._backlog.num_bytes)
                self._retry_at = self._now() + RETRY_SECONDS
                return
            if self._retry_at is not None:
                self._retry_at = None
                self._losses.recovered(self._name)

    def close(self) -> None:
        """Make a last attempt to write the records that an error has held back."""
        if self.failing:
            self.flush(now=True)

    def _write(self, data: bytes) -> None:
        _check_room()
        descriptor = _open_to_append(self._path)
        try:
            if self._repair:
                _remove_partial_line(descriptor)
                self._repair = False
            end = os.fstat(descriptor).st_size
            if self._max_bytes and end and end + len(data) > self._max_bytes // 2:
                os.replace(self._path, rotated(self._path))
                data, end = self._header + data, 0
                new = _open_to_append(self._path)
                os.close(descriptor)
                descriptor = new
            try:
                written = 0
                while written < len(data):
                    written += os.write(descriptor, data[written:])
            except OSError:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)


def rotated(path: Path) -> Path:
    """Return the name of the file with the data before those in `path`."""
    return path.with_name(f"{path.name}.1")


def _open_to_append(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


def _remove_partial_line(descriptor: int) -> None:
    if size := os.fstat(descriptor).st_size:
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
        os.ftruncate(descriptor, end)
