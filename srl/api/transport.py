"""The transport contract: channels that carry typed messages and arrays, and the names of their endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from srl.base.shared_memory import Memory
from srl.base.tree import Array


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Base class of messages: small, typed, plain data. Each kind of channel has its own union of messages."""


class ChannelClosed(ConnectionError):
    """The other end is closed or dead. Messages that it has not received may be lost."""


class PeerUnresponsive(ChannelClosed):
    """The other end's host does not answer. Its process may be alive and reachable from other hosts."""


@runtime_checkable
class Channel(Protocol):
    """One end of a connection. Messages arrive in order, and none is lost or duplicated while the channel is open."""

    shares_memory: bool
    """Whether both ends can map the same memory, so that indices can be sent instead of arrays."""
    peer: str
    """Name of the other end, for error messages."""

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        """Queue a message and send as much as possible without blocking. The caller may reuse `arrays` when this
        returns. `memory` is mapped at the other end (only if `shares_memory`). Raises ChannelClosed."""

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        """Return the next message, or None if there is none yet. The arrays belong to the receiver. Raises
        ChannelClosed once the other end is closed and everything it sent was received."""

    def flush(self) -> bool:
        """Send queued messages without blocking. Return whether the queue is empty. Raises ChannelClosed."""

    def fileno(self) -> int:
        """File descriptor that becomes readable when `receive` has a message to return; -1 for in-process channels."""

    def close(self) -> None: ...


@runtime_checkable
class Listener(Protocol):
    """An endpoint that accepts connections."""

    address: str
    """Address to connect to: `inproc:NAME`, `unix:PATH`, `tcp:HOST:PORT` or `host:NAME;UNIX;TCP`."""

    def accept(self) -> Channel | None:
        """Return a new, authenticated channel, or None if no peer waits. Never blocks."""

    def fileno(self) -> int:
        """File descriptor that becomes readable when `accept` has a channel to return; -1 for in-process listeners."""

    def close(self) -> None: ...


@runtime_checkable
class Transport(Protocol):
    """A way to reach other processes. `messages` is the union of Message types that a channel carries; its decoder
    refuses all others."""

    def listen(self, name: str, messages: Any) -> Listener:
        """Open an endpoint; the name may appear in its address."""

    def connect(self, address: str, messages: Any) -> Channel:
        """Connect to a listener. Raises ChannelClosed if nothing listens there."""


@runtime_checkable
class NameService(Protocol):
    """Addresses of endpoints by name. The controller removes the entries of a worker that ended."""

    def register(self, name: str, address: str) -> None:
        """Publish an endpoint, for as long as this worker lives. A later registration replaces an earlier one."""

    def lookup(self, prefix: str) -> dict[str, str]:
        """Return all entries whose names start with `prefix`: name -> address. Cheap: it reads a local copy."""
