"""A stream endpoint's connections to its peers: finding the peers, and saving unread messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from srl.api.block import BlockMemory
from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import Context
from srl.base.state import NotResumable
from srl.transports.inproc import InprocChannel


@dataclass(eq=False)
class PeerLink:
    """A connection to an endpoint: its name, its address at the time, and the channel."""

    name: str
    address: str
    channel: Channel


LinkT = TypeVar("LinkT", bound=PeerLink)


def connect_peers(
    context: Context,
    prefix: str,
    remote: bool,
    links: dict[str, LinkT],
    kind: Callable[[str, str, Channel], LinkT],
    lose: Callable[[LinkT], None],
    messages: Any,
    attach: Message,
    own: BlockMemory | None,
) -> None:
    """Connect to the endpoints under `prefix` that are new or have another address, and add a link of this `kind` for
    each. The first message on each channel is `attach`, with the `own` memory, if any, where the channel shares memory.

    A name gets another address when its worker is replaced. The link to the old one is lost first: its channel may
    still be open, because a frozen process, or a host that the controller has lost, does not close it.
    """
    for name, address in context.names.lookup(prefix).items():
        link = links.get(name)
        if address.startswith("tcp:") != remote or (link is not None and link.address == address):
            continue
        if link is not None:
            lose(link)
        try:
            channel = context.connect(address, messages)
        except ChannelClosed:
            continue  # registered, but closing or not yet listening: the next call tries again
        try:
            channel.send(attach, memory=own.memory if own is not None and channel.shares_memory else None)
        except ChannelClosed:
            channel.close()
            continue
        context.wake_on(channel)
        links[name] = kind(name, address, channel)


def receive_attach(channel: Channel, kind: type[Message]) -> tuple[Any, Any] | None:
    """Return a peer's first message and its memory, in a run that is being restored; None if it has not arrived."""
    received = channel.receive()
    if received is None:
        return None
    if not isinstance(received[0], kind):
        raise NotResumable(f"{channel.peer} sent a {type(received[0]).__name__} before the run was restored")
    return received[0], received[2]


def unread_messages(channel: Channel) -> list[str]:
    """Return messages that have arrived but have not been read, hex-encoded."""
    if not isinstance(channel, InprocChannel):
        raise NotResumable("only a run in one thread (--scheduler inline) can be saved with work in progress")
    return [frame.hex() for frame in channel.unread()]


def restore_unread(channel: Channel, frames: list[str]) -> None:
    """Replace a channel's unread messages with those that `unread_messages` returned."""
    assert isinstance(channel, InprocChannel)
    channel.put_back([bytes.fromhex(frame) for frame in frames])
