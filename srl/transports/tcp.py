"""The transport between hosts: TCP, authenticated before anything is parsed, with tagged or encrypted records."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Callable

from srl.api.transport import ChannelClosed
from srl.base.wire import Codec
from srl.transports.endpoints import Refusals
from srl.transports.handshake import (
    ClientHandshake,
    Credentials,
    HandshakeError,
    ServerHandshake,
    SocketHandshake,
    is_connected,
)
from srl.transports.tcp_channel import TcpChannel
from srl.transports.tcp_records import RecordCodecs

PREFIX = "tcp:"
BACKLOG = 1024
CONNECT_TIMEOUT = 3.0
ANSWER_TIMEOUT = 30.0
"""Seconds that a client waits for the server's answer; long, because the server may be computing an update."""
PROOF_TIMEOUT = 3.0  # seconds that a server waits for a client to prove itself
MAX_UNPROVEN = 128
"""Maximum number of handshakes in progress. Beyond this, the oldest is closed: legitimate peers take milliseconds."""
MAX_ACCEPTS = 64


class TcpListener:
    """Listener whose `fileno` is also readable for handshakes in progress; call `accept` until it returns None."""

    def __init__(
        self, sock: socket.socket, address: str, codec: Codec, credentials: Credentials, refusals: Refusals
    ) -> None:
        self.address = address
        self._socket = sock
        self._codec = codec
        self._credentials = credentials
        self._refusals = refusals
        self._unproven: dict[int, tuple[SocketHandshake, str]] = {}  # by descriptor, oldest first
        self._ready: deque[TcpChannel] = deque()
        self._poll = select.epoll()
        self._poll.register(sock, select.EPOLLIN)

    def accept(self) -> TcpChannel | None:
        if not self._ready:
            for descriptor, _ in self._poll.poll(0):
                if descriptor == self._socket.fileno():
                    self._accept_connections()
                elif descriptor in self._unproven:  # it may have been closed just now in favor of a newer one
                    self._continue(descriptor)
            self._expire()
        return self._ready.popleft() if self._ready else None

    def _accept_connections(self) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                sock, address = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._refusals.add("limit", f"no file descriptor left for a connection at {self.address}: {error}")
                    self._refuse_oldest("no descriptors left")
                return
            sock.setblocking(False)
            if len(self._unproven) >= MAX_UNPROVEN:
                self._refuse_oldest("too many unproven connections")
            handshake = SocketHandshake(sock, ServerHandshake(self._credentials), PROOF_TIMEOUT)
            self._unproven[sock.fileno()] = handshake, f"{PREFIX}{address[0]}:{address[1]}"
            self._poll.register(sock, select.EPOLLIN)
            self._continue(sock.fileno())

    def _continue(self, descriptor: int) -> None:
        handshake, peer = self._unproven[descriptor]
        try:
            keys = handshake.progress()
        except HandshakeError as error:
            self._refuse(descriptor, str(error))
            return
        if keys is not None:
            self._poll.unregister(descriptor)
            del self._unproven[descriptor]
            channel = TcpChannel(handshake.socket, self._codec, peer, self._refusals, RecordCodecs.of(keys))
            self._ready.append(channel)

    def _expire(self) -> None:
        """Refuse late handshakes. Called after reading, so that no peer is refused because this process was busy."""
        now = time.monotonic()
        for descriptor in [key for key, (handshake, _) in self._unproven.items() if handshake.deadline < now]:
            self._refuse(descriptor, "did not finish the handshake in time")

    def _refuse_oldest(self, detail: str) -> None:
        if self._unproven:
            self._refuse(next(iter(self._unproven)), detail)

    def _refuse(self, descriptor: int, detail: str) -> None:
        handshake, peer = self._unproven.pop(descriptor)
        self._poll.unregister(descriptor)
        handshake.socket.close()
        self._refusals.add("handshake", f"{peer} {detail}")

    def fileno(self) -> int:
        return self._poll.fileno()

    def close(self) -> None:
        self._socket.close()
        self._poll.close()
        for handshake, _ in self._unproven.values():
            handshake.socket.close()
        self._unproven.clear()
        while self._ready:
            self._ready.popleft().close()


class TcpTransport:
    """Transport between workers that hold the same secret and belong to the same run."""

    def __init__(
        self,
        secret: bytes,
        run: str,
        bind_host: str = "127.0.0.1",
        port: int = 0,
        *,
        encrypt: bool = False,
        codec: Callable[[type], Codec] = Codec,
        connect_wait: float = 0.1,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """`connect_wait`: seconds that `connect` blocks for the other host to answer."""
        if bind_host in ("", "0.0.0.0", "::"):
            raise ValueError(f"{bind_host!r} means every interface; give the address at which others reach this host")
        self.refusals = Refusals()
        self._credentials = Credentials(secret, run, encrypt)
        self._bind_host = bind_host
        self._port = port
        self._codec = codec
        self._connect_wait = connect_wait
        self._connect_timeout = connect_timeout

    def listen(self, name: str, messages: type) -> TcpListener:
        try:
            family = socket.getaddrinfo(self._bind_host, self._port, type=socket.SOCK_STREAM)[0][0]
            sock = socket.create_server((self._bind_host, self._port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise OSError(error.errno, f"{name} cannot listen: {self._explain(error)}") from error
        sock.setblocking(False)
        address = f"{PREFIX}{self._bind_host}:{sock.getsockname()[1]}"
        return TcpListener(sock, address, self._codec(messages), self._credentials, self.refusals)

    def _explain(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return f"port {self._port} of {self._bind_host} is in use; choose another, or 0 for any free one"
        if error.errno == errno.EACCES:
            return f"port {self._port} is reserved; choose one above 1023, or 0 for any free one"
        return f"{self._bind_host} is not an address of this host ({error.strerror}); choose one of `ip address`"

    def connect(self, address: str, messages: type) -> TcpChannel:
        """Connect, and wait up to `connect_wait` seconds for the other host to answer. A slower connect (up to
        `connect_timeout`) and the handshake continue in the channel, whose methods raise ChannelClosed if they fail."""
        host, separator, port = address.removeprefix(PREFIX).rpartition(":")
        if not address.startswith(PREFIX) or not separator or not port.isdecimal():
            raise ValueError(f"expected an address like {PREFIX}host:port, found {address!r}")
        sock, connected = self._dial(address, host, int(port))
        try:
            timeout = None if connected else self._connect_timeout
            handshake = SocketHandshake(sock, ClientHandshake(self._credentials), ANSWER_TIMEOUT, timeout)
            return TcpChannel(sock, self._codec(messages), address, self.refusals, handshake)
        except HandshakeError as error:
            sock.close()
            raise ChannelClosed(f"{address} {error}") from error

    def _dial(self, address: str, host: str, port: int) -> tuple[socket.socket, bool]:
        """Return a socket, and whether it is connected yet: a host that does not answer must not block a worker."""
        try:
            family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = socket.socket(family, kind, protocol)
        except (OSError, OverflowError) as error:
            raise ChannelClosed(f"nothing listens at {address}: {error}") from error
        try:
            sock.setblocking(False)
            failure = sock.connect_ex(target)
            if failure not in (0, errno.EINPROGRESS):
                raise HandshakeError(os.strerror(failure))
            connected = is_connected(sock, self._connect_wait)
            if connected and sock.getsockname() == sock.getpeername():  # raises OSError if it has already been closed
                # A free local port can connect to itself: TCP's simultaneous open, not a listener.
                raise HandshakeError("the socket connected to itself: nothing listens at this port")
            return sock, connected
        except (OSError, OverflowError) as error:
            sock.close()
            raise ChannelClosed(f"nothing listens at {address}: {error}") from error
