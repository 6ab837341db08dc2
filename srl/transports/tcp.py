"""The transport between hosts: TCP, authenticated before anything is parsed, with tagged or encrypted records."""

from __future__ import annotations

import re
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

from srl.api.transport import ChannelClosed
from srl.base.wire import Codec
from srl.transports import sockets
from srl.transports.endpoints import Refusals
from srl.transports.handshake import (
    ClientHandshake,
    Credentials,
    HandshakeError,
    SeenKeys,
    ServerHandshake,
    SocketHandshake,
)
from srl.transports.tcp_channel import TcpChannel
from srl.transports.tcp_records import RecordCodecs

PREFIX = "tcp:"
ADDRESS = re.compile(rf"{PREFIX}([\w.:%-]+):([0-9]{{1,5}})/([\w./%~-]+)", re.ASCII)  # host, port, quoted name
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
        self, sock: socket.socket, host: str, name: str, codec: Codec, credentials: Credentials, refusals: Refusals
    ) -> None:
        self.address = f"{PREFIX}{host}:{sock.getsockname()[1]}/{name}"
        self.refused = refusals.counts
        self._name = name
        self._socket = sock
        self._codec = codec
        self._credentials = credentials
        self._refusals = refusals
        self._seen = SeenKeys()
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
        make_room = partial(self._refuse_oldest, "no descriptors left")
        for sock, peer in sockets.accept(self._socket, MAX_ACCEPTS, self._refusals, make_room):
            if len(self._unproven) >= MAX_UNPROVEN:
                self._refuse_oldest("too many unproven connections")
            handshake = SocketHandshake(sock, ServerHandshake(self._credentials, self._name, self._seen), PROOF_TIMEOUT)
            self._unproven[sock.fileno()] = handshake, f"{PREFIX}{peer}"
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
        on_refusal: Callable[[], None] = lambda: None,
    ) -> None:
        """`connect_wait`: seconds that `connect` blocks for the other host to answer."""
        sockets.check_bind_host(bind_host)
        self.refusals = Refusals(on_add=on_refusal)
        self._credentials = Credentials(secret, run, encrypt)
        self._bind_host = bind_host
        self._port = port
        self._codec = codec
        self._connect_wait = connect_wait
        self._connect_timeout = connect_timeout

    def listen(self, name: str, messages: type) -> TcpListener:
        """Listen as `name`, which is part of the address. Only clients that dial this name are accepted."""
        sock = sockets.listen(name, self._bind_host, self._port, BACKLOG)
        refusals = Refusals(self.refusals)
        return TcpListener(sock, self._bind_host, quote(name), self._codec(messages), self._credentials, refusals)

    def connect(self, address: str, messages: type) -> TcpChannel:
        """Connect, and wait up to `connect_wait` seconds for the other host to answer. A slower connect (up to
        `connect_timeout`) and the handshake continue in the channel, whose methods raise ChannelClosed if they fail."""
        parts = ADDRESS.fullmatch(address)
        if parts is None:
            raise ChannelClosed(f"expected an address like {PREFIX}host:port/name, found {address!r}")
        host, port, name = parts.groups()
        sock, connected = sockets.dial(address, host, int(port), self._connect_wait)
        try:
            timeout = None if connected else self._connect_timeout
            handshake = SocketHandshake(sock, ClientHandshake(self._credentials, name), ANSWER_TIMEOUT, timeout)
            return TcpChannel(sock, self._codec(messages), address, self.refusals, handshake)
        except HandshakeError as error:
            sock.close()
            raise ChannelClosed(f"{address} {error}") from error
