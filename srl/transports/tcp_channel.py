"""One end of a TCP connection: a handshake, then records in both directions."""

from __future__ import annotations

import contextlib
import errno
import math
import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from srl.api.transport import ChannelClosed, Message, PeerUnresponsive
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.base.wire import ALIGNMENT, Buffer, Codec, DecodeError
from srl.base.wire import PREFIX as FRAME_PREFIX
from srl.transports.endpoints import Refusals
from srl.transports.handshake import ConnectFailed, HandshakeError, SocketHandshake
from srl.transports.noise import TAG_BYTES
from srl.transports.tcp_records import (
    LENGTH,
    LENGTH_RECORD_BYTES,
    SHORT_BYTES,
    AuthenticatedRecords,
    RecordCodecs,
)

STAGING_BYTES = 2**14
MAX_IOVECS = 512
MAX_DRAINS = 256
UNREACHABLE = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)
DEAD_AFTER = 15.0
CHECK_INTERVAL = 1.0
MIN_UNANSWERED = 3
TCP_INFO = struct.Struct("<2x2B20xI24x2I")
"""From struct tcp_info: the fields of `TcpInfo`."""
ANSWER_SECONDS = 1.0


class TcpInfo(NamedTuple):
    num_retransmits: int  # of the oldest packet without an acknowledgment
    num_probes: int
    num_unacknowledged: int  # packets
    data_ms: int  # milliseconds since the last data
    ack_ms: int  # milliseconds since the last acknowledgment


@dataclass(frozen=True)
class PeerActivity:
    """What this kernel knows about the other end of a connection."""

    data_age: float  # seconds since the last data arrived
    answers: bool  # whether the other end's kernel acknowledges what is sent to it

    @classmethod
    def of(cls, info: TcpInfo) -> PeerActivity:
        # On a slow link, the first packet is retransmitted only after seconds, so packets in flight count as well.
        asked = max(info.num_retransmits, info.num_probes, info.num_unacknowledged) > 0
        return cls(info.data_ms / 1000, not (asked and info.ack_ms > ANSWER_SECONDS * 1000))


def peer_activity(fd: int) -> PeerActivity:
    """Return the activity of the other end of a TCP connection, or none for another kind of descriptor."""
    if fd < 0:
        return PeerActivity(math.inf, False)
    sock = socket.socket(fileno=fd)
    try:
        return PeerActivity.of(_tcp_info(sock))
    except OSError:
        return PeerActivity(math.inf, False)
    finally:
        sock.detach()


def _tcp_info(sock: socket.socket) -> TcpInfo:
    return TcpInfo(*TCP_INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO.size)))


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
        info = _tcp_info(self._socket)
        if max(info.num_retransmits, info.num_probes) >= MIN_UNANSWERED and info.ack_ms > DEAD_AFTER * 1000:
            raise PeerUnresponsive(f"{peer} has not answered for {info.ack_ms / 1000:.0f} s; its host is gone")


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
            frame = self._next_frame(records.incoming)
            if frame is None:
                self._liveness.check(self.peer)
                return None
            message, arrays = self._codec.decode(frame)
        except DecodeError as error:
            self._refuse("frame", str(error))
            raise ChannelClosed(f"{self.peer} violated the protocol: {error}") from error
        except MemoryError as error:
            self._refuse("memory", "its message does not fit into memory")
            raise ChannelClosed(f"{self.peer} sent a message that does not fit into memory") from error
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

    def _next_frame(self, records: AuthenticatedRecords) -> memoryview | None:
        """Return the next complete frame in its own buffer, or None if it has not arrived yet."""
        while True:
            if self._large is None:
                record = self._take_staged(records)
                if record is not None:
                    return records.decode(record)
            elif self._num_filled == len(self._large):
                record, self._large = self._large, None
                return records.decode_long(record)
            if not self._fill():
                return None

    def _take_staged(self, records: AuthenticatedRecords) -> memoryview | None:
        """Return a complete short record. The first bytes of a long frame are moved to the frame's own buffer."""
        num_staged = self._end - self._start
        if num_staged < LENGTH.size:
            self._make_room(LENGTH.size)
            return None
        (length,) = LENGTH.unpack_from(self._staging, self._start)
        if not FRAME_PREFIX.size <= length <= self._codec.max_bytes:
            raise DecodeError(f"a frame of {length} bytes; the limit is {self._codec.max_bytes}")
        if length > SHORT_BYTES:
            if num_staged < LENGTH_RECORD_BYTES:
                self._make_room(LENGTH_RECORD_BYTES)
            else:
                records.check_length(self._staging[self._start : self._start + LENGTH_RECORD_BYTES])
                self._start += LENGTH_RECORD_BYTES
                self._begin_large(length + TAG_BYTES)
            return None
        size = LENGTH.size + length + TAG_BYTES
        if num_staged < size:
            self._make_room(size)
            return None
        if size == len(self._staging):  # it was read into its final buffer, and the next one is likely as large
            record, self._staging = self._staging, _record_buffer(size)
            self._start = self._end = 0
            return record
        record = _record_buffer(size)
        record[:] = self._staging[self._start : self._start + size]
        self._start += size
        return record

    def _begin_large(self, size: int) -> None:
        """Prepare to read a long record, whose length is authenticated, into its own buffer. The kernel commits memory
        only as bytes arrive."""
        staged = self._staging[self._start : self._end]  # always less than a long record
        self._large = np.empty(size, np.uint8).data
        self._large[: len(staged)] = staged
        self._num_filled = len(staged)
        self._start = self._end = 0
        if len(self._staging) > STAGING_BYTES:
            self._staging = _record_buffer(STAGING_BYTES)  # the next record is likely as long

    def _make_room(self, size: int) -> None:
        """Make a record of `size` bytes fit into the staging buffer, which holds its first bytes."""
        if self._start == self._end:
            self._start = self._end = 0
        if self._start + size > len(self._staging):
            staged = bytes(self._staging[self._start : self._end])
            if size > len(self._staging):
                self._staging = _record_buffer(size)
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
    """Allocate an uninitialized buffer for a record with an aligned frame."""
    offset = ALIGNMENT - LENGTH.size
    buffer: Array = np.empty(offset + size, np.uint8)
    return buffer.data[offset:]
