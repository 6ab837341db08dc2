"""The door for other terminals: `srl ps`, `srl stop` and `srl scale` talk to a run through its control socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Union

from srl.api.status import RunStatus
from srl.api.transport import Channel, ChannelClosed, Listener, Message
from srl.schedulers.runtime import runtime_root, sweep
from srl.transports.host import HostTransport

CONTROL = "control"
REPLY_SECONDS = 5.0


class AskStatus(Message, frozen=True):
    """Tell me how it goes."""


class AskStop(Message, frozen=True):
    """End the run: write a checkpoint and leave."""


class AskScale(Message, frozen=True):
    group: str
    count: int
    relative: bool


class TellStatus(Message, frozen=True):
    status: RunStatus


class TellResult(Message, frozen=True):
    ok: bool
    text: str


Messages: Any = Union[AskStatus, AskStop, AskScale, TellStatus, TellResult]


class ControlDoor:
    """The controller's end: polled beside the workers, never waits."""

    def __init__(self, runtime: Path, serve: Callable[[Message], Message]) -> None:
        self._listener: Listener = HostTransport(runtime).listen(CONTROL, Messages)
        (runtime / "address").write_text(self._listener.address)
        self._serve = serve
        self._channels: list[Channel] = []

    def poll(self) -> None:
        while (channel := self._listener.accept()) is not None:
            self._channels.append(channel)
        for channel in list(self._channels):
            try:
                while (received := channel.receive()) is not None:
                    channel.send(self._serve(received[0]))
                channel.flush()
            except ChannelClosed:
                channel.close()
                self._channels.remove(channel)

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._listener.close()


def running() -> dict[str, Path]:
    """The live runs of this user: name and runtime directory."""
    found: dict[str, Path] = {}
    root = runtime_root()
    if root.is_dir():
        sweep(root)
        for directory in sorted(root.iterdir(), key=lambda d: d.stat().st_mtime):
            if (directory / "address").exists():
                status = ask(directory, AskStatus())
                if isinstance(status, TellStatus):
                    found[status.status.run] = directory
    return found


def ask(runtime: Path, message: Message) -> Message | None:
    """Put one question to a run; None if it does not answer."""
    try:
        address = (runtime / "address").read_text()
        channel = HostTransport(runtime).connect(address, Messages)
    except (OSError, ChannelClosed):
        return None
    try:
        channel.send(message)
        deadline = time.monotonic() + REPLY_SECONDS
        while time.monotonic() < deadline:
            received = channel.receive()
            if received is not None:
                return received[0]
            time.sleep(0.005)
    except ChannelClosed:
        pass
    finally:
        channel.close()
    return None
