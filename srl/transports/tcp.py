"""The transport between hosts: raw TCP, authenticated before anything is parsed, tagged or encrypted afterwards."""

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
from srl.transports.handshake import ClientHandshake, Credentials, HandshakeError, ServerHandshake
from srl.transports.handshake_io import Greeting, is_connected
from srl.transports.refusals import Refusals
from srl.transports.tcp_channel import TcpChannel

PREFIX = "tcp:"
BACKLOG = 1024
CONNECT_TIMEOUT = 3.0
ANSWER_TIMEOUT = 30.0
"""How long a client waits for the server's answer, which may be late because the server is in a long update."""
STRANGER_TIMEOUT = 3.0
"""How long a server waits for a client to prove itself."""
MAX_STRANGERS = 128
"""Connections that have not proved themselves. The oldest goes when one more comes: honest peers take milliseconds."""
MAX_ACCEPTS = 64


class TcpListener:
    """`fileno` also wakes for handshakes on their way; call `accept` until it returns None."""

    def __init__(
        self, sock: socket.socket, address: str, codec: Codec, credentials: Credentials, refusals: Refusals
    ) -> None:
        self.address = address
        self._socket = sock
        self._codec = codec
        self._credentials = credentials
        self._refusals = refusals
        self._strangers: dict[int, tuple[Greeting, str]] = {}  # by descriptor, oldest first
        self._ready: deque[TcpChannel] = deque()
        self._poll = select.epoll()
        self._poll.register(sock, select.EPOLLIN)

    def accept(self) -> TcpChannel | None:
        if not self._ready:
            for descriptor, _ in self._poll.poll(0):
                if descriptor == self._socket.fileno():
                    self._accept_strangers()
                elif descriptor in self._strangers:  # not one that had to make room just now
                    self._greet(descriptor)
            self._expire()
        return self._ready.popleft() if self._ready else None

    def _accept_strangers(self) -> None:
        for _ in range(MAX_ACCEPTS):
            try:
                sock, address = self._socket.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._refusals.add("limit", f"no descriptor for a new connection at {self.address}: {error}")
                    self._refuse_oldest("no descriptors left")
                return
            sock.setblocking(False)
            if len(self._strangers) >= MAX_STRANGERS:
                self._refuse_oldest("too many strangers")
            greeting = Greeting(sock, ServerHandshake(self._credentials), STRANGER_TIMEOUT)
            self._strangers[sock.fileno()] = greeting, f"{PREFIX}{address[0]}:{address[1]}"
            self._poll.register(sock, select.EPOLLIN)
            self._greet(sock.fileno())

    def _greet(self, descriptor: int) -> None:
        greeting, peer = self._strangers[descriptor]
        try:
            session = greeting.progress()
        except HandshakeError as error:
            self._refuse(descriptor, str(error))
            return
        if session is not None:
            self._poll.unregister(descriptor)
            del self._strangers[descriptor]
            self._ready.append(TcpChannel(greeting.socket, self._codec, peer, self._refusals, session))

    def _expire(self) -> None:
        """After those with news were heard: who answered in time is not refused because we were busy."""
        now = time.monotonic()
        for descriptor in [key for key, (greeting, _) in self._strangers.items() if greeting.deadline < now]:
            self._refuse(descriptor, "did not finish the handshake in time")

    def _refuse_oldest(self, detail: str) -> None:
        if self._strangers:
            self._refuse(next(iter(self._strangers)), detail)

    def _refuse(self, descriptor: int, detail: str) -> None:
        greeting, peer = self._strangers.pop(descriptor)
        self._poll.unregister(descriptor)
        greeting.socket.close()
        self._refusals.add("handshake", f"{peer} {detail}")

    def fileno(self) -> int:
        return self._poll.fileno()

    def close(self) -> None:
        self._socket.close()
        self._poll.close()
        for greeting, _ in self._strangers.values():
            greeting.socket.close()
        self._strangers.clear()
        while self._ready:
            self._ready.popleft().close()


class TcpTransport:
    """Channels between workers that hold the same secret and belong to the same run."""

    def __init__(
        self,
        secret: bytes,
        run: str,
        bind_host: str = "127.0.0.1",
        port: int = 0,
        advertise: str | None = None,
        *,
        encrypt: bool = False,
        codec: Callable[[type], Codec] = Codec,
        patience: float = 0.1,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """`advertise` is the host name under which others reach `bind_host`, if it is not the same."""
        if advertise is None and bind_host in ("", "0.0.0.0", "::"):
            raise ValueError(f"{bind_host!r} means every interface; say with `advertise` where others reach this host")
        self.refusals = Refusals()
        self._credentials = Credentials(secret, run, encrypt)
        self._bind_host = bind_host
        self._port = port
        self._advertise = advertise or bind_host
        self._codec = codec
        self._patience = patience
        self._connect_timeout = connect_timeout

    def listen(self, name: str, messages: type) -> TcpListener:
        try:
            family = socket.getaddrinfo(self._bind_host, self._port, type=socket.SOCK_STREAM)[0][0]
            sock = socket.create_server((self._bind_host, self._port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise OSError(error.errno, f"{name} cannot listen: {self._explain(error)}") from error
        sock.setblocking(False)
        address = f"{PREFIX}{self._advertise}:{sock.getsockname()[1]}"
        return TcpListener(sock, address, self._codec(messages), self._credentials, self.refusals)

    def _explain(self, error: OSError) -> str:
        if error.errno == errno.EADDRINUSE:
            return f"port {self._port} of {self._bind_host} is in use; choose another, or 0 for any free one"
        if error.errno == errno.EACCES:
            return f"port {self._port} is reserved; choose one above 1023, or 0 for any free one"
        return f"{self._bind_host} is no address of this host ({error.strerror}); choose one that `ip address` shows"

    def connect(self, address: str, messages: type) -> TcpChannel:
        """Waits `patience` seconds for the other host to answer; a longer way (`connect_timeout` at most) and the
        handshake go on in the channel: what fails there, and what the other end refuses, its methods raise as
        ChannelClosed."""
        host, separator, port = address.removeprefix(PREFIX).rpartition(":")
        if not address.startswith(PREFIX) or not separator or not port.isdecimal():
            raise ValueError(f"wanted an address like {PREFIX}host:port, found {address!r}")
        sock, connected = self._dial(address, host, int(port))
        try:
            timeout = None if connected else self._connect_timeout
            greeting = Greeting(sock, ClientHandshake(self._credentials), ANSWER_TIMEOUT, timeout)
            return TcpChannel(sock, self._codec(messages), address, self.refusals, greeting)
        except HandshakeError as error:
            sock.close()
            raise ChannelClosed(f"{address} {error}") from error

    def _dial(self, address: str, host: str, port: int) -> tuple[socket.socket, bool]:
        """A socket, and whether TCP is up already: a host that does not answer must not hold up a worker."""
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = socket.socket(family, kind, protocol)
        except (OSError, OverflowError) as error:
            raise ChannelClosed(f"nobody listens at {address}: {error}") from error
        try:
            sock.setblocking(False)
            failure = sock.connect_ex(where)
            if failure not in (0, errno.EINPROGRESS):
                raise HandshakeError(os.strerror(failure))
            connected = is_connected(sock, self._patience)
            if connected and sock.getsockname() == sock.getpeername():  # which may be gone again already: OSError
                # A free port of our own range can be dialled from itself: TCP's simultaneous open, not a listener.
                raise HandshakeError("the connection came back to itself")
            return sock, connected
        except (OSError, OverflowError) as error:
            sock.close()
            raise ChannelClosed(f"nobody listens at {address}: {error}") from error
