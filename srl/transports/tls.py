"""The transport of control connections: TLS 1.3 with the run's own certificate, for hosts that hold a join ticket."""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from srl.api.transport import ChannelClosed
from srl.base.wire import Codec, DecodeError
from srl.transports import sockets
from srl.transports.endpoints import Refusals
from srl.transports.join_ticket import NEVER, Identity, JoinTicket
from srl.transports.tls_channel import (
    EXPIRED,
    KNOCK,
    MAGIC,
    WRONG,
    ClientOpening,
    ServerOpening,
    TlsChannel,
    TlsStream,
    check_knock,
)

PREFIX = "tls:"
ADDRESS = re.compile(rf"{PREFIX}([\w.:%-]+):([0-9]{{1,5}})", re.ASCII)  # host, port
BACKLOG = 4096  # the kernel may allow fewer; a full backlog delays a host by a second, until it connects again
CONNECT_TIMEOUT = 3.0
ANSWER_TIMEOUT = 30.0
"""Seconds that a client waits for the server's answer; long, because the controller may be busy."""
OPENING_TIMEOUT = 3.0  # seconds that a server waits for a knock, and for a client that knocked to prove its ticket
MAX_STRANGERS = 256
"""Maximum number of connections without a knock. Beyond this, the oldest is closed: a client sends its knock as soon as
it is connected, so a stranger is not waited for while others wait to be accepted."""
MAX_OPENING = 128  # maximum number of TLS handshakes in progress; beyond this, the oldest is closed
MAX_ACCEPTS = 128  # connections accepted at once, so that a flood does not keep the controller from its other work
MAX_NONCES = 4096
"""Number of knocks remembered. Repeating one that an eavesdropper recorded does not lead to a handshake."""
ALERT = b"\x15\x03\x03\x00\x02\x02"  # a fatal TLS alert, except for its last byte
REASONS = {EXPIRED: "expired join file", WRONG: "wrong join file"}


@dataclass
class _Stranger:
    """A connection that has not sent a complete knock yet."""

    socket: socket.socket
    peer: str
    deadline: float
    received: bytes = b""


class TlsListener:
    """Listener whose `fileno` is also readable while connections are opening; call `accept` until it returns None."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        codec: Codec,
        identity: Identity,
        context: ssl.SSLContext,
        scope: str,
        refusals: Refusals,
    ) -> None:
        self.address = address
        self.refused = refusals.counts
        self._socket = sock
        self._codec = codec
        self._identity = identity
        self._scope = scope
        self._refusals = refusals
        self._context = context
        self._strangers: dict[int, _Stranger] = {}  # by descriptor, oldest first
        self._opening: dict[int, tuple[TlsChannel, float]] = {}  # by descriptor, with deadlines, oldest first
        self._nonces: deque[bytes] = deque(maxlen=MAX_NONCES)
        self._ready: deque[TlsChannel] = deque()
        self._poll = select.epoll()
        self._poll.register(sock, select.EPOLLIN)

    def accept(self) -> TlsChannel | None:
        if not self._ready:
            for descriptor, _ in self._poll.poll(0):
                if descriptor == self._socket.fileno():
                    self._accept_connections()
                elif descriptor in self._strangers:  # it may have been closed just now in favor of a newer one
                    self._read_knock(self._strangers[descriptor])
                elif descriptor in self._opening:
                    self._continue(descriptor)
            self._expire()
        return self._ready.popleft() if self._ready else None

    def _accept_connections(self) -> None:
        for sock, peer in sockets.accept(self._socket, MAX_ACCEPTS, self._refusals, partial(self._make_room, 0)):
            self._make_room(MAX_STRANGERS)
            stranger = _Stranger(sock, f"{PREFIX}{peer}", time.monotonic() + OPENING_TIMEOUT)
            self._strangers[sock.fileno()] = stranger
            self._poll.register(sock, select.EPOLLIN)
            self._read_knock(stranger)

    def _make_room(self, limit: int) -> None:
        if self._strangers and len(self._strangers) >= limit:
            self._refuse(next(iter(self._strangers.values())), "silent", "made room for newer connections")

    def _read_knock(self, stranger: _Stranger) -> None:
        try:
            data = stranger.socket.recv(KNOCK.size - len(stranger.received))
        except BlockingIOError:
            return
        except OSError as error:
            self._refuse(stranger, "closed", str(error))
            return
        stranger.received += data
        if not data:
            self._refuse(stranger, "closed", "closed the connection before it sent anything useful")
        elif not stranger.received.startswith(MAGIC[: len(stranger.received)]):
            self._refuse(stranger, "protocol", "uses another protocol")
        elif len(stranger.received) == KNOCK.size:
            self._answer_knock(stranger)

    def _answer_knock(self, stranger: _Stranger) -> None:
        try:
            nonce, alert = check_knock(stranger.received, self._identity, self._scope)
        except DecodeError as error:
            self._refuse(stranger, "protocol", str(error))
            return
        if alert is not None:
            self._refuse(stranger, REASONS[alert], "cannot join", ALERT + bytes([alert]))
            return
        if nonce in self._nonces:
            self._refuse(stranger, "repeated", "repeated the knock of another connection")
            return
        self._nonces.append(nonce)
        if len(self._opening) >= MAX_OPENING:
            self._refuse_opening(next(iter(self._opening)), "made room for newer connections")
        descriptor = stranger.socket.fileno()
        del self._strangers[descriptor]
        stream = TlsStream(stranger.socket, self._context, server_side=True)
        channel = TlsChannel(stream, ServerOpening(self._identity), self._codec, stranger.peer, self._refusals)
        self._opening[descriptor] = channel, time.monotonic() + OPENING_TIMEOUT
        self._continue(descriptor)

    def _continue(self, descriptor: int) -> None:
        channel, _ = self._opening[descriptor]
        try:
            if not channel.open():
                return
        except ChannelClosed as error:
            self._refuse_opening(descriptor, str(error))
            return
        self._poll.unregister(descriptor)
        del self._opening[descriptor]
        self._ready.append(channel)

    def _expire(self) -> None:
        """Refuse late peers. Called after reading, so that no peer is refused because this process was busy."""
        now = time.monotonic()
        while self._strangers and (oldest := next(iter(self._strangers.values()))).deadline < now:
            self._refuse(oldest, "silent", "sent no knock in time")
        while self._opening and next(iter(self._opening.values()))[1] < now:
            self._refuse_opening(next(iter(self._opening)), "did not finish the handshake in time")

    def _refuse(self, stranger: _Stranger, reason: str, detail: str, answer: bytes = b"") -> None:
        descriptor = stranger.socket.fileno()
        del self._strangers[descriptor]
        self._poll.unregister(descriptor)
        if answer:
            try:
                stranger.socket.recv(1 << 16)  # with unread bytes the kernel would reset the connection
                stranger.socket.send(answer)
            except OSError:
                pass  # it has gone, or takes no answer
        stranger.socket.close()
        self._refusals.add(reason, f"{stranger.peer} {detail}")

    def _refuse_opening(self, descriptor: int, detail: str) -> None:
        channel, _ = self._opening.pop(descriptor)
        self._poll.unregister(descriptor)
        channel.close()
        self._refusals.add("handshake", detail)

    def fileno(self) -> int:
        return self._poll.fileno()

    def close(self) -> None:
        self._socket.close()
        self._poll.close()
        for stranger in self._strangers.values():
            stranger.socket.close()
        for channel in (*(channel for channel, _ in self._opening.values()), *self._ready):
            channel.close()
        for opened in (self._strangers, self._opening, self._ready):
            opened.clear()


class TlsTransport:
    """Transport between a run's controller, which has its identity, and peers that hold a ticket. The ends agree on a
    `scope`, the kind of connection."""

    def __init__(
        self,
        credentials: Identity | JoinTicket,
        scope: str,
        bind_host: str = "127.0.0.1",
        port: int = 0,
        *,
        codec: Callable[[type], Codec] = Codec,
        connect_wait: float = 0.1,
        connect_timeout: float = CONNECT_TIMEOUT,
    ) -> None:
        """`connect_wait`: seconds that `connect` blocks for the other host to answer."""
        sockets.check_bind_host(bind_host)
        self.refusals = Refusals()
        self._credentials = credentials
        self._scope = scope
        self._bind_host = bind_host
        self._port = port
        self._codec = codec
        self._connect_wait = connect_wait
        self._connect_timeout = connect_timeout

    def listen(self, name: str, messages: type) -> TlsListener:
        if not isinstance(self._credentials, Identity):
            raise ValueError("listening takes the identity of a controller; a ticket is for connecting to it")
        context = _server_context(self._credentials)
        sock = sockets.listen(name, self._bind_host, self._port, BACKLOG)
        address, refusals = f"{PREFIX}{self._bind_host}:{sock.getsockname()[1]}", Refusals(self.refusals)
        return TlsListener(sock, address, self._codec(messages), self._credentials, context, self._scope, refusals)

    def connect(self, address: str, messages: type) -> TlsChannel:
        """Connect, and wait up to `connect_wait` seconds for the other host to answer. A slower connect (up to
        `connect_timeout`) and the handshake continue in the channel, whose methods raise ChannelClosed if they fail."""
        parts = ADDRESS.fullmatch(address)
        if parts is None:
            raise ChannelClosed(f"expected an address like {PREFIX}host:port, found {address!r}")
        sock, _ = sockets.dial(address, parts[1], int(parts[2]), self._connect_wait)
        opening = ClientOpening(self._ticket(), self._scope, self._connect_timeout, ANSWER_TIMEOUT)
        stream = TlsStream(sock, _client_context(), server_side=False)
        return TlsChannel(stream, opening, self._codec(messages), address, self.refusals)

    def _ticket(self) -> JoinTicket:
        own = self._credentials
        return JoinTicket("", "", own.fingerprint, NEVER, own.proof(NEVER)) if isinstance(own, Identity) else own


def _server_context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # a client proves its ticket in every connection
    context.load_cert_chain(identity.path)
    return context


@cache
def _client_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # No authority signs the certificate of a run. The client compares all of it with its ticket instead.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
