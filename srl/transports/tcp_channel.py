"""One end of a TCP connection: a handshake, then records in both directions."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from itertools import islice

import numpy as np

from srl.api.transport import ChannelClosed, Message, PeerUnresponsive
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.base.wire import ALIGNMENT, Buffer, Codec, DecodeError
from srl.base.wire import PREFIX as FRAME_PREFIX
from srl.transports.endpoints import Refusals
from srl.transports.handshake import ConnectFailed, HandshakeError, SocketHandshake
from srl.transports.tcp_records import LENGTH, TAG_BYTES, RecordCodecs

STAGING_BYTES = 2**14
MAX_STAGING_BYTES = 2**20
MAX_IOVECS = 512
MAX_DRAINS = 256
UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
DEAD_AFTER = 10.0
CHECK_INTERVAL = 1.0
MIN_UNANSWERED = 3
TCP_INFO = struct.Struct("<2x2B52xI")  # from struct tcp_info: retransmits, probes, milliseconds since the last ack


class Liveness:
    """Detection of a dead host, which cannot close its connections.

    Keepalive covers an idle connection; `check` covers one whose data is no longer acknowledged. TCP_USER_TIMEOUT would
    do that in the kernel, but it also drops a live peer that is too busy to read, because the kernel counts the time
    during which the peer's window is closed. `check` therefore asks the kernel when the last acknowledgment came.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._next_check = time.monotonic() + CHECK_INTERVAL
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 4)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, MIN_UNANSWERED)

    def check(self, peer: str) -> None:
        """Raise PeerUnresponsive if the peer's host is dead. Asks the kernel at most once per second."""
        now = time.monotonic()
        if now < self._next_check:
            return
        self._next_check = now + CHECK_INTERVAL
        info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)
        num_retransmits, num_probes, silent_ms = TCP_INFO.unpack(info)
        if max(num_retransmits, num_probes) >= MIN_UNANSWERED and silent_ms > DEAD_AFTER * 1000:
            raise PeerUnresponsive(f"{peer} has not answered for {silent_ms / 1000:.0f} s; its host is gone")


class TcpChannel:
    """A channel over TCP. Call `receive` until it returns None before waiting on `fileno`: one read may bring several
    messages.

    A client's channel starts with a handshake, which each call of `send`, `flush` and `receive` continues. Until it is
    done, messages wait in this process, so two workers can connect to each other at the same time.
    """

    shares_memory = False

    def __init__(
        self, sock: socket.socket, codec: Codec, peer: str, refusals: Refusals, start: RecordCodecs | SocketHandshake
    ) -> None:
        self.peer = peer
        self._socket = sock
        self._codec = codec
        self._refusals = refusals
        self._records = start if isinstance(start, RecordCodecs) else None
        self._handshake = start if isinstance(start, SocketHandshake) else None
        self._unsent: deque[bytes] = deque()
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
        records = self._records or self._continue_handshake()
        if records is None:
            self._unsent.append(b"".join(buffers))
            return
        record = records.outgoing.encode(buffers)
        num_sent = self._write(record) if self.flush() else 0
        for buffer in record:
            if num_sent < len(buffer):
                self._pending.append(memoryview(bytes(memoryview(buffer)[num_sent:])))
            num_sent = max(0, num_sent - len(buffer))

    def flush(self) -> bool:
        self._check_open()
        if self._records is None and self._continue_handshake() is None:
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
        records = self._records or self._continue_handshake()
        if records is None:
            return None
        try:
            record = self._next_record()
            if record is None:
                self._liveness.check(self.peer)
                return None
            message, arrays = self._codec.decode(records.incoming.decode(record))
        except DecodeError as error:
            self._refuse("frame", str(error))
            raise ChannelClosed(f"{self.peer} violated the protocol: {error}") from error
        return message, arrays, None

    def _continue_handshake(self) -> RecordCodecs | None:
        assert self._handshake is not None
        try:
            keys = self._handshake.progress()
        except ConnectFailed as error:
            raise PeerUnresponsive(f"{self.peer} {error}") from error
        except HandshakeError as error:
            self._refuse("handshake", str(error))
            raise ChannelClosed(f"{self.peer} {error}") from error
        if keys is None:
            return None
        self._records = RecordCodecs.of(keys)
        while self._unsent:
            record = self._records.outgoing.encode([self._unsent.popleft()])
            self._pending.append(memoryview(b"".join(record)))
        return self._records

    def _next_record(self) -> memoryview | None:
        """Return the next complete record in its own buffer, or None if it has not arrived yet."""
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
            raise DecodeError(f"a frame of {length} bytes; the limit is {self._codec.max_bytes}")
        size = LENGTH.size + length + TAG_BYTES
        if num_staged < size <= len(self._staging):
            self._make_room(size)
            return None
        if num_staged == size == len(self._staging):
            return self._renew_staging(size)  # as large as the previous record, so it was read into its final buffer
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
        """Return the staging buffer, and replace it with one of `size` bytes: the next record is likely as large."""
        old = self._staging
        self._staging = _record_buffer(min(max(size, STAGING_BYTES), MAX_STAGING_BYTES))
        self._start = self._end = 0
        return old

    def _make_room(self, size: int) -> None:
        """Move the staged bytes to the front if the record of `size` bytes that they begin would not fit otherwise."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + size > len(self._staging):
            staged = bytes(self._staging[self._start : self._end])
            self._staging[: len(staged)] = staged
            self._start, self._end = 0, len(staged)

    def _fill(self) -> bool:
        """Read once, into the staging buffer or a large record's own buffer. Return False if nothing has arrived."""
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
        kind = PeerUnresponsive if error.errno in UNREACHABLE else ChannelClosed
        return kind(f"{self.peer} is gone: {error}")

    def _refuse(self, reason: str, detail: str) -> None:
        """Shut down the connection to a peer that violated the protocol; the owner closes the channel."""
        self._refused = detail
        self._refusals.add(reason, f"{self.peer}: {detail}")
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _check_open(self) -> None:
        if self._refused is not None:
            raise ChannelClosed(f"{self.peer} violated the protocol: {self._refused}")
        if self._socket.fileno() < 0:
            raise ChannelClosed(f"the channel to {self.peer} was closed by this side")

    @property
    def local_host(self) -> str:
        """Address of this host as seen by the other end."""
        return str(self._socket.getsockname()[0])

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        if self._socket.fileno() < 0:
            return
        with contextlib.suppress(ChannelClosed, OSError):
            self.flush()
            # With unread bytes the kernel would reset the connection and drop data that the peer has not received yet.
            for _ in range(MAX_DRAINS):
                if self._socket.recv_into(self._staging) == 0:
                    break
        self._pending.clear()
        self._socket.close()


def _record_buffer(size: int) -> memoryview:
    """Allocate an uninitialized buffer for a record with an aligned frame. Memory is committed only as bytes arrive."""
    offset = ALIGNMENT - LENGTH.size
    buffer: Array = np.empty(offset + size, np.uint8)
    return buffer.data[offset:]
