"""The transport between processes of one host: SEQPACKET sockets that also hand over shared memory."""

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
from srl.transports.packets import PacketChannel
from srl.transports.refusals import Refusals

PREFIX = "unix:"
MAX_PATH_BYTES = 107  # of sockaddr_un, which ends in a zero
BACKLOG = 1024
CONNECT_TIMEOUT = 3.0
SEND_BUFFER_BYTES = 2**20


class HostListener:
    def __init__(self, sock: socket.socket, path: Path, codec: Codec, user: int, refusals: Refusals) -> None:
        self.address = f"{PREFIX}{path}"
        self._socket = sock
        self._path = path
        self._inode = path.stat().st_ino
        self._codec = codec
        self._user = user
        self._refusals = refusals

    def accept(self) -> PacketChannel | None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return None
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._refusals.add("limit", f"no descriptor for a new connection at {self.address}: {error}")
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
            # Another listener may have taken the name over; only our own socket file goes.
            if self._path.exists() and self._path.stat().st_ino == self._inode:
                self._path.unlink()


class HostTransport:
    """Sockets in a directory of the run that only its user may enter (created if missing)."""

    def __init__(self, directory: Path, *, user: int | None = None, codec: Callable[[type], Codec] = Codec) -> None:
        """`user` is the uid that peers must have: by default our own."""
        self.refusals = Refusals()
        self._directory = directory.absolute()
        self._user = os.getuid() if user is None else user
        self._codec = codec
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self._directory.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise PermissionError(
                f"{self._directory} must be ours alone: wanted mode 700, found {status.st_mode & 0o777:o}"
            )

    def listen(self, name: str, messages: type) -> HostListener:
        """A name is taken over if the process that listened under it is gone."""
        path = self._directory / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.sock"
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise ValueError(
                f"socket path {path} has more than {MAX_PATH_BYTES} bytes; give the run a shorter directory"
            )
        sock = _socket()
        try:
            with _locked(self._directory):
                if path.exists() and _is_served(path):
                    raise ValueError(f"{name!r} already listens at {path}; stop that worker or choose another name")
                path.unlink(missing_ok=True)
                sock.bind(os.fspath(path))
                sock.listen(BACKLOG)
                sock.setblocking(False)
                return HostListener(sock, path, self._codec(messages), self._user, self.refusals)
        except BaseException:
            sock.close()
            raise

    def connect(self, address: str, messages: type) -> PacketChannel:
        if not address.startswith(PREFIX):
            raise ValueError(f"wanted an address like {PREFIX}/directory/name, found {address!r}")
        sock = _socket()
        try:
            sock.connect(address.removeprefix(PREFIX))
        except OSError as error:
            sock.close()
            raise ChannelClosed(f"nobody listens at {address}: {error}") from error
        process, user = _peer_of(sock)
        if user != self._user:
            sock.close()
            self.refusals.add("user", f"{address} is served by user {user}")
            raise ChannelClosed(f"{address} is served by user {user} (process {process}), wanted user {self._user}")
        return _channel(sock, self._codec(messages), address, self.refusals)


def _socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A full backlog makes connect wait; the kernel takes the bound of that wait from the send timeout.
    timeout = struct.pack("ll", int(CONNECT_TIMEOUT), 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
    return sock


def _channel(sock: socket.socket, codec: Codec, peer: str, refusals: Refusals) -> PacketChannel:
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    return PacketChannel(sock, codec, peer, refusals)


def _peer_of(sock: socket.socket) -> tuple[int, int]:
    """Process and user at the other end, as the kernel knows them."""
    credentials = struct.Struct("3i")
    process, user, _ = credentials.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    return process, user


def _is_served(path: Path) -> bool:
    with _socket() as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            return False
        except BlockingIOError:  # alive, and its backlog is full
            return True
        return True


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """One process at a time replaces or removes socket files; held for microseconds."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # the run's directory was removed under us: nothing left to guard
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
