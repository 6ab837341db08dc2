"""The control socket of a run, for requests of the dashboard and of commands such as `srl ps` and `srl stop`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from srl.api.control import OptionValue
from srl.api.status import RunStatus
from srl.api.transport import Channel, ChannelClosed, Listener, Message, Transport
from srl.base.errors import nearest
from srl.base.files import read_regular, write_whole
from srl.transports.host import HostTransport
from srl.transports.join_ticket import JOIN, Identity, read_ticket
from srl.transports.runtime_dir import own_directories
from srl.transports.tls import PREFIX, TlsTransport

if TYPE_CHECKING:
    from srl.controller.controller import Controller

CONTROL = "control"
ADDRESS = "address"
CLUSTER = "cluster"  # folder, inside the run directory, that holds the address of a controller on another machine
STOP_REASON = "srl stop"
"""Reason recorded for a run that was stopped on request, so that a queued or restarted job does not continue it."""
REACH_SECONDS = 3.0
REPLY_SECONDS = 5.0
MAX_CONCURRENT = 32
MAX_ADDRESS_BYTES = 4096


class StatusRequest(Message, frozen=True):
    """Asks for the status."""


class StopRequest(Message, frozen=True):
    """Asks the run to end after a last checkpoint."""


class ScaleRequest(Message, frozen=True):
    """Asks for a different number of workers in a group."""

    group: str
    count: int
    relative: bool  # whether `count` is added to the current number


class SaveRequest(Message, frozen=True):
    """Asks for a checkpoint now."""


class EvaluateRequest(Message, frozen=True):
    """Asks for an evaluation of the newest version."""


class ChangeRequest(Message, frozen=True):
    """Asks for another value of an option that may change during a run."""

    name: str
    value: OptionValue


class FaultRequest(Message, frozen=True):
    """Asks for one of `srl.controller.faults.FAULTS` in a worker or its host, for `srl chaos`; a temporary one lasts
    for `seconds`. The answer to `flood` has the addresses to which strangers may connect, separated by spaces."""

    worker: str
    fault: str
    seconds: float


class StatusReply(Message, frozen=True):
    status: RunStatus


class ResultReply(Message, frozen=True):
    ok: bool
    text: str


Request = Union[StatusRequest, StopRequest, SaveRequest, EvaluateRequest, ScaleRequest, ChangeRequest, FaultRequest]
Messages: Any = Union[Request, StatusReply, ResultReply]


class ControlServer:
    """The controller's control socket. `poll` never blocks; `remote` accepts commands from other machines."""

    def __init__(self, runtime: Path, run: Controller, remote: Listener | None = None) -> None:
        local: Listener = HostTransport(runtime).listen(CONTROL, Messages)
        write_whole(runtime / ADDRESS, local.address.encode())
        self._listeners = [local] if remote is None else [local, remote]
        self._run = run
        self._channels: list[Channel] = []

    def poll(self) -> None:
        for listener in self._listeners:
            while (channel := listener.accept()) is not None:
                self._channels.append(channel)
        for channel in list(self._channels):
            try:
                while (received := channel.receive()) is not None:
                    channel.send(self._answer(received[0]))
                channel.flush()
            except ChannelClosed:
                channel.close()
                self._channels.remove(channel)

    def _answer(self, request: Message) -> Message:
        if isinstance(request, StatusRequest):
            return StatusReply(self._run.status())
        if isinstance(request, StopRequest):
            self._run.stop("stopped", STOP_REASON)
            return ResultReply(True, f"{self._run.status().run} is stopping")
        if isinstance(request, SaveRequest):
            self._run.save_requested = True
            return ResultReply(True, f"{self._run.status().run} writes a checkpoint")
        try:
            if isinstance(request, EvaluateRequest):
                self._run.evaluate()
                return ResultReply(True, "the newest version is evaluated as soon as the evaluator is free")
            if isinstance(request, ScaleRequest):
                return ResultReply(True, self._run.scale(request.group, request.count, request.relative))
            if isinstance(request, ChangeRequest):
                text = self._run.change_option(request.name, request.value)
                self._run.add_message(text, "change")
                return ResultReply(True, text)
            if isinstance(request, FaultRequest):
                return ResultReply(True, self._run.inject_fault(request.worker, request.fault, request.seconds))
        except ValueError as error:
            return ResultReply(False, str(error))
        return ResultReply(False, "unknown request")

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        for listener in self._listeners:
            listener.close()


def remote_listener(directory: Path, identity: Identity, host: str) -> Listener:
    """Return a listener for commands from other machines, which find its address in a shared directory."""
    listener = TlsTransport(identity, CONTROL, host).listen("the control socket", Messages)
    write_whole(directory / ADDRESS, listener.address.encode())
    return listener


def addresses(elsewhere: Sequence[Path] = ()) -> list[Path]:
    """Return the directories with the addresses of this user's runs on this host, and those `elsewhere`. These must be
    trusted, because this process connects to the addresses in them."""
    return [directory for directory in (*elsewhere, *own_directories()) if (directory / ADDRESS).exists()]


def live(elsewhere: Sequence[Path] = ()) -> dict[str, tuple[Path, RunStatus]]:
    """Return this user's live runs: path of the run -> directory with the run's address, and its status. Runs in
    different roots may have the same name. All are asked concurrently, so an unresponsive one does not delay the
    others; see :func:`addresses` for `elsewhere`."""
    if not (directories := addresses(elsewhere)):
        return {}
    with ThreadPoolExecutor(min(len(directories), MAX_CONCURRENT)) as pool:
        answers = list(pool.map(lambda directory: ask(directory, StatusRequest()), directories))
    return {
        answer.status.path: (directory, answer.status)
        for directory, answer in zip(directories, answers, strict=True)
        if isinstance(answer, StatusReply)
    }


def running(elsewhere: Sequence[Path] = ()) -> dict[str, Path]:
    """Return this user's live runs: path of the run -> directory with the run's address."""
    return {path: directory for path, (directory, _) in live(elsewhere).items()}


def ask(runtime: Path, message: Message) -> Message | None:
    """Send one request to a run and return its answer, or None if it does not answer."""
    try:
        address = read_regular(runtime / ADDRESS, MAX_ADDRESS_BYTES).decode(errors="replace")
        transport: Transport = HostTransport(runtime)
        if address.startswith(PREFIX):
            transport = TlsTransport(read_ticket(runtime / JOIN), CONTROL, connect_wait=REACH_SECONDS)
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


def pick(wanted: str, runs: Mapping[str, Path], root: Path | None = None) -> tuple[str, Path]:
    """Return the name and directory of the live run with this path, this name or unique prefix of a name. The keys of
    `runs` are paths. Of several runs with the same name, choose the one below `root`."""
    named = [path for path in runs if Path(path).name == Path(wanted).name]
    found = named or [path for path in runs if Path(path).name.startswith(wanted)]
    if len(named) > 1:
        near = (Path(wanted).expanduser().resolve(), *([] if root is None else [root.expanduser().resolve() / wanted]))
        found = [path for path in named if Path(path).resolve() in near] or named
        if len(found) > 1:
            raise ValueError(
                f"several runs in progress are called {wanted!r}; give the path of one: {', '.join(named)}"
            )
    names = [Path(path).name for path in found]
    if len(names) > 1:
        raise ValueError(f"{wanted!r} is the beginning of several runs in progress: {', '.join(sorted(names))}")
    if not names:
        known = [Path(path).name for path in runs]
        raise ValueError(f"no run in progress is called {wanted!r}{nearest(wanted, known)}")
    return names[0], runs[found[0]]
