"""The zygote: a process that has already imported torch, and can fork a worker in milliseconds."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any, Union

import msgspec

from srl.api.control import FromWorker, Register, ToWorker
from srl.api.transport import Channel, Transport
from srl.api.worker import WorkerConfig, WorkerId
from srl.base.clock import ObservedTime
from srl.base.config import from_data
from srl.base.process import signal_on_parent_death
from srl.base.wire import Codec
from srl.names.table import NameView
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.strays import MARK, kill_strays, mark_process
from srl.schedulers.local.zygote_launch import MESSAGE_BYTES
from srl.transports.endpoints import Refusals
from srl.transports.host import HostTransport
from srl.transports.host_channel import HostChannel
from srl.workers.context import WorkerContext
from srl.workers.process import WorkerProcess, limit_threads

SUPERVISOR_SECONDS = 10.0
"""Time without a message after which the agent of a host counts as frozen. Its workers have been replaced by then."""
MAX_DESCRIPTORS = 250  # just below Linux's limit for one message
CANNOT_FORK = 71  # placeholder for the exit code of a worker that could not be forked
TCP = "srl.transports.tcp"
"""Imported only if workers communicate with other hosts: the import takes as long as starting a worker."""
ControlMessages: Any = Union[FromWorker, ToWorker]


class Network(msgspec.Struct, frozen=True):
    """Settings for connections to workers on other hosts."""

    secret: bytes
    bind: str = "127.0.0.1"
    host: str = ""  # name of this host in the run; empty if it is the only one
    encrypt: bool = False


class RunSetup(msgspec.Struct):
    """First message from the supervisor, with descriptors of the zygote's log and the run's memory."""

    run: str
    runtime: str
    network: Network
    memory: list[str]  # names of the memory's descriptors, which follow the log's
    preload: list[str]
    path: list[str]


class Ping(msgspec.Struct, tag=True):
    """Liveness check of the zygote, which answers with `Pong`."""


class Pong(msgspec.Struct, tag=True):
    """Answer to `Ping`, and the first message of a zygote that has imported its modules."""


class ForkRequest(msgspec.Struct, tag=True):
    """Request to fork a worker, with descriptors of its control socket and its log."""

    group: str
    index: int
    incarnation: int
    page: int  # page of its gauges in the run's memory
    seed: int
    niceness: int
    mark: int  # of the processes that it will start
    config: Any


class Forked(msgspec.Struct, tag=True):
    page: int
    pid: int


class Exited(msgspec.Struct, tag=True):
    page: int
    pid: int
    status: int


def control_channel(sock: socket.socket, peer: str) -> Channel:
    """Return one end of the control connection between a worker and its supervisor."""
    sock.setblocking(False)
    return HostChannel(sock, Codec(ControlMessages), peer, Refusals())


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    mark_process(int(os.environ[MARK]))
    startup = _Startup(channel)
    gc.disable()  # imported modules stay; searching them for garbage would take a tenth of the time
    for module in sys.argv[2:]:
        importlib.import_module(module)
    setup, memory = startup.receive_setup()
    sys.path[:0] = [entry for entry in setup.path if entry not in sys.path]
    for module in (*setup.preload, *([TCP] if setup.network.host else [])):
        importlib.import_module(module)
    gc.enable()
    Zygote(channel, setup, memory).run()


class _Startup:
    """The phase before the zygote serves requests. During imports, only a signal reports the supervisor's death."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._parent = os.getppid()
        self._runtime: str | None = None
        self._poller = select.poll()
        self._poller.register(channel, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with the supervisor
        signal.signal(signal.SIGCONT, self._exit_if_orphaned)
        signal_on_parent_death(signal.SIGCONT)  # also reaches a zygote that is stopped
        self._exit_if_orphaned()  # the supervisor may have died before the signal was requested

    def receive_setup(self, flags: int = 0) -> tuple[RunSetup, dict[str, int]]:
        """Wait for the run's setup, and return it with the descriptors of the run's memory."""
        try:
            data, (log, *memory), _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, MAX_DESCRIPTORS, flags)
        except (ConnectionError, ValueError):
            os._exit(0)  # there will be no run
        setup = msgspec.msgpack.decode(data, type=RunSetup)
        self._runtime = setup.runtime
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        return setup, dict(zip(setup.memory, memory, strict=True))

    def _exit_if_orphaned(self, *_: object) -> None:
        if not self._poller.poll(0) and os.getppid() == self._parent:  # the other end is open
            return
        if self._runtime is None:
            self.receive_setup(socket.MSG_DONTWAIT)
        shutil.rmtree(str(self._runtime), ignore_errors=True)
        os._exit(1)


class Zygote:
    def __init__(self, channel: socket.socket, setup: RunSetup, memory: dict[str, int]) -> None:
        self._channel = channel
        self._setup = setup
        self._memory = memory  # name -> descriptor
        self._pid = os.getpid()
        self._pages: dict[int, int] = {}  # pid -> page
        self._pinged = False
        self._silence = 0.0  # time without a message from a supervisor that has pinged before

    def run(self) -> None:
        """Serve requests until the supervisor is gone or frozen; then end all workers."""
        signal.signal(signal.SIGCONT, signal.SIG_DFL)  # from now on, the channel reports the supervisor's death
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        poller.register(wake_read, select.POLLIN)
        gc.freeze()  # workers share these pages: keep the garbage collector from writing to them
        self._send(Pong())  # it is ready
        looks = ObservedTime(time.monotonic(), max_gap=2.0)
        alive = True
        while alive and self._silence < SUPERVISOR_SECONDS:
            ready = poller.poll(1000.0 if self._pinged else None)
            if self._pinged:
                self._silence += looks.passed(time.monotonic())
            for fd, _ in ready:
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    self._reap()
                else:
                    alive = self._serve()
        self._end()
        os._exit(0)  # with torch loaded, a regular exit takes tenths of a second

    def _serve(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, 2)
        except ConnectionError:
            return False
        if not data:
            return False
        self._silence = 0.0
        request = msgspec.msgpack.decode(data, type=ForkRequest | Ping)
        if isinstance(request, Ping):
            # Without an agent, the supervisor is the controller: while it is stopped, nothing replaces its workers.
            self._pinged = bool(self._setup.network.host)
            self._send(Pong())
            return True
        control, log = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            print(f"cannot fork {request.group}/{request.index}: {error}", flush=True)
            self._send(Exited(request.page, 0, CANNOT_FORK))
            pid = -1
        if pid == 0:
            os.setpgid(0, 0)  # processes that a worker starts join its group, and end with it
            code = 1
            try:
                self._become_worker(request, log)
                code = run_worker(request, self._setup, self._memory, control)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.close(control)
        os.close(log)
        if pid > 0:
            with contextlib.suppress(OSError):  # parent and child both try, because either may be first
                os.setpgid(pid, pid)
            self._pages[pid] = request.page
            self._send(Forked(request.page, pid))
        return True

    def _become_worker(self, request: ForkRequest, log: int) -> None:
        """Turn this fork of the zygote into a worker that dies with the zygote."""
        signal_on_parent_death(signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(1)  # the zygote died before the signal was requested
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._channel.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.nice(request.niceness)
        mark_process(request.mark)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        sys.argv = [f"srl-worker {request.group}/{request.index}"]

    def _reap(self) -> None:
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(dead.si_pid, signal.SIGKILL)
            pid, status = os.waitpid(dead.si_pid, 0)
            page = self._pages.pop(pid, None)
            if page is not None:
                self._send(Exited(page, pid, os.waitstatus_to_exitcode(status)))

    def _send(self, message: Forked | Exited | Pong) -> None:
        with contextlib.suppress(ConnectionError):  # the supervisor is gone: the next poll ends the zygote
            self._channel.send(msgspec.msgpack.encode(message))

    def _end(self) -> None:
        for pid in self._pages:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        kill_strays(int(os.environ[MARK]))
        shutil.rmtree(self._setup.runtime, ignore_errors=True)


def run_worker(request: ForkRequest, setup: RunSetup, descriptors: dict[str, int], control_fd: int) -> int:
    """Run a worker in this process until it ends, and return the exit code."""
    limit_threads()
    network = setup.network
    memory = RunMemory.inherit(descriptors)
    control = control_channel(socket.socket(fileno=control_fd), "controller")
    names = NameView(lambda name, address: control.send(Register(name, address)))

    def tcp() -> Transport:
        transport: Transport = importlib.import_module(TCP).TcpTransport(
            network.secret, setup.run, network.bind, encrypt=network.encrypt, on_refusal=context.count_refusal
        )
        return transport

    context = WorkerContext(
        worker_id=WorkerId(request.group, request.index, request.incarnation),
        seed=request.seed,
        meter=memory.meters.meter(request.page),
        names=names,
        local=HostTransport(Path(setup.runtime)),
        stores=dict(memory.parameters),
        committed=memory.commits,
        replays=memory.replays,
        send=control.send,
        threads=True,
        runtime=Path(setup.runtime),
        tcp=tcp,
        host=network.host,
        bind=network.bind,
    )
    context.wait_set.watch(control)
    config: WorkerConfig = from_data(request.config)
    return WorkerProcess(config, context, control, names).run()


if __name__ == "__main__":
    main()
