"""One end of a control connection: frames inside TLS 1.3."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from srl.api.transport import ChannelClosed, Message, PeerUnresponsive
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.base.wire import PREFIX as FRAME_PREFIX
from srl.base.wire import Buffer, Codec, DecodeError
from srl.transports.endpoints import Refusals
from srl.transports.handshake import ConnectFailed, is_connected
from srl.transports.join_ticket import PROOF_BYTES, Identity, JoinTicket
from srl.transports.tcp_channel import UNREACHABLE, Liveness

LENGTH = struct.Struct("<Q")
HANDSHAKE_BYTES = 2**12
READ_BYTES = 2**18
WRITE_BYTES = 2**18  # amount encrypted at once; larger buffers would be copied more often
GROWTH_BYTES = 2**26  # step by which the buffer of a large frame grows, as its bytes arrive
MAX_DRAINS = 64
KNOCK = struct.Struct("<4sBQ16s32s")  # magic, version, expiry of the ticket, nonce, tag
MAGIC = b"SRLT"
VERSION = 1
NONCE_BYTES = 16
EXPIRED = ssl.AlertDescription.ALERT_DESCRIPTION_CERTIFICATE_EXPIRED
WRONG = ssl.AlertDescription.ALERT_DESCRIPTION_ACCESS_DENIED
ALERT_REASONS = {"CERTIFICATE_EXPIRED": EXPIRED, "ACCESS_DENIED": WRONG}
REFUSAL_TEXTS = {
    EXPIRED: "the join file has expired; copy it again from the machine where the run was started",
    WRONG: "the join file is not one of this run; copy it again from the machine where the run was started",
}


class JoinFileRefused(ChannelClosed):
    """The controller refused the ticket, or has another certificate. Trying again is of no use."""


def knock(ticket: JoinTicket, scope: str) -> bytes:
    """Return the first bytes of a connection. They show, at the cost of two MACs, that a client holds a ticket: the
    server spends no TLS handshake on others. A knock proves nothing by itself, because anyone can repeat it."""
    nonce = os.urandom(NONCE_BYTES)
    return KNOCK.pack(MAGIC, VERSION, ticket.expires, nonce, _tag(ticket.proof, nonce, scope))


def check_knock(data: bytes, identity: Identity, scope: str) -> tuple[bytes, ssl.AlertDescription | None]:
    """Return the nonce of a knock, and the alert with which to refuse it, if any. Raises DecodeError if it is none."""
    magic, version, expires, nonce, tag = KNOCK.unpack(data)
    if magic != MAGIC or version != VERSION:
        raise DecodeError("uses another protocol")
    if not hmac.compare_digest(tag, _tag(identity.proof(expires), nonce, scope)):
        return nonce, WRONG
    return nonce, EXPIRED if expires < time.time() else None


def _tag(proof: bytes, nonce: bytes, scope: str) -> bytes:
    return hmac.digest(proof, b"srl knock" + nonce + scope.encode(), "sha256")


class TlsStream:
    """TLS over a non-blocking socket, as a stream of bytes. A client's stream begins with a knock."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_side: bool) -> None:
        self.socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._unsent: deque[memoryview] = deque()
        self._received = memoryview(bytearray(HANDSHAKE_BYTES))

    def handshake(self) -> bool:
        """Continue the handshake. Return whether it is complete. Raises OSError, of which ssl.SSLError is one."""
        while True:
            try:
                self._tls.do_handshake()
                complete = True
            except ssl.SSLWantReadError:
                complete = False
            self.flush()
            if complete:
                self._received = memoryview(bytearray(READ_BYTES))
            if complete or not self._fill():
                return complete

    def fingerprint(self) -> bytes:
        """Return the SHA-256 of the other end's certificate."""
        return hashlib.sha256(self._tls.getpeercert(binary_form=True) or b"").digest()

    def write(self, data: Buffer) -> None:
        """Encrypt, and send as much as possible; `flush` sends the rest. Raises OSError."""
        view = memoryview(data).cast("B")
        for start in range(0, len(view), WRITE_BYTES):
            piece = view[start : start + WRITE_BYTES]
            while piece:
                piece = piece[self._tls.write(piece) :]
            self.flush()  # while the piece is in the cache

    def write_raw(self, data: bytes) -> None:
        self._unsent.append(memoryview(data))

    def flush(self) -> bool:
        """Send without blocking. Return whether everything is sent."""
        if self._outgoing.pending:
            self._unsent.append(memoryview(self._outgoing.read()))
        while self._unsent:
            try:
                num_sent = self.socket.send(self._unsent[0])
            except BlockingIOError:
                return False
            if num_sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][num_sent:]
            else:
                self._unsent.popleft()
        return True

    def read_into(self, view: memoryview) -> int:
        """Read into a view, which must not be empty. Return the number of bytes, 0 if none has arrived."""
        while True:
            with contextlib.suppress(ssl.SSLWantReadError):
                return self._tls.read(len(view), view)  # type: ignore[return-value]  # typeshed: bytes
            if not self._fill():
                return 0

    def _fill(self) -> bool:
        try:
            num_read = self.socket.recv_into(self._received)
        except BlockingIOError:
            return False
        if not num_read:
            raise ConnectionResetError("closed by the other end")
        self._incoming.write(self._received[:num_read])
        return True


class ClientOpening:
    """Connect, knock, check the server's certificate, and only then send the ticket's proof."""

    def __init__(self, ticket: JoinTicket, scope: str, connect_timeout: float, answer_timeout: float) -> None:
        self._ticket = ticket
        self._scope = scope
        self._connect_deadline = time.monotonic() + connect_timeout
        self._answer_timeout = answer_timeout
        self._deadline = 0.0

    def progress(self, stream: TlsStream) -> bool:
        """Continue without blocking; return whether the server has proved itself. Raises OSError."""
        if not self._deadline:
            if not is_connected(stream.socket, 0.0):
                if time.monotonic() > self._connect_deadline:
                    raise ConnectFailed("cannot be reached: the connection attempt timed out")
                return False
            self._deadline = time.monotonic() + self._answer_timeout
            stream.write_raw(knock(self._ticket, self._scope))
        if not stream.handshake():
            if time.monotonic() > self._deadline:
                raise TimeoutError("did not answer the handshake in time")
            return False
        if not hmac.compare_digest(stream.fingerprint(), self._ticket.fingerprint):
            raise JoinFileRefused(f"has another certificate than the join file says: {REFUSAL_TEXTS[WRONG]}")
        stream.write(self._ticket.expires.to_bytes(8, "big") + self._ticket.proof)
        return True


class ServerOpening:
    """Complete the TLS handshake, and check the proof of the client's ticket."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._shaken = False
        self._received = b""

    def progress(self, stream: TlsStream) -> bool:
        """Continue without blocking; return whether the client has proved itself. Raises OSError."""
        self._shaken = self._shaken or stream.handshake()
        while self._shaken and (wanted := 8 + PROOF_BYTES - len(self._received)):
            view = memoryview(bytearray(wanted))
            if not (num_read := stream.read_into(view)):
                break
            self._received += view[:num_read]
        if len(self._received) < 8 + PROOF_BYTES:
            return False
        expires = int.from_bytes(self._received[:8], "big")
        if not hmac.compare_digest(self._received[8:], self._identity.proof(expires)) or expires < time.time():
            raise PermissionError("proved no valid ticket")
        return True


class TlsChannel:
    """A channel inside TLS. Each call of `send`, `flush` and `receive` continues the opening of the connection. Until
    it is open, messages wait in this process."""

    shares_memory = False

    def __init__(
        self, stream: TlsStream, opening: ClientOpening | ServerOpening, codec: Codec, peer: str, refusals: Refusals
    ) -> None:
        self.peer = peer
        self._stream = stream
        self._opening: ClientOpening | ServerOpening | None = opening
        self._codec = codec
        self._refusals = refusals
        self._waiting: deque[bytes] = deque()
        self._liveness = Liveness(stream.socket)
        self._failure: ChannelClosed | None = None
        self._buffer: memoryview = memoryview(bytearray(LENGTH.size))
        self._num_filled = 0
        self._length: int | None = None  # length of the frame in the buffer; None while the buffer is for a length

    def open(self) -> bool:
        """Continue to open the connection. Return whether it is open. Raises ChannelClosed."""
        self._check_open()
        if self._opening is None:
            return True
        try:
            if not self._opening.progress(self._stream):
                return False
            self._opening = None
            while self._waiting:
                self._stream.write(self._waiting.popleft())
        except OSError as error:
            raise self._fail(_explain_opening(error, self.peer)) from error
        return True

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        if memory is not None:
            raise ValueError("memory cannot be shared over TLS; send the arrays themselves (see `shares_memory`)")
        buffers = self._codec.encode(message, arrays)
        size = sum(map(len, buffers))
        head = LENGTH.pack(size)
        if not self.open():
            self._waiting.append(b"".join((head, *buffers)))
            return
        try:
            for buffer in [b"".join((head, *buffers))] if size < WRITE_BYTES else [head, *buffers]:
                self._stream.write(buffer)
        except OSError as error:
            raise self._gone(error) from error

    def flush(self) -> bool:
        if not self.open():
            return False
        try:
            if self._stream.flush():
                return True
        except OSError as error:
            raise self._gone(error) from error
        self._liveness.check(self.peer)
        return False

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        if not self.open():
            return None
        try:
            frame = self._next_frame()
            if frame is None:
                self._liveness.check(self.peer)
                return None
            message, arrays = self._codec.decode(frame)
        except (DecodeError, MemoryError) as error:
            detail = str(error) or "no memory for its frame"
            self._refusals.add("frame", f"{self.peer}: {detail}")
            raise self._fail(ChannelClosed(f"{self.peer} violated the protocol: {detail}")) from error
        except OSError as error:
            raise self._gone(error) from error
        return message, arrays, None

    def _next_frame(self) -> memoryview | None:
        while True:
            while self._num_filled < len(self._buffer):
                num_read = self._stream.read_into(self._buffer[self._num_filled :])
                if num_read == 0:
                    return None
                self._num_filled += num_read
            if self._length is None:
                (self._length,) = LENGTH.unpack(self._buffer)
                if not FRAME_PREFIX.size <= self._length <= self._codec.max_bytes:
                    raise DecodeError(f"a frame of {self._length} bytes; the limit is {self._codec.max_bytes}")
                self._buffer, self._num_filled = np.empty(min(self._length, GROWTH_BYTES), np.uint8).data, 0
            elif self._num_filled < self._length:  # memory grows with the bytes that arrive, not with what is announced
                grown: memoryview = np.empty(min(self._length, 2 * self._num_filled), np.uint8).data
                grown[: self._num_filled] = self._buffer
                self._buffer = grown
            else:
                frame, self._length = self._buffer, None
                self._buffer, self._num_filled = memoryview(bytearray(LENGTH.size)), 0
                return frame

    def _gone(self, error: OSError) -> ChannelClosed:
        if isinstance(error, ChannelClosed):
            return error
        kind = PeerUnresponsive if error.errno in UNREACHABLE else ChannelClosed
        return kind(f"{self.peer} is gone: {error}")

    def _fail(self, failure: ChannelClosed) -> ChannelClosed:
        """Shut down the connection; the owner closes the channel."""
        self._failure = failure
        with contextlib.suppress(OSError):
            self._stream.socket.shutdown(socket.SHUT_RDWR)
        return failure

    def _check_open(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._stream.socket.fileno() < 0:
            raise ChannelClosed(f"the channel to {self.peer} was closed by this side")

    @property
    def local_host(self) -> str:
        """Address of this host as seen by the other end."""
        return str(self._stream.socket.getsockname()[0])

    def fileno(self) -> int:
        return self._stream.socket.fileno()

    def close(self) -> None:
        sock = self._stream.socket
        if sock.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            if self._opening is None:
                self._stream.flush()
            # With unread bytes the kernel would reset the connection and drop data that the peer has not received yet.
            for _ in range(MAX_DRAINS):
                if not sock.recv(READ_BYTES):
                    break
        sock.close()


def _explain_opening(error: OSError, peer: str) -> ChannelClosed:
    if isinstance(error, ConnectFailed):
        return PeerUnresponsive(f"{peer} {error}")
    if isinstance(error, JoinFileRefused):
        return JoinFileRefused(f"{peer} {error}")
    if isinstance(error, ssl.SSLError):
        for name, alert in ALERT_REASONS.items():
            if name in (error.reason or ""):
                return JoinFileRefused(f"{peer} refused this host: {REFUSAL_TEXTS[alert]}")
    return ChannelClosed(f"{peer} closed the connection during the handshake ({error})")
