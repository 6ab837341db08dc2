"""A channel over a SEQPACKET socket: one packet per message; large frames and shared memory as file descriptors."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from srl.api.transport import ChannelClosed, Message
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.base.wire import Buffer, Codec, DecodeError
from srl.transports.endpoints import Refusals

MAX_PACKET_BYTES = 2**16
"""Size above which frames are sent as a memfd: the kernel accepts no packet larger than its send buffer."""
MAX_IOVECS = 512
INDIRECT = struct.Struct("<8sQ")  # marks a packet whose frame, of the given length, is in the first descriptor
INDIRECT_MARK = b"SRLFRAME"
MAX_DESCRIPTORS = 2
ANCILLARY_BYTES = socket.CMSG_SPACE(MAX_DESCRIPTORS * 4)
CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
TRUNCATED = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
FULL = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)
GONE = (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF)


@dataclass
class _Packet:
    """Data for one sendmsg call, with descriptors that this process owns until the data is sent."""

    buffers: list[Buffer]
    descriptors: list[int] = field(default_factory=list)

    def fit(self) -> None:
        """Move a frame that is too large for a packet into a memfd. The other end reads it instead of mapping it, so
        that descriptors do not accumulate and checked data cannot change afterwards."""
        size = len(self.buffers[0]) if len(self.buffers) == 1 else sum(map(len, self.buffers))
        if size <= MAX_PACKET_BYTES:
            if len(self.buffers) > MAX_IOVECS:
                self.buffers = [b"".join(self.buffers)]
            return
        descriptor = os.memfd_create("srl-frame", os.MFD_CLOEXEC)
        self.descriptors.insert(0, descriptor)
        for start in range(0, len(self.buffers), MAX_IOVECS):
            _write_all(descriptor, self.buffers[start : start + MAX_IOVECS])
        self.buffers = [INDIRECT.pack(INDIRECT_MARK, size)]

    def keep(self) -> None:
        """Copy the buffers so that they can be sent later; the caller may reuse the originals."""
        self.buffers = [b"".join(self.buffers)]

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.pop())


class HostChannel:
    shares_memory = True

    def __init__(self, sock: socket.socket, codec: Codec, peer: str, refusals: Refusals) -> None:
        self.peer = peer
        self._socket = sock
        self._codec = codec
        self._refusals = refusals
        self._packet = bytearray(MAX_PACKET_BYTES)
        self._pending: deque[_Packet] = deque()
        self._refused: str | None = None

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        packet = _Packet(self._codec.encode(message, arrays))
        try:
            if memory is not None:
                packet.descriptors.append(os.dup(memory.fd))
            if self.flush() and self._push(packet):
                return
        except BaseException:
            packet.close()
            raise
        packet.keep()
        self._pending.append(packet)

    def flush(self) -> bool:
        self._check_open()
        while self._pending:
            if not self._push(self._pending[0]):
                return False
            self._pending.popleft()
        return True

    def _push(self, packet: _Packet) -> bool:
        packet.fit()
        try:
            if packet.descriptors:
                socket.send_fds(self._socket, packet.buffers, packet.descriptors)
            else:
                self._socket.sendmsg(packet.buffers)
        except OSError as error:
            if error.errno in FULL:
                return False
            if error.errno in GONE:
                raise ChannelClosed(f"{self.peer} is gone: {error}") from error
            raise
        packet.close()
        return True

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        self._check_open()
        received = self._read()
        if received is None:
            return None
        size, descriptors, flags = received
        try:
            if flags & TRUNCATED:
                raise DecodeError("the packet is larger than allowed")
            frame = self._frame(size, descriptors)
            message, arrays = self._codec.decode(frame)
            if len(descriptors) > 1:
                raise DecodeError("unexpected descriptor")
            memory = _shared(descriptors.pop()) if descriptors else None
        except (DecodeError, MemoryError) as error:
            self._refused = str(error)
            self._refusals.add("frame" if isinstance(error, DecodeError) else "memory", f"{self.peer}: {error}")
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            raise ChannelClosed(f"{self.peer} violated the protocol: {error}") from error
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return message, arrays, memory

    def _read(self) -> tuple[int, list[int], int] | None:
        for _ in range(2):
            try:
                size, ancillary, flags, _ = self._socket.recvmsg_into([self._packet], ANCILLARY_BYTES, CLOSE_ON_EXEC)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                # The other end closed before it read everything. The kernel reports that once, before the data it sent.
                continue
            except OSError as error:
                raise ChannelClosed(f"{self.peer} is gone: {error}") from error
            if size == 0:
                break
            return size, _descriptors(ancillary) if ancillary else [], flags
        raise ChannelClosed(f"{self.peer} is gone")

    def _frame(self, size: int, descriptors: list[int]) -> Buffer:
        if size != INDIRECT.size or not self._packet.startswith(INDIRECT_MARK):
            return self._packet[:size]
        _, length = INDIRECT.unpack_from(self._packet)
        if not descriptors or not MAX_PACKET_BYTES < length <= self._codec.max_bytes:
            raise DecodeError(f"the packet announces a frame of {length} bytes that did not come with it")
        return _read_frame(descriptors.pop(0), length)

    def _check_open(self) -> None:
        if self._socket.fileno() < 0:
            raise ChannelClosed(f"the channel to {self.peer} was closed by this side")
        if self._refused:
            raise ChannelClosed(f"{self.peer} violated the protocol: {self._refused}")

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        while self._pending:
            self._pending.popleft().close()
        self._socket.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    return [
        descriptor
        for level, kind, data in ancillary
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS
        for (descriptor,) in struct.iter_unpack("i", data[: len(data) // 4 * 4])
    ]


def _write_all(descriptor: int, buffers: list[Buffer]) -> None:
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    while left:  # the kernel writes at most 2 GiB at a time
        num_written = os.writev(descriptor, left)
        while left and num_written >= len(left[0]):
            num_written -= len(left.pop(0))
        if num_written:
            left[0] = left[0][num_written:]


def _read_frame(descriptor: int, length: int) -> Buffer:
    try:
        _check_memory(descriptor)
        status = os.fstat(descriptor)
        if status.st_size != length:
            raise DecodeError(f"expected a frame of {length} bytes, found {status.st_size}")
        if status.st_blocks * 512 < length:  # its sender would make this process allocate more than it did itself
            raise DecodeError(f"a frame of {length} bytes of which {status.st_blocks * 512} exist")
        frame = np.empty(length, np.uint8).data  # uninitialized: memory is committed only as it is filled
        num_read = 0
        while num_read < length:  # the kernel reads at most 2 GiB at a time
            more = os.preadv(descriptor, [frame[num_read:]], num_read)
            if more == 0:
                raise DecodeError("the frame shrank while being read")
            num_read += more
        return frame
    except OSError as error:
        raise DecodeError(f"cannot read the frame: {error}") from error
    finally:
        os.close(descriptor)


def _shared(descriptor: int) -> Memory:
    try:
        _check_memory(descriptor)
        return Memory.from_fd(descriptor)
    except (OSError, ValueError) as error:
        os.close(descriptor)
        raise DecodeError(f"the descriptor is not shared memory: {error}") from error


def _check_memory(descriptor: int) -> None:
    """Raise OSError for anything but a memfd: a pipe or device could block, a file could belong to any user."""
    fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
