"""One end of a TCP connection: records in, records out, and a handshake before the first of them."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from srl.api.transport import ChannelClosed, Message, PeerSilent
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.base.wire import ALIGNMENT, Buffer, Codec, DecodeError
from srl.base.wire import PREFIX as FRAME_PREFIX
from srl.transports.handshake import HandshakeError
from srl.transports.handshake_io import Greeting, Unreachable
from srl.transports.liveness import Liveness
from srl.transports.records import LENGTH, TAG_BYTES, Session
from srl.transports.refusals import Refusals

STAGING_BYTES = 2**14
MAX_STAGING_BYTES = 2**20
MAX_IOVECS = 512
MAX_DRAINS = 256
UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class TcpChannel:
    """Drain `receive` until it returns None before waiting on `fileno`: several messages may have come in one read.

    A client's channel starts with a `greeting` instead of a session: any of send, flush and receive moves it on, and
    what is sent meanwhile waits in clear in our own memory. So two workers may connect to each other at the same time.
    """

    shares_memory = False

    def __init__(
        self, sock: socket.socket, codec: Codec, peer: str, refusals: Refusals, session: Session | Greeting
    ) -> None:
        self.peer = peer
        self._socket = sock
        self._codec = codec
        self._refusals = refusals
        self._session = session if isinstance(session, Session) else None
        self._greeting = session if isinstance(session, Greeting) else None
        self._unsealed: deque[bytes] = deque()
        self._liveness = Liveness(sock)
        self._refused: str | None = None
        self._pending: deque[memoryview] = deque()
        self._staging = _record_buffer(STAGING_BYTES)
        self._start = 0
        self._end = 0
        self._large: memoryview | None = None
        self._num_filled = 0

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        if memory is not None:
            raise ValueError("memory cannot be shared over TCP; send the arrays themselves (see `shares_memory`)")
        buffers = self._codec.encode(message, arrays)
        self._check_open()
        session = self._session or self._greet()
        if session is None:
            self._unsealed.append(b"".join(buffers))
            return
        record = session.outgoing.seal(buffers)
        num_sent = self._write(record) if self.flush() else 0
        for buffer in record:
            if num_sent < len(buffer):
                self._pending.append(memoryview(bytes(memoryview(buffer)[num_sent:])))
            num_sent = max(0, num_sent - len(buffer))

    def flush(self) -> bool:
        self._check_open()
        if self._session is None and self._greet() is None:
            return False
        while self._pending:
            num_sent = self._write(list(islice(self._pending, MAX_IOVECS)))
            if num_sent == 0:
                self._liveness.check(self.peer)
                return False
            while self._pending and num_sent >= len(self._pending[0]):
                num_sent -= len(self._pending.popleft())
            if num_sent:
                self._pending[0] = self._pending[0][num_sent:]
        return True

    def _write(self, buffers: Sequence[Buffer]) -> int:
        try:
            return self._socket.sendmsg(buffers[:MAX_IOVECS])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._gone(error) from error

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        self._check_open()
        session = self._session or self._greet()
        if session is None:
            return None
        try:
            record = self._next_record()
            if record is None:
                self._liveness.check(self.peer)
                return None
            message, arrays = self._codec.decode(session.incoming.open(record))
        except DecodeError as error:
            self.refuse("frame", str(error))
            raise ChannelClosed(f"{self.peer} broke the rules: {error}") from error
        return message, arrays, None

    def _greet(self) -> Session | None:
        assert self._greeting is not None
        try:
            self._session = self._greeting.progress()
        except Unreachable as error:
            raise PeerSilent(f"{self.peer} {error}") from error
        except HandshakeError as error:
            self.refuse("handshake", str(error))
            raise ChannelClosed(f"{self.peer} {error}") from error
        while self._session and self._unsealed:
            record = self._session.outgoing.seal([self._unsealed.popleft()])
            self._pending.append(memoryview(b"".join(record)))
        return self._session

    def _next_record(self) -> memoryview | None:
        """The next whole record in memory of its own, or None if it is not here yet."""
        while True:
            if self._large is None:
                record = self._take_staged()
                if record is not None:
                    return record
            elif self._num_filled == len(self._large):
                record, self._large = self._large, None
                return record
            if not self._fill():
                return None

    def _take_staged(self) -> memoryview | None:
        num_staged = self._end - self._start
        if num_staged < LENGTH.size:
            self._make_room(LENGTH.size)
            return None
        (length,) = LENGTH.unpack_from(self._staging, self._start)
        if not FRAME_PREFIX.size <= length <= self._codec.max_bytes:
            raise DecodeError(f"a frame of {length} bytes; the bound is {self._codec.max_bytes}")
        size = LENGTH.size + length + TAG_BYTES
        if num_staged < size <= len(self._staging):
            self._make_room(size)
            return None
        if num_staged == size == len(self._staging):
            return self._renew_staging(size)  # as large as the one before: it was read straight into its place
        record = _record_buffer(size)
        num_taken = min(size, num_staged)
        record[:num_taken] = self._staging[self._start : self._start + num_taken]
        self._start += num_taken
        if num_taken == size:
            return record
        self._large, self._num_filled = record, num_taken
        self._renew_staging(size)
        return None

    def _renew_staging(self, size: int) -> memoryview:
        """The next record is likely as large as this one: have room for exactly that. Returns the former staging."""
        former = self._staging
        self._staging = _record_buffer(min(max(size, STAGING_BYTES), MAX_STAGING_BYTES))
        self._start = self._end = 0
        return former

    def _make_room(self, size: int) -> None:
        """Move what is staged to the front if a record of `size` bytes would not fit behind it."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + size > len(self._staging):
            staged = bytes(self._staging[self._start : self._end])
            self._staging[: len(staged)] = staged
            self._start, self._end = 0, len(staged)

    def _fill(self) -> bool:
        """Read once: into the staging, or the rest of a large record straight into its place."""
        try:
            if self._large is None:
                num_read = self._socket.recv_into(self._staging[self._end :])
                self._end += num_read
            else:
                num_read = self._socket.recv_into(self._large[self._num_filled :])
                self._num_filled += num_read
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._gone(error) from error
        if num_read == 0:
            raise ChannelClosed(f"{self.peer} is gone")
        return True

    def _gone(self, error: OSError) -> ChannelClosed:
        kind = PeerSilent if error.errno in UNREACHABLE else ChannelClosed
        return kind(f"{self.peer} is gone: {error}")

    def refuse(self, reason: str, detail: str) -> None:
        """Stop talking to a peer that broke the rules; the owner closes the channel."""
        self._refused = detail
        self._refusals.add(reason, f"{self.peer}: {detail}")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _check_open(self) -> None:
        if self._refused is not None:
            raise ChannelClosed(f"{self.peer} broke the rules: {self._refused}")
        if self._socket.fileno() < 0:
            raise ChannelClosed(f"the channel to {self.peer} was closed here")

    @property
    def local_host(self) -> str:
        """The address of this host as the other end sees it."""
        return str(self._socket.getsockname()[0])

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        with contextlib.suppress(ChannelClosed, OSError):
            self.flush()
            # With unread bytes the kernel would reset the connection and drop what is still on its way to the peer.
            for _ in range(MAX_DRAINS):
                if self._socket.recv_into(self._staging) == 0:
                    break
        self._pending.clear()
        self._socket.close()


def _record_buffer(size: int) -> memoryview:
    """Room for one record whose frame starts aligned. Not zeroed: its pages are taken by bytes that really come."""
    offset = ALIGNMENT - LENGTH.size
    buffer: Array = np.empty(offset + size, np.uint8)
    return buffer.data[offset:]
