"""The single-host scheduler: one process per worker, all of which end with the supervisor."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from srl.api.control import InjectFault, ToWorker
from srl.api.experiment import Resources
from srl.api.parameters import ParameterStore
from srl.api.scheduler import Died, Event, HostEvent, Scheduler, Usage, WorkerMessage
from srl.api.transport import Channel, ChannelClosed
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.clock import ObservedTime
from srl.base.config import to_data
from srl.base.meter import Meter
from srl.base.process import uninterrupted
from srl.schedulers.local import zygote_launch
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.strays import kill_strays
from srl.schedulers.local.usage import UsageMeters
from srl.schedulers.local.worker_logs import LogStore, WorkerLogs
from srl.schedulers.local.zygote import (
    CANNOT_FORK,
    Exited,
    Forked,
    ForkRequest,
    Network,
    Ping,
    Pong,
    RunSetup,
    control_channel,
)
from srl.schedulers.local.zygote_launch import MESSAGE_BYTES, ZygoteHandle, end_zygote, kill_process_group
from srl.workers.process import LEFT, PREEMPTED

HINTS = {
    "SIGKILL": " (by a user, or by the kernel because memory ran out)",
    "SIGBUS": " (shared memory is full: use fewer --lanes or a shorter --horizon)",
}
ZYGOTE = "zygote"  # name of the zygote's log
PING_SECONDS = 1.0
"""Interval between liveness checks of the zygote."""
ZYGOTE_SECONDS = 2.0
"""Time without an answer after which a zygote is replaced. Its workers keep running."""
MAX_GAP_SECONDS = 0.5
"""Maximum time between two looks that counts as silence."""


@dataclass
class _Child:
    worker_id: WorkerId
    page: int  # page of its gauges in the run's memory
    control: Channel
    log: str  # name of its log
    zygote: ZygoteHandle
    mark: int  # of the processes that it starts
    pid: int = 0
    pidfd: int = -1  # readable once the process has ended
    ended: bool = False  # whether its process has ended; the zygote reports how
    killed: bool = False


class ProcessScheduler(Scheduler):
    """Scheduler whose workers are forks of a zygote, which ends when its socket to this process closes."""

    def __init__(
        self,
        run: str,
        memory: RunMemory,
        runtime: Path,
        logs: LogStore,
        preload: Sequence[str] = (),
        path: Sequence[str] = (),
        network: Network | None = None,
    ) -> None:
        """The scheduler closes `logs`."""
        self._run = run
        self._memory = memory
        self._runtime = runtime
        self._logs = WorkerLogs(logs)
        self._preload = list(preload)
        self._path = [os.getcwd(), *path]
        self._network = network or Network(secrets.token_bytes(32))
        self._usage = UsageMeters(self._network.host)
        self._children: dict[int, _Child] = {}  # by page
        self._pages: dict[tuple[str, int], int] = {}
        self._events: deque[Event] = deque()
        self._poller = select.poll()
        self._retired: list[ZygoteHandle] = []  # unresponsive zygotes whose workers are still alive
        self._runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._start_zygote()

    def _start_zygote(self) -> None:
        self._handle = zygote_launch.take_zygote()
        self._channel = self._handle.channel
        self._answers = self._asked = False  # it answers once it has imported its modules
        self._silence, self._next_ping = 0.0, 0.0
        # A pause of this process, or of the whole machine, must not count as the zygote's silence.
        self._looks = ObservedTime(time.monotonic(), MAX_GAP_SECONDS)
        memory = self._memory.descriptors()
        setup = RunSetup(self._run, str(self._runtime), self._network, list(memory), self._preload, self._path)
        log = self._logs.open(ZYGOTE)
        with contextlib.suppress(ConnectionError):  # poll detects this
            socket.send_fds(self._channel, [msgspec.msgpack.encode(setup)], [log, *memory.values()])
        os.close(log)
        self._poller.register(self._channel, select.POLLIN)

    @property
    def ready(self) -> bool:
        """Whether a worker would start at once, because the zygote has imported its modules."""
        return self._answers

    def start(self, worker_id: WorkerId, config: WorkerConfig, resources: Resources, seed: int) -> None:
        self.launch(worker_id, to_data(config), resources.niceness, seed)

    @uninterrupted()
    def launch(self, worker_id: WorkerId, config: Any, niceness: int, seed: int) -> None:
        """Start a worker whose config is already plain data."""
        page = self._pages.setdefault((worker_id.group, worker_id.index), len(self._pages))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._memory.meters.meter(page).reset()
        log = f"{worker_id.group}-{worker_id.index}"
        mark = next(self._handle.worker_marks)
        who = (worker_id.group, worker_id.index, worker_id.incarnation)
        request = ForkRequest(*who, page, seed, niceness, mark, config)
        control = control_channel(ours, worker_id.name)
        self._children[page] = _Child(worker_id, page, control, log, self._handle, mark)
        self._poller.register(control.fileno(), select.POLLIN)
        output = self._logs.open(log)
        with theirs:
            self._request(msgspec.msgpack.encode(request), [theirs.fileno(), output])
        os.close(output)

    def _request(self, data: bytes, descriptors: list[int]) -> None:
        """Send a request to the zygote, which may be blocked until its earlier answers are read."""
        channel = self._channel
        both = select.poll()
        both.register(channel, select.POLLIN | select.POLLOUT)
        while self._channel is channel:  # otherwise the zygote died, and its workers were reported dead
            try:
                socket.send_fds(channel, [data], descriptors, socket.MSG_DONTWAIT)
                return
            except BlockingIOError:
                self._receive_from_zygote()
                both.poll(1000.0)
            except ConnectionError:
                self._zygote_died()

    def watch(self, fd: int) -> None:
        """Make `poll` return when this descriptor becomes readable."""
        self._poller.register(fd, select.POLLIN)

    def check_room(self, wanted: Sequence[tuple[str, Resources]]) -> None:
        """Raise ValueError if there are too few pages for gauges. Nothing else is limited: workers share all cores."""
        total = len(self._children) + len(wanted)
        if total > self._memory.meters.num_pages:
            raise ValueError(f"a host runs at most {self._memory.meters.num_pages} workers, but {total} were requested")

    def send(self, worker_ids: Sequence[WorkerId], message: ToWorker) -> None:
        for worker_id in worker_ids:
            child = self._child(worker_id)
            if child is not None:
                with contextlib.suppress(ChannelClosed):  # the zygote reports its death
                    child.control.send(message)

    def worker_ids(self) -> list[WorkerId]:
        """Return the workers that are alive or starting."""
        return [child.worker_id for child in self._children.values()]

    def kill(self, worker_id: WorkerId) -> None:
        child = self._child(worker_id)
        if child is None:
            return
        child.killed = True
        kill_process_group(child.pid)

    def signal(self, worker_id: WorkerId, number: int) -> None:
        pid = self.pid(worker_id)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def disturb_host(self, worker_id: WorkerId, fault: str, seconds: float) -> None:
        if fault == "slow-link":
            self.send(self.worker_ids(), InjectFault(fault, seconds))
        elif fault == "freeze-zygote":  # and a worker that it would have to fork again
            os.kill(self._handle.process.pid, signal.SIGSTOP)
            self.signal(worker_id, signal.SIGKILL)
        else:
            raise ValueError("it needs a run with agents (--scheduler hosts)")

    def _child(self, worker_id: WorkerId) -> _Child | None:
        page = self._pages.get((worker_id.group, worker_id.index), -1)
        child = self._children.get(page)
        return child if child is not None and child.worker_id == worker_id else None

    def poll(self, timeout: float) -> list[Event]:
        self._handle_ready({fd for fd, _ in self._poller.poll(timeout * 1000)})
        events = list(self._events)
        self._events.clear()
        return events

    @uninterrupted()  # a descriptor is closed and forgotten in one step
    def _handle_ready(self, descriptors: Container[int]) -> None:
        for child in list(self._children.values()):
            if child.control.fileno() in descriptors:
                self._receive(child)
        if self._channel.fileno() in descriptors:
            self._receive_from_zygote()
        for child in list(self._children.values()):
            if child.pidfd in descriptors:
                self._note_end(child)
        self._check_zygote()

    def _receive(self, child: _Child) -> None:
        try:
            while (received := child.control.receive()) is not None:
                self._events.append(WorkerMessage(child.worker_id, received[0]))  # type: ignore[arg-type]
        except ChannelClosed:
            self._poller.unregister(child.control.fileno())
            child.control.close()

    def _receive_from_zygote(self) -> None:
        while True:
            try:
                data = self._channel.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionError:
                data = b""
            if not data:
                self._zygote_died()
                return
            self._answers, self._asked, self._silence = True, False, 0.0
            message = msgspec.msgpack.decode(data, type=Forked | Exited | Pong)
            if isinstance(message, Pong) or (child := self._children.get(message.page)) is None:
                continue
            if isinstance(message, Forked):
                child.pid = message.pid
                with contextlib.suppress(OSError):  # it has already ended, as the next message says
                    child.pidfd = os.pidfd_open(message.pid)
                    self._poller.register(child.pidfd, select.POLLIN)
                if child.killed:
                    self.kill(child.worker_id)
            elif child.pid == message.pid:
                status = message.status
                self._remove(child, _describe(status), clean=status == LEFT, blameless=status == PREEMPTED)

    def _note_end(self, child: _Child) -> None:
        """Note that a worker's process has ended. Its zygote reports how, unless the zygote is stuck."""
        self._poller.unregister(child.pidfd)
        child.ended = True
        if child.zygote in self._retired:
            self._remove(child, "ended", clean=False, blameless=child.zygote.process.poll() is not None)

    def _check_zygote(self) -> None:
        """Ask the zygote for a sign of life; replace it if it does not answer."""
        now = time.monotonic()
        passed = self._looks.passed(now)
        if now >= self._next_ping:
            self._next_ping = now + PING_SECONDS
            # If the channel is full, the zygote does not answer; if it is closed, `poll` notices.
            for channel in (self._channel, *(handle.channel for handle in self._retired)):
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    channel.send(msgspec.msgpack.encode(Ping()), socket.MSG_DONTWAIT)
            # Until it has imported its modules, which may take long, it counts as silent only if it is stopped.
            self._asked = self._answers or _is_stopped(self._handle.process.pid)
            if not self._asked:
                self._silence = 0.0
        if self._asked:
            self._silence += passed
            if self._silence > ZYGOTE_SECONDS:
                self._replace_zygote()
        for handle in list(self._retired):
            if not any(child.zygote is handle for child in self._children.values()):
                self._retired.remove(handle)
                end_zygote(handle)

    def _replace_zygote(self) -> None:
        """Start a new zygote for future forks. The old one's workers live as long as it does."""
        self._poller.unregister(self._channel)
        self._retired.append(self._handle)
        self._events.append(HostEvent("the zygote, from which workers are forked, does not answer; it is replaced"))
        for child in list(self._children.values()):
            if child.zygote is self._handle and (not child.pid or child.ended):
                reason = "ended" if child.pid else "its zygote does not answer"
                self._remove(child, reason, clean=False, blameless=not child.pid)
        self._start_zygote()

    def _remove(self, child: _Child, reason: str, clean: bool, blameless: bool = False) -> None:
        if child.pidfd >= 0:
            if not child.ended:
                self._poller.unregister(child.pidfd)
            os.close(child.pidfd)
        if child.zygote.process.returncode is None:  # otherwise one search finds what all its workers left behind
            kill_strays(child.mark)
        if child.control.fileno() >= 0:
            self._receive(child)  # messages from before its death
        if child.control.fileno() >= 0:
            self._poller.unregister(child.control.fileno())
            child.control.close()
        del self._children[child.page]
        self._usage.forget(child.worker_id.name)
        if clean:
            self._logs.drain(child.log)
        else:  # a killed worker cannot write this itself
            self._logs.write(child.log, f"srl: {child.worker_id.name} died: {reason}")
        self._events.append(Died(child.worker_id, reason, clean, blameless))

    def _zygote_died(self) -> None:
        """Report the workers that died with the zygote (the kernel kills them), and start a new zygote."""
        self._poller.unregister(self._channel)
        self._channel.close()
        zygote = self._handle.process
        reason = f"the zygote, from which workers are forked, ended: {_describe(zygote.wait())}"
        if was_killed := zygote.returncode < 0:  # not the fault of its workers; a zygote that fails would fail again
            self._events.append(HostEvent(reason))
        else:
            self._logs.drain(ZYGOTE)
            reason += f"; the end of its log:\n{self._logs.tail(ZYGOTE).strip()[-4000:]}"
        for child in list(self._children.values()):
            if child.zygote is self._handle:
                kill_process_group(child.pid)
                self._remove(child, reason, clean=False, blameless=was_killed)
        kill_strays(self._handle.mark)
        self._start_zygote()

    def meter(self, worker_id: WorkerId) -> Meter:
        return self._memory.meters.meter(self._pages[(worker_id.group, worker_id.index)])

    def pid(self, worker_id: WorkerId) -> int:
        child = self._child(worker_id)
        return child.pid if child is not None else 0

    def usage(self, worker_id: WorkerId) -> Usage:
        return self._usage.measure(worker_id.name, self.pid(worker_id))

    def parameters(self) -> Mapping[str, ParameterStore]:
        return self._memory.parameters

    def dump(self, worker_id: WorkerId) -> str:
        """Return the stack traces that a worker's fault handler writes to its log."""
        child = self._child(worker_id)
        if child is None or not child.pid:
            return ""
        before = self._logs.size(child.log)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGUSR1)
            deadline = time.monotonic() + 1.0
            while time.monotonic() < deadline and self._logs.size(child.log) == before:
                time.sleep(0.02)
        return self._logs.tail(child.log, before)

    @uninterrupted()
    def close(self) -> None:
        if self._channel.fileno() < 0:
            return
        self._poller.unregister(self._channel)
        for child in self._children.values():
            kill_process_group(child.pid)
            child.control.close()
            if child.pidfd >= 0:
                os.close(child.pidfd)
        self._children.clear()
        for handle in (self._handle, *self._retired):
            end_zygote(handle)
        self._retired.clear()
        self._logs.close()


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.NoSuchProcess:  # `poll` notices
        return False


def _describe(status: int) -> str:
    if status < 0:
        name = signal.Signals(-status).name
        return f"killed by {name}{HINTS.get(name, '')}"
    if status == PREEMPTED:
        return "asked to leave (SIGTERM)"
    if status == CANNOT_FORK:
        return "it could not be forked: memory ran out, or the limit on processes is reached (`ulimit -u`)"
    return f"exited with code {status}"
