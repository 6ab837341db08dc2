"""Ownership of a run directory: one process at a time may write to it, on all hosts that share its file system.

Kernel locks are local on some shared file systems and outlive their host on others, so ownership rests on what all file
systems offer: only one process can create a file. The file `owner.N` names the N-th owner. A process takes over from a
dead one by creating `owner.N+1` and removing `owner.N`; an owner whose file is gone must not write any more.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import socket
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from srl.base.clock import ObservedTime
from srl.base.process import boot_id

PREFIX = "owner."
BEAT_SECONDS = 2.0
LEASE_SECONDS = 15.0
"""Time without a new beat after which an owner whose process cannot be looked up, because it is on another host, counts
as dead. Measured by the clock of the process that waits."""
LOOK_SECONDS = 0.2
MAX_GAP_SECONDS = 1.0  # a look that takes longer, because the file server does not answer, counts as this
RECORD_BYTES = 512  # size of the file, which is rewritten in place
CLOCK_SECONDS = 60.0
"""Time for which the difference between the clocks of a file system and of this process is kept."""
GONE = (errno.ENOENT, errno.ESTALE)

_clocks: dict[int, tuple[float, float]] = {}  # device -> when it was measured, and the difference then


class Owner(msgspec.Struct, frozen=True):
    """Content of an owner's file."""

    host: str
    boot: str  # id of the host's boot
    namespace: str  # namespace in which `pid` is valid
    pid: int
    started: int  # start time of the process in ticks since the boot, because process ids are reused
    beat: int = 0
    released: bool = False

    @property
    def is_local(self) -> bool:
        """Whether this process can look up the owner's process."""
        return (self.boot, self.namespace) == (boot_id(), _namespace())

    @property
    def is_alive(self) -> bool:
        """Whether the owner's process, which must be local, is alive."""
        return not self.released and _start_of(self.pid) in (self.started, None)


class Owned(Exception):
    """Another process owns the directory."""

    def __init__(self, owner: Owner | None) -> None:
        super().__init__(owner)
        self.owner = owner


class Superseded(OSError):
    """Another process has taken over the directory."""


@dataclass
class Ownership:
    """Ownership of a directory by this process. A thread renews it until `release`."""

    directory: Path
    epoch: int
    owner: Owner
    _lost: bool = False
    _released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._renew, name="run-ownership", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        return _path(self.directory, self.epoch)

    @property
    def lost(self) -> bool:
        """Whether another process has taken over, as of the last beat."""
        return self._lost

    def check(self) -> None:
        """Raise Superseded if another process has taken over. Reads the file, so that a shared file system asks its
        server; call it directly before a write that must not be repeated."""
        if not self._lost:
            try:
                found = _read(self.path)
            except OSError as error:
                self._lost = error.errno in GONE
            else:
                self._lost = found is not None and (found.boot, found.pid) != (self.owner.boot, self.owner.pid)
        if self._lost:
            raise Superseded(f"another process has taken over {self.directory}, because this one seemed dead")

    def _renew(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            self._write(msgspec.structs.replace(self.owner, beat=self.owner.beat + 1))

    def _write(self, owner: Owner) -> None:
        self.owner = owner
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, _encode(owner), 0)
            finally:
                os.close(descriptor)  # a network file system sends the content to its server now
        except OSError as error:  # a full or broken disk: another host may take over, which `check` finds
            self._lost = self._lost or error.errno in GONE

    def release(self) -> None:
        self._released.set()
        self._thread.join()
        if not self._lost:
            self._write(msgspec.structs.replace(self.owner, released=True))


def acquire(directory: Path, patience: float = 0.0, force: bool = False) -> Ownership:
    """Become the owner of a directory, waiting up to `patience` seconds for a living owner to release it, and up to
    LEASE_SECONDS to see whether an owner on another host is alive. Raises Owned, unless `force` is set: then the
    directory is taken from the living owner, which finds out before its next write."""
    looks = ObservedTime(time.monotonic(), MAX_GAP_SECONDS)
    known: tuple[int, Owner | None] | None = None
    waited, unchanged, changed = 0.0, 0.0, False
    while True:
        found = newest(directory)
        passed = looks.passed(time.monotonic())
        waited += passed
        same = found == known
        unchanged = unchanged + passed if same else 0.0
        changed = changed or (known is not None and not same)
        known = found
        epoch, owner = found
        if epoch == 0 or _is_free(owner, unchanged):
            free = True
        else:
            alive = changed or (owner is not None and owner.is_local)
            free = force and waited >= patience and alive
            if alive and waited >= patience and not force:
                raise Owned(owner)
        if free and (ownership := _claim(directory, epoch + 1)) is not None:
            return ownership
        if not free:
            time.sleep(LOOK_SECONDS)


def newest(directory: Path) -> tuple[int, Owner | None]:
    """Return the number of the newest owner and its record, which is None while it is being written; 0 without one."""
    while True:
        epoch = max(_epochs(directory), default=0)
        try:
            return epoch, _read(_path(directory, epoch)) if epoch else None
        except OSError as error:
            if error.errno not in GONE:
                raise  # otherwise the next owner has just removed it


def is_owned(directory: Path) -> bool:
    """Return whether a living process owns the directory. An owner on another host counts as alive if it wrote its
    file recently by the clock of the file system. In a directory of another user, where this process writes no file to
    read that clock, it waits for a new beat, up to half of LEASE_SECONDS."""
    try:
        epoch, owner = found = newest(directory)
        if owner is None or owner.released or owner.is_local:
            return owner is not None and owner.is_alive
        age = _file_system_time(directory) - _path(directory, epoch).stat().st_mtime
        if age > -1.0:  # the clock of files is coarse
            return age < 2 * LEASE_SECONDS
        deadline = time.monotonic() + LEASE_SECONDS / 2
        while newest(directory) == found and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        after = newest(directory)
        return after != found and not (after[1] is not None and after[1].released)
    except OSError:
        return False


def _file_system_time(directory: Path) -> float:
    """Return what time it is for the file system of a directory, or -inf if it belongs to another user."""
    status = directory.stat()
    known = _clocks.get(status.st_dev)
    if known is not None and time.monotonic() - known[0] < CLOCK_SECONDS:
        return time.monotonic() + known[1]
    if status.st_uid != os.geteuid():
        return -math.inf
    with tempfile.NamedTemporaryFile(prefix=".srl-clock-", dir=directory) as file:
        file.write(b"0")
        file.flush()
        os.fsync(file.fileno())  # a server may set the time only then
        _clocks[status.st_dev] = (time.monotonic(), os.fstat(file.fileno()).st_mtime - time.monotonic())
    return _file_system_time(directory)


def signal_owner(directory: Path, number: int) -> None:
    """Send a signal to the process that owns the directory. Raises OSError if it is on another host."""
    _, owner = newest(directory)
    if owner is None or owner.released:
        return
    if not owner.is_local:
        raise OSError(
            f"{directory.name} runs on host {owner.host} (process {owner.pid}) and does not answer; stop it there"
        )
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(owner.pid)
        try:
            if owner.is_alive:  # otherwise the descriptor may belong to another process with the same id
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _is_free(owner: Owner | None, unchanged: float) -> bool:
    if owner is not None and (owner.released or owner.is_local):
        return not owner.is_alive
    return unchanged >= LEASE_SECONDS


def _claim(directory: Path, epoch: int) -> Ownership | None:
    """Create the file of owner number `epoch`. Return None if another process was faster."""
    path = _path(directory, epoch)
    owner = Owner(socket.gethostname(), boot_id(), _namespace(), os.getpid(), _start_of(os.getpid()) or 0)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return None
    try:
        try:
            os.write(descriptor, _encode(owner))
        finally:
            os.close(descriptor)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    others = [number for number in _epochs(directory) if number != epoch]
    if any(number > epoch for number in others):  # this process was slow: `epoch` was created and removed before
        path.unlink(missing_ok=True)
        return None
    for number in others:
        with contextlib.suppress(OSError):
            _path(directory, number).unlink()
    return Ownership(directory, epoch, owner)


def _epochs(directory: Path) -> list[int]:
    names = [name.removeprefix(PREFIX) for name in os.listdir(directory) if name.startswith(PREFIX)]
    return [int(name) for name in names if name.isdecimal()]


def _path(directory: Path, epoch: int) -> Path:
    return directory / f"{PREFIX}{epoch}"


def _encode(owner: Owner) -> bytes:
    return msgspec.json.encode(owner).ljust(RECORD_BYTES)


def _read(path: Path) -> Owner | None:
    """Return an owner's record, or None if it is incomplete."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        content = os.read(descriptor, RECORD_BYTES)
    finally:
        os.close(descriptor)
    try:
        return msgspec.json.decode(content, type=Owner)
    except msgspec.MsgspecError:
        return None


def _namespace() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _start_of(pid: int) -> int | None:
    """Return the start time of a process in ticks, -1 if it has ended, or None if it cannot be seen."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return -1
    except OSError:
        return None
    return -1 if fields[0] in "ZX" else int(fields[19])
