"""A network between simulated hosts: connections that delay, queue, lose and close as TCP connections do.

Messages of one connection arrive in order, once, or not at all: TCP promises that. Messages of different connections
overtake each other. A connection that breaks loses what has not arrived, one of its ends may not notice for a while,
and what was sent on it may be sent again on the next one.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from srl.api.transport import ChannelClosed, Message, PeerUnresponsive
from srl.base.shared_memory import Memory
from srl.base.tree import Array
from srl.parameters.relay import Newest
from srl.schedulers.hosts.messages import CommittedState
from srl.transports.tcp_channel import DEAD_AFTER, PeerActivity
from support.manual_clock import ManualClock

PREFIX = "sim:"
MESSAGE_BYTES = 100
LARGE_BYTES = {CommittedState: 100_000, Newest: 100_000}
"""Sizes on a link of messages that carry states and parameters, whose arrays are larger in a real run."""
Wake = Callable[[float], None]
"""Callback with the time of the next arrival. An idle process need not be polled before that time."""


@dataclass
class Link:
    """The path from one host to another."""

    latency: float = 0.001
    rate: float = math.inf
    """Bytes per second."""
    free_at: float = 0.0
    """Time at which everything sent so far has left."""
    cut_until: float = 0.0


@dataclass
class Network:
    """Arrival times of everything that is sent, and the listeners of all hosts."""

    clock: ManualClock
    random: random.Random
    links: dict[tuple[str, str], Link] = field(default_factory=dict)
    listeners: dict[str, SimListener] = field(default_factory=dict)
    channels: dict[str, list[SimChannel]] = field(default_factory=dict)
    """Host -> its open channel ends."""
    ends: list[SimChannel] = field(default_factory=list)
    """All channel ends, by their descriptor."""

    def link(self, source: str, target: str) -> Link:
        found = self.links.get((source, target))
        if found is None:
            found = self.links[(source, target)] = Link()
        return found

    def arrival(self, source: str, target: str, num_bytes: int = 0) -> float:
        """Send bytes from one host to another, and return the time of their arrival."""
        now = self.clock.now()
        if source == target:
            return now
        link = self.links.get((source, target)) or self.link(source, target)
        link.free_at = max(now, link.free_at, link.cut_until) + num_bytes / link.rate
        # Each connection has its own path and its own retransmissions, so that connections overtake each other.
        return link.free_at + link.latency * (0.5 + self.random.random())

    def cut(self, source: str, target: str, seconds: float) -> None:
        """Deliver nothing from one host to another for some time. Connections break if that is longer than their
        timeout, in both directions: nothing is acknowledged."""
        now = self.clock.now()
        link = self.link(source, target)
        link.cut_until = max(link.cut_until, now + seconds)
        if seconds > DEAD_AFTER:
            for channel in self._between(source, target):
                for end in (channel, channel.other):
                    end.expect_close(now + DEAD_AFTER, unresponsive=True)

    def reset(self, one: str, other: str, half_open: bool) -> None:
        """Break all connections between two hosts, as a firewall that forgets them does. What is on its way is lost.
        With `half_open`, the other host notices only after a timeout."""
        for channel in self._between(one, other):
            for end in (channel, channel.other):
                end.lose_inbox()
            channel.expect_close(self.clock.now())
            channel.other.expect_close(self.clock.now() + (DEAD_AFTER if half_open else 0.0), unresponsive=half_open)

    def _between(self, one: str, other: str) -> list[SimChannel]:
        return [channel for channel in self.channels.get(one, ()) if channel.peer_host == other]

    def power_off(self, host: str) -> None:
        """Let a host vanish: nothing is closed, and its peers find out by a timeout."""
        for address in [address for address in self.listeners if address.startswith(f"{PREFIX}{host}/")]:
            del self.listeners[address]
        for channel in self.channels.pop(host, []):
            channel.closed = True
            channel.lose_inbox()
            channel.other.expect_close(self.clock.now() + DEAD_AFTER, unresponsive=True)

    def peer_activity(self, descriptor: int) -> PeerActivity:
        """Return what the kernel knows about the other end of a channel, also if its process is frozen."""
        return self.ends[descriptor].peer_activity()

    def reachable(self, one: str, other: str) -> bool:
        now = self.clock.now()
        return one == other or max(self.link(one, other).cut_until, self.link(other, one).cut_until) <= now


class SimChannel:
    """One end of a channel. Workers of one host share memory."""

    other: SimChannel

    def __init__(self, network: Network, host: str, peer_host: str, peer: str, wake: Wake) -> None:
        self._network = network
        self._clock = network.clock
        self._wake = wake
        self.host = host
        self.peer_host = peer_host
        self.peer = peer
        self.shares_memory = host == peer_host
        self.closed = False
        self._close_at = math.inf
        self._kind = ChannelClosed
        self._last_arrival = 0.0
        self._last_data = network.clock.now()
        self._inbox: deque[tuple[float, Message, list[Array], Memory | None]] = deque()
        self._descriptor = len(network.ends)
        network.ends.append(self)
        network.channels.setdefault(host, []).append(self)

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        if self.closed or self._close_at <= self._clock.now():
            raise self._kind(f"{self.peer} is closed")
        other = self.other
        if other.closed or other._close_at <= self._clock.now():
            return  # lost: the news that the other end is closed has not arrived
        copies = [array.copy() for array in arrays]
        given = None if memory is None else Memory.from_fd(os.dup(memory.fd))
        num_bytes = LARGE_BYTES.get(type(message), MESSAGE_BYTES)
        arrival = max(self._last_arrival, self._network.arrival(self.host, self.peer_host, num_bytes))
        self._last_arrival = arrival
        other._inbox.append((arrival, message, copies, given))
        other._wake(arrival)

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        now = self._clock.now()
        if self.closed:
            raise ChannelClosed(f"{self.peer} is closed")
        if self._inbox and self._inbox[0][0] <= now:
            self._last_data = self._inbox[0][0]
            return self._inbox.popleft()[1:]
        if self._close_at <= now:
            raise self._kind(f"{self.peer} is closed")
        return None

    def flush(self) -> bool:
        if self.closed:
            raise ChannelClosed(f"{self.peer} is closed")
        return True  # nothing waits to be sent, so that nothing is noticed

    def peer_activity(self) -> PeerActivity:
        now = self._clock.now()
        arrived = max((arrival for arrival, *_ in self._inbox if arrival <= now), default=self._last_data)
        alive = not self.other.closed and self._close_at == math.inf
        return PeerActivity(now - arrived, alive and self._network.reachable(self.host, self.peer_host))

    def fileno(self) -> int:
        return self._descriptor

    def expect_close(self, at: float, unresponsive: bool = False) -> None:
        """Close this end at a later time, unless it closes before."""
        if at < self._close_at:
            self._wake(at)
            self._close_at = at
            self._kind = PeerUnresponsive if unresponsive else ChannelClosed

    def lose_inbox(self) -> None:
        for _, _, _, memory in self._inbox:
            if memory is not None:
                memory.close()
        self._inbox.clear()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            arrival = self._network.arrival(self.host, self.peer_host)
            self.other.expect_close(max(self._last_arrival, arrival))
            self._network.channels[self.host].remove(self)
        self.lose_inbox()


class SimListener:
    def __init__(self, network: Network, host: str, name: str, wake: Wake) -> None:
        self._network = network
        self.wake = wake
        self.host = host
        self.address = f"{PREFIX}{host}/{name}"
        self.refused: Counter[str] = Counter()
        self._waiting: deque[tuple[float, SimChannel]] = deque()
        network.listeners[self.address] = self

    def offer(self, channel: SimChannel) -> None:
        arrival = self._network.arrival(channel.peer_host, self.host)
        self._waiting.append((arrival, channel))
        self.wake(arrival)

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
    wake: Wake = lambda time: None

    def listen(self, name: str, messages: Any) -> SimListener:
        return SimListener(self.network, self.host, name, self.wake)

    def connect(self, address: str, messages: Any) -> SimChannel:
        network, listener = self.network, self.network.listeners.get(address)
        host = address.removeprefix(PREFIX).partition("/")[0]
        if not network.reachable(self.host, host):
            raise PeerUnresponsive(f"{host} does not answer")
        if listener is None:
            raise ChannelClosed(f"nothing listens at {address}")
        near = SimChannel(network, self.host, listener.host, address, self.wake)
        far = SimChannel(network, listener.host, self.host, f"client of {address}", listener.wake)
        near.other, far.other = far, near
        listener.offer(far)
        return near
