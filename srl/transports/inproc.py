"""The transport within a process: pairs of queues, for runs whose workers share one process."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Sequence

from srl.api.transport import ChannelClosed, Message
from srl.base.shared_memory import Memory
from srl.base.state import NotResumableYet
from srl.base.tree import Array
from srl.base.wire import Codec, DecodeError
from srl.transports.endpoints import Refusals

PREFIX = "inproc:"


class InprocChannel:
    """One end of a channel. Messages pass through the codec, so inline runs refuse the same messages as clusters."""

    shares_memory = True

    def __init__(self, codec: Codec, peer: str, refusals: Refusals) -> None:
        self.peer = peer
        self._codec = codec
        self._refusals = refusals
        self._inbox: deque[tuple[bytearray, Memory | None]] = deque()
        self._closed = False
        self._other: InprocChannel | None = None

    @classmethod
    def pair(cls, near: Codec, far: Codec, name: str, refusals: Refusals) -> tuple[InprocChannel, InprocChannel]:
        """Return the connecting and the accepting end of a new channel."""
        one, other = cls(near, f"{PREFIX}{name}", refusals), cls(far, f"{PREFIX}client of {name}", refusals)
        one._other, other._other = other, one
        return one, other

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        frame = bytearray().join(self._codec.encode(message, arrays))
        if self._closed or self._other is None or self._other._closed:
            raise ChannelClosed(f"{self.peer} is closed")
        # The receiver gets its own mapping, as with every transport, and may close it.
        given = None if memory is None else Memory.from_fd(os.dup(memory.fd))
        self._other._inbox.append((frame, given))

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        if self._closed or self._other is None:
            raise ChannelClosed(f"{self.peer} is closed")
        ended = self._other._closed  # read before the inbox: a message sent before a close must not be lost
        if not self._inbox:
            if ended:
                raise ChannelClosed(f"{self.peer} is closed")
            return None
        frame, memory = self._inbox.popleft()
        try:
            message, arrays = self._codec.decode(frame)
        except DecodeError as error:
            self.close()
            self._refusals.add("frame", f"{self.peer}: {error}")
            raise ChannelClosed(f"{self.peer} violated the protocol: {error}") from error
        return message, arrays, memory

    def unread(self) -> list[bytes]:
        """Return the frames that have not been received. Raises NotResumableYet while memory is being passed."""
        if any(memory is not None for _, memory in self._inbox):
            raise NotResumableYet(f"the connection to {self.peer} is still being set up")
        return [bytes(frame) for frame, _ in self._inbox]

    def put_back(self, frames: Sequence[bytes]) -> None:
        """Replace the unread frames with `frames`, as `unread` returned them."""
        self._inbox = deque((bytearray(frame), None) for frame in frames)

    def flush(self) -> bool:
        if self._closed or self._other is None or self._other._closed:
            raise ChannelClosed(f"{self.peer} is closed")
        return True

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._closed = True
        while self._inbox:
            _, memory = self._inbox.popleft()
            if memory is not None:
                memory.close()


class InprocListener:
    def __init__(self, transport: InprocTransport, name: str, codec: Codec) -> None:
        self.name = name
        self.address = f"{PREFIX}{name}"
        self.refusals = Refusals(transport.refusals)
        self.refused: Counter[str] = self.refusals.counts
        self.codec = codec
        self._transport = transport
        self._waiting: deque[InprocChannel] = deque()

    def offer(self, channel: InprocChannel) -> None:
        self._waiting.append(channel)

    def accept(self) -> InprocChannel | None:
        return self._waiting.popleft() if self._waiting else None

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._transport.forget(self)
        while self._waiting:
            self._waiting.popleft().close()


class InprocTransport:
    """Transport within one process. Names belong to this object; there is no global table."""

    def __init__(self, codec: Callable[[type], Codec] = Codec) -> None:
        self.refusals = Refusals()
        self._codec = codec
        self._listeners: dict[str, InprocListener] = {}

    def listen(self, name: str, messages: type) -> InprocListener:
        if name in self._listeners:
            raise ValueError(f"{name!r} already listens in this process; close that listener first")
        listener = self._listeners[name] = InprocListener(self, name, self._codec(messages))
        return listener

    def connect(self, address: str, messages: type) -> InprocChannel:
        if not address.startswith(PREFIX):
            raise ChannelClosed(f"expected an address like {PREFIX}name, found {address!r}")
        listener = self._listeners.get(address.removeprefix(PREFIX))
        if listener is None:
            raise ChannelClosed(f"nothing listens at {address}; open are {sorted(self._listeners)}")
        near, far = InprocChannel.pair(self._codec(messages), listener.codec, listener.name, listener.refusals)
        listener.offer(far)
        return near

    def forget(self, listener: InprocListener) -> None:
        """Remove a listener; called when it closes."""
        if self._listeners.get(listener.name) is listener:
            del self._listeners[listener.name]
