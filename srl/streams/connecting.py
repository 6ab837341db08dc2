"""How the end of a stream finds its counterparts: by their names, as they come."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from srl.api.transport import Channel, ChannelClosed, Message
from srl.api.worker import Context
from srl.streams.arena import Arena


def newly_connected(
    context: Context, prefix: str, remote: bool, known: Container[str], messages: Any, hello: Message, arena: Arena
) -> list[tuple[str, Channel]]:
    """Channels to the endpoints below `prefix` that are not `known`, by name. Each was told `hello`, and given the
    arena's memory where it can share it."""
    found: list[tuple[str, Channel]] = []
    for name, address in context.names.lookup(prefix).items():
        if name in known or address.startswith("tcp:") != remote:
            continue
        try:
            channel = context.connect(address, messages)
        except ChannelClosed:
            continue  # registered, but dying or not yet there: the next call tries again
        try:
            channel.send(hello, memory=arena.memory if channel.shares_memory else None)
        except ChannelClosed:
            channel.close()
            continue
        context.wake_on(channel)
        found.append((name, channel))
    return found
