"""The transport contract: channels that carry typed messages and arrays between two workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from srl.base.shared_memory import Memory
from srl.base.tree import Array


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Base of everything that is sent: small, typed, plain. Each kind of channel has its own union of messages."""


class ChannelClosed(ConnectionError):
    """The other side is gone; what was sent and not yet received may be lost."""


class PeerSilent(ChannelClosed):
    """Nothing is heard from the other side's host any more. Its process may live: it is gone for us, not for others."""


@runtime_checkable
class Channel(Protocol):
    """One end of a connection. Order is kept; nothing is lost or doubled while the channel lives."""

    shares_memory: bool
    """True where both ends can map the same memory: hand over indices. False: send the arrays themselves."""
    peer: str
    """Who is at the other end, for messages to people."""

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        """Queue and push out what the kernel takes; never blocks. `arrays` are copied or sent before the call returns,
        so the caller may reuse them. `memory` gives the other end a mapping of it (only if `shares_memory`).
        Raises ChannelClosed."""

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        """The next message, or None if there is none now. Arrays are the receiver's own. Raises ChannelClosed when
        the other end is gone and everything it sent was received."""

    def flush(self) -> bool:
        """Push out what `send` could not; True when nothing waits any more. Raises ChannelClosed."""

    def fileno(self) -> int:
        """What to wait on for `receive`; -1 in process."""

    def close(self) -> None: ...


@runtime_checkable
class Listener(Protocol):
    address: str
    """Where others connect: `inproc:...`, `unix:...` or `tcp:host:port`."""

    def accept(self) -> Channel | None:
        """A new, already authenticated channel, or None if nobody waits."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


@runtime_checkable
class Transport(Protocol):
    """One way to reach other workers. `messages` is the union of Message types this kind of channel may carry;
    anything else is refused by the decoder."""

    def listen(self, name: str, messages: Any) -> Listener: ...

    def connect(self, address: str, messages: Any) -> Channel:
        """Raises ChannelClosed if nobody listens there (any more)."""
