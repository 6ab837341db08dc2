"""The door for other terminals: `srl ps`, `srl stop` and `srl scale` talk to a run through its control socket."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Union

from srl.api.status import RunStatus
from srl.api.transport import Channel, ChannelClosed, Listener, Message, Transport
from srl.base.files import write_whole
from srl.base.suggestions import nearest
from srl.schedulers.agent.secret import read_secret
from srl.schedulers.local.runtime_dir import runtime_root, sweep
from srl.transports.host import HostTransport
from srl.transports.tcp import TcpTransport

CONTROL = "control"
ADDRESS = "address"
SECRET = "secret"
CLUSTER = "cluster"
"""Folder of a run directory: how a run that is conducted on another machine is reached."""
STOP_REASON = "srl stop"
"""Why a run ended that was asked to through its door: for good, whoever conducts it."""
REACH_SECONDS = 3.0
REPLY_SECONDS = 5.0
MAX_ASKED = 32


class AskStatus(Message, frozen=True):
    """Tell me how it goes."""


class AskStop(Message, frozen=True):
    """End the run: write a checkpoint and leave."""


class AskScale(Message, frozen=True):
    group: str
    count: int
    relative: bool


class AskFault(Message, frozen=True):
    """Do harm to a worker, for `srl chaos`: kill | stop | slow | partition, the latter two for some seconds."""

    worker: str
    fault: str
    seconds: float


class TellStatus(Message, frozen=True):
    status: RunStatus


class TellResult(Message, frozen=True):
    ok: bool
    text: str


Messages: Any = Union[AskStatus, AskStop, AskScale, AskFault, TellStatus, TellResult]


class ControlDoor:
    """The controller's end: polled beside the workers, never waits. `remote` is for commands on other machines."""

    def __init__(self, runtime: Path, serve: Callable[[Message], Message], remote: Listener | None = None) -> None:
        local: Listener = HostTransport(runtime).listen(CONTROL, Messages)
        write_whole(runtime / ADDRESS, local.address.encode())
        self._listeners = [local] if remote is None else [local, remote]
        self._serve = serve
        self._channels: list[Channel] = []

    def poll(self) -> None:
        for listener in self._listeners:
            while (channel := listener.accept()) is not None:
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
        for listener in self._listeners:
            listener.close()


def remote_door(directory: Path, secret: bytes, host: str) -> Listener:
    """An endpoint for commands on other machines, which find it in a directory that they share with this one."""
    listener = TcpTransport(secret, CONTROL, host, encrypt=True).listen("the run's door", Messages)
    write_whole(directory / ADDRESS, listener.address.encode())
    return listener


def live(root: Path | None = None) -> dict[str, tuple[Path, RunStatus]]:
    """The live runs of this user: name, the directory in which they are reached, and how they are. With `root` also
    those of the runs below it that are conducted on another machine. All are asked at the same time: one that does not
    answer holds nobody else up."""
    doors = [door.parent for door in sorted(root.glob(f"*/{CLUSTER}/{ADDRESS}"))] if root is not None else []
    if (local := runtime_root()).is_dir():
        sweep(local)
        there = sorted(local.iterdir(), key=lambda directory: directory.stat().st_mtime)
        doors += [directory for directory in there if (directory / ADDRESS).exists()]
    if not doors:
        return {}
    with ThreadPoolExecutor(min(len(doors), MAX_ASKED)) as pool:
        answers = list(pool.map(lambda door: ask(door, AskStatus()), doors))
    return {
        answer.status.run: (door, answer.status)
        for door, answer in zip(doors, answers, strict=True)
        if isinstance(answer, TellStatus)
    }


def running(root: Path | None = None) -> dict[str, Path]:
    """The same without how they are."""
    return {name: door for name, (door, _) in live(root).items()}


def ask(runtime: Path, message: Message) -> Message | None:
    """Put one question to a run; None if it does not answer."""
    try:
        address = (runtime / ADDRESS).read_text()
        transport: Transport = HostTransport(runtime)
        if address.startswith("tcp:"):
            transport = TcpTransport(read_secret(runtime / SECRET), CONTROL, encrypt=True, patience=REACH_SECONDS)
        channel = transport.connect(address, Messages)
    except (OSError, ChannelClosed):
        return None
    try:
        channel.send(message)
        deadline = time.monotonic() + REPLY_SECONDS
        while time.monotonic() < deadline:
            channel.flush()
            received = channel.receive()
            if received is not None:
                return received[0]
            time.sleep(0.005)
    except ChannelClosed:
        pass
    finally:
        channel.close()
    return None


def pick(wanted: str, runs: dict[str, Path]) -> tuple[str, Path]:
    """The live run that is meant by its name, a unique beginning of it, or `latest`."""
    names = [name for name in runs if name == Path(wanted).name] or [n for n in runs if n.startswith(wanted)]
    if wanted == "latest" and runs:
        names = [list(runs)[-1]]
    if len(names) != 1:
        raise ValueError(f"no single run {wanted!r} is going on{nearest(wanted, runs)}")
    return names[0], runs[names[0]]
