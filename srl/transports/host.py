"""The transport between processes on one host: SEQPACKET sockets, which can also pass shared memory."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import socket
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from srl.api.transport import ChannelClosed
from srl.base.wire import Codec
from srl.transports.endpoints import Refusals
from srl.transports.host_channel import HostChannel

PREFIX = "unix:"
MAX_PATH_BYTES = 107  # limit of sockaddr_un, without the final zero byte
BACKLOG = 1024
CONNECT_TIMEOUT = 3.0
SEND_BUFFER_BYTES = 2**20


class HostListener:
    def __init__(self, sock: socket.socket, path: Path, codec: Codec, user: int, refusals: Refusals) -> None:
        self.address = f"{PREFIX}{path}"
        self.refused = refusals.counts
        self._socket = sock
        self._path = path
        self._inode = path.stat().st_ino
        self._codec = codec
        self._user = user
        self._refusals = refusals

    def accept(self) -> HostChannel | None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return None
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._refusals.add("limit", f"no file descriptor left for a connection at {self.address}: {error}")
                return None
            process, user = _peer_of(sock)
            if user == self._user:
                return _channel(sock, self._codec, f"{PREFIX}process {process}", self._refusals)
            sock.close()
            self._refusals.add("user", f"process {process} of user {user} at {self.address}")

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._socket.close()
        with _locked(self._path.parent):
            # Another listener may have taken over the name; remove only the socket file of this one.
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                self._path.unlink()


class HostTransport:
    """Transport over sockets in a directory that only its owner can access (created if missing)."""

    def __init__(self, directory: Path, *, user: int | None = None, codec: Callable[[type], Codec] = Codec) -> None:
        """`user`: uid that peers must have (default: that of this process)."""
        self.refusals = Refusals()
        self._directory = directory.absolute()
        self._user = os.getuid() if user is None else user
        self._codec = codec
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._directory.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(
                f"{self._directory} must belong to this user alone: expected mode 700, found {status.st_mode & 0o777:o}"
            )

    def listen(self, name: str, messages: type) -> HostListener:
        """Listen as `name`. The name of a listener that died is taken over."""
        path = self._directory / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.sock"
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise ValueError(f"socket path {path} has more than {MAX_PATH_BYTES} bytes; use a shorter directory")
        sock = _socket()
        try:
            with _locked(self._directory):
                if path.exists() and _is_served(path):
                    raise ValueError(f"another worker already listens as {name!r} at {path}; choose another name")
                path.unlink(missing_ok=True)
                sock.bind(os.fspath(path))
                sock.listen(BACKLOG)
                sock.setblocking(False)
                return HostListener(sock, path, self._codec(messages), self._user, Refusals(self.refusals))
        except BaseException:
            sock.close()
            raise

    def connect(self, address: str, messages: type) -> HostChannel:
        if not address.startswith(PREFIX) or "\0" in address:  # the kernel would ignore what follows a zero byte
            raise ChannelClosed(f"expected an address like {PREFIX}/directory/name, found {address!r}")
        sock = _socket()
        try:
            sock.connect(address.removeprefix(PREFIX))
        except (OSError, UnicodeError) as error:
            sock.close()
            raise ChannelClosed(f"nothing listens at {address!r}: {error}") from error
        process, user = _peer_of(sock)
        if user != self._user:
            sock.close()
            self.refusals.add("user", f"{address} is served by user {user}")
            raise ChannelClosed(f"{address} is served by user {user} (process {process}), expected user {self._user}")
        return _channel(sock, self._codec(messages), address, self.refusals)


def _socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A full backlog makes connect wait; the send timeout limits that wait.
    timeout = struct.pack("ll", int(CONNECT_TIMEOUT), 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
    return sock


def _channel(sock: socket.socket, codec: Codec, peer: str, refusals: Refusals) -> HostChannel:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return HostChannel(sock, codec, peer, refusals)


def _peer_of(sock: socket.socket) -> tuple[int, int]:
    """Return the process id and user id at the other end, as reported by the kernel."""
    credentials = struct.Struct("3i")
    process, user, _ = credentials.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return process, user


def _is_served(path: Path) -> bool:
    with _socket() as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:
            pass  # it listens, but its backlog is full
        return True


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Let one process at a time replace or remove socket files; held for microseconds."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # the run's directory was removed meanwhile: nothing to protect
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
