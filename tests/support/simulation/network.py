"""A network between simulated hosts: channels that delay, queue, lose and close as TCP connections do."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.api.transport import ChannelClosed, Message
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.base.wire import Codec
from support.manual_clock import ManualClock

PREFIX = "sim:"
UNRESPONSIVE_SECONDS = 5.0
"""Time after which a channel to a host without power is closed."""


@dataclass
class Link:
    """The path from one host to another."""

    latency: float = 0.001
    rate: float = math.inf
    """Bytes per second."""
    free_at: float = 0.0
    """Time at which everything sent so far has left."""


@dataclass
class Network:
    """Arrival times of everything that is sent, and the listeners of all hosts."""

    clock: ManualClock
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    listeners: dict[str, SimListener] = field(default_factory=dict)
    channels: dict[str, list[SimChannel]] = field(default_factory=dict)
    """Host -> its open channel ends."""
    _codecs: dict[Any, Codec] = field(default_factory=dict)

    def link(self, source: str, target: str) -> Link:
        return self.links.setdefault((source, target), Link())

    def arrival(self, source: str, target: str, num_bytes: int = 0) -> float:
        """Send bytes from one host to another, and return the time of their arrival."""
        now = self.clock.now()
        if source == target:
            return now
        link = self.link(source, target)
        link.free_at = max(now, link.free_at) + num_bytes / link.rate
        return link.free_at + link.latency

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Deliver nothing between two hosts for some time. Channels stay open if it is shorter than their timeout."""
        until = self.clock.now() + seconds
        for pair in ((one, other), (other, one)):
            self.link(*pair).free_at = max(self.link(*pair).free_at, until)
        for channel in self.channels.get(one, ()):
            if channel.peer_host == other and seconds > UNRESPONSIVE_SECONDS:
                for end in (channel, channel.other):
                    end.expect_close(self.clock.now() + UNRESPONSIVE_SECONDS)

    def power_off(self, host: str) -> None:
        """Let a host vanish without a word: nothing is closed, and its peers find out by a timeout."""
        for address in [address for address in self.listeners if address.startswith(f"{PREFIX}{host}/")]:
            del self.listeners[address]
        for channel in self.channels.pop(host, []):
            channel.closed = True
            channel.other.expect_close(self.clock.now() + UNRESPONSIVE_SECONDS)

    def codec(self, messages: Any) -> Codec:
        if messages not in self._codecs:
            self._codecs[messages] = Codec(messages)
        return self._codecs[messages]


class SimChannel:
    """One end of a channel. Hosts are single machines: within one, memory is shared."""

    other: SimChannel

    def __init__(self, network: Network, codec: Codec, host: str, peer_host: str, peer: str) -> None:
        self._network = network
        self._codec = codec
        self.host = host
        self.peer_host = peer_host
        self.peer = peer
        self.shares_memory = host == peer_host
        self.closed = False
        self._close_at = math.inf
        self._inbox: deque[tuple[float, bytes, Memory | None]] = deque()
        network.channels.setdefault(host, []).append(self)

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        self._check()
        frame = b"".join(self._codec.encode(message, arrays))
        if self.other.closed:
            return  # lost: the news that the other end is closed has not arrived
        given = None if memory is None else Memory.from_fd(os.dup(memory.fd))
        self.other._inbox.append((self._network.arrival(self.host, self.peer_host, len(frame)), frame, given))

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        if self.closed:
            raise ChannelClosed(f"{self.peer} is closed")
        if self._inbox and self._inbox[0][0] <= self._network.clock.now():
            _, frame, memory = self._inbox.popleft()
            message, arrays = self._codec.decode(bytearray(frame))
            return message, arrays, memory
        self._check()
        return None

    def _check(self) -> None:
        if self.closed or self._close_at <= self._network.clock.now():
            raise ChannelClosed(f"{self.peer} is closed")

    def flush(self) -> bool:
        self._check()
        return True

    def fileno(self) -> int:
        return -1

    def expect_close(self, at: float) -> None:
        self._close_at = min(self._close_at, at)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.other.expect_close(self._network.arrival(self.host, self.peer_host))
        for _, _, memory in self._inbox:
            if memory is not None:
                memory.close()
        self._inbox.clear()
        if self in self._network.channels.get(self.host, ()):
            self._network.channels[self.host].remove(self)


class SimListener:
    def __init__(self, network: Network, host: str, name: str, messages: Any) -> None:
        self._network = network
        self.host = host
        self.messages = messages
        self.address = f"{PREFIX}{host}/{name}"
        self._waiting: deque[tuple[float, SimChannel]] = deque()
        network.listeners[self.address] = self

    def offer(self, channel: SimChannel) -> None:
        self._waiting.append((self._network.arrival(channel.peer_host, self.host), channel))

    def accept(self) -> SimChannel | None:
        if self._waiting and self._waiting[0][0] <= self._network.clock.now():
            return self._waiting.popleft()[1]
        return None

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self._network.listeners.get(self.address) is self:
            del self._network.listeners[self.address]
        while self._waiting:
            self._waiting.popleft()[1].close()


@dataclass
class SimTransport:
    """The transport of one host."""

    network: Network
    host: str

    def listen(self, name: str, messages: Any) -> SimListener:
        return SimListener(self.network, self.host, name, messages)

    def connect(self, address: str, messages: Any) -> SimChannel:
        listener = self.network.listeners.get(address)
        if listener is None:
            raise ChannelClosed(f"nothing listens at {address}")
        network = self.network
        near = SimChannel(network, network.codec(messages), self.host, listener.host, address)
        far = SimChannel(network, network.codec(listener.messages), listener.host, self.host, f"client of {address}")
        near.other, far.other = far, near
        listener.offer(far)
        return near
