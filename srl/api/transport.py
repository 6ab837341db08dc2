"""The transport contract: channels that carry typed messages and arrays, and the names of their endpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from srl.base.shared_memory import Memory
from srl.base.tree import Array

EndpointText: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f]+\Z", max_length=1024)]
"""Name or address of an endpoint in a message. A peer that sends one with control characters is refused."""


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, forbid_unknown_fields=True):
    """Base class of messages: small, typed, plain data. Each kind of channel has its own union of messages."""


class ChannelClosed(ConnectionError):
    """The other end is closed or dead. Messages that it has not received may be lost."""


class PeerUnresponsive(ChannelClosed):
    """The other end's host does not answer. Its process may be alive and reachable from other hosts."""


@runtime_checkable
class Channel(Protocol):
    """One end of a connection. Messages arrive in order, and none is lost or duplicated while the channel is open."""

    shares_memory: bool  # whether both ends can map the same memory, so that indices can be sent instead of arrays
    peer: str  # name of the other end, for error messages

    def send(self, message: Message, arrays: Sequence[Array] = (), memory: Memory | None = None) -> None:
        """Queue a message and send as much as possible without blocking. The caller may reuse `arrays` when this
        returns. `memory` is mapped at the other end (only if `shares_memory`). Raises ChannelClosed."""

    def receive(self) -> tuple[Message, list[Array], Memory | None] | None:
        """Return the next message, or None if there is none yet. Raises ChannelClosed after the last message."""

    def flush(self) -> bool:
        """Send queued messages without blocking. Return whether the queue is empty. Raises ChannelClosed."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` has a message; -1 for in-process channels."""

    def close(self) -> None: ...


@runtime_checkable
class Listener(Protocol):
    """An endpoint that accepts connections."""

    address: str  # `inproc:NAME`, `unix:PATH`, `tcp:HOST:PORT/NAME` or `host:NAME;UNIX;TCP`

    @property
    def refused(self) -> Counter[str]:
        """Number of refused connections and frames, by reason."""

    def accept(self) -> Channel | None:
        """Return a new, authenticated channel, or None if no peer waits. Never blocks."""

    def fileno(self) -> int:
        """File descriptor that becomes readable when `accept` has a channel to return; -1 for in-process listeners."""

    def close(self) -> None: ...


@runtime_checkable
class Transport(Protocol):
    """A way to reach other processes. A channel carries the Message types of the union `messages`, and no others."""

    def listen(self, name: str, messages: Any) -> Listener:
        """Open an endpoint; the name may appear in its address."""

    def connect(self, address: str, messages: Any) -> Channel:
        """Connect to a listener. Raises ChannelClosed if nothing listens there, or if the address is malformed."""


@runtime_checkable
class NameService(Protocol):
    """Addresses of endpoints by name. The controller removes a worker's entries when it ends."""

    def register(self, name: str, address: str) -> None:
        """Publish an endpoint until this worker ends. A later registration replaces an earlier one."""

    def lookup(self, prefix: str) -> dict[str, str]:
        """Return the addresses of all names that start with `prefix`. Cheap: it reads a local copy."""
