"""A controller that is played by hand, as an agent's line sees it."""

from __future__ import annotations

from typing import Any

from srl.api.transport import ChannelClosed, Message
from srl.schedulers.agent.connection import ControllerLine
from srl.schedulers.hosts.messages import Welcome

WELCOME = Welcome("run", "host", b"", [], [], [], False, 60.0)


class Line:
    """A channel whose other end is written by the test."""

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


def line_to(first: Line, *others: Line, headless: float = 60.0) -> ControllerLine:
    waiting = list(others)
    return ControllerLine(first, lambda: waiting.pop(0), headless, lambda channel: None)
