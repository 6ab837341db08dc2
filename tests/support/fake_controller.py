"""A fake controller, as the connection of an agent sees it."""

from __future__ import annotations

from typing import Any

from srl.api.transport import ChannelClosed, Message
from srl.schedulers.agent.connection import ControllerConnection
from srl.schedulers.hosts.messages import AgentSettings, JoinAccepted

ACCEPTED = JoinAccepted("host", [], AgentSettings("run", b"", headless=60.0))


class FakeChannel:
    """A channel whose incoming messages are given by the test."""

    shares_memory = False
    peer = "the controller"

    def __init__(self, *received: Message | ChannelClosed) -> None:
        self.received = list(received)
        self.sent: list[Message] = []

    def send(self, message: Message, arrays: Any = (), memory: Any = None) -> None:
        self.sent.append(message)

    def receive(self) -> Any:
        if not self.received:
            return None
        message = self.received.pop(0)
        if isinstance(message, ChannelClosed):
            raise message
        return message, [], None

    def flush(self) -> bool:
        return True

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


def connection_to(
    first: FakeChannel, *others: FakeChannel | ChannelClosed, headless: float = 60.0
) -> ControllerConnection:
    """A connection over `first`, which reconnects over the others. An error is raised instead."""
    remaining = list(others)

    def connect() -> FakeChannel:
        found = remaining.pop(0)
        if isinstance(found, ChannelClosed):
            raise found
        return found

    return ControllerConnection(first, connect, headless, lambda channel: None)
