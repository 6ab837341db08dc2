"""The zygote: a process that imported torch once, and forks a worker in milliseconds whenever one is needed."""

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
from pathlib import Path
from typing import Any

import msgspec

from srl.api.control import Register
from srl.api.worker import Place, WorkerConfig
from srl.base.config import from_data
from srl.base.process import signal_on_parent_death
from srl.names.table import NameView
from srl.schedulers.local.control import control_channel
from srl.schedulers.local.run_memory import RunMemory
from srl.schedulers.local.zygote_launch import MESSAGE_BYTES
from srl.workers.context import WorkerContext
from srl.workers.process import WorkerHost, limit_threads

MAX_DESCRIPTORS = 250
"""Linux passes no more with one message."""
CANNOT_FORK = 71
"""Stands for the exit code of a worker that never was."""


class Network(msgspec.Struct, frozen=True):
    """How workers reach those of other hosts."""

    secret: bytes
    bind: str = "127.0.0.1"
    host: str = ""
    """This host's name in the run; empty where it is the only one."""
    encrypt: bool = False


class Hello(msgspec.Struct):
    """What the supervisor tells its zygote first. Its log and the run's memory come as descriptors with it."""

    run: str
    runtime: str
    network: Network
    memory: list[str]
    """What the descriptors behind the log's are."""
    preload: list[str]
    path: list[str]


class Launch(msgspec.Struct):
    """Fork a worker. Its control socket and its log come as descriptors with the message."""

    group: str
    index: int
    incarnation: int
    page: int
    seed: int
    niceness: int
    config: Any


class Forked(msgspec.Struct, tag=True):
    page: int
    pid: int


class Exited(msgspec.Struct, tag=True):
    page: int
    pid: int
    status: int


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    infancy = _Infancy(channel)
    gc.disable()  # What is imported stays: looking for garbage in it takes a tenth of the time.
    for module in sys.argv[2:]:
        importlib.import_module(module)
    hello, memory = infancy.hear()
    sys.path[:0] = [entry for entry in hello.path if entry not in sys.path]
    for module in hello.preload:
        importlib.import_module(module)
    gc.enable()
    Zygote(channel, hello, memory).run()


class _Infancy:
    """Until we serve, that is while we import, only a signal tells that the supervisor is gone."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._parent = os.getppid()
        self._runtime: str | None = None
        self._poller = select.poll()
        self._poller.register(channel, 0)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._leave_if_alone)
        signal_on_parent_death(signal.SIGTERM)
        self._leave_if_alone()  # it may have gone before the kernel knew of our wish

    def hear(self, flags: int = 0) -> tuple[Hello, dict[str, int]]:
        """Wait to be told what the run is; its memory as descriptors."""
        try:
            data, (log, *memory), _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, MAX_DESCRIPTORS, flags)
        except (ConnectionError, ValueError):
            os._exit(0)  # there will be no run
        hello = msgspec.msgpack.decode(data, type=Hello)
        self._runtime = hello.runtime
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        return hello, dict(zip(hello.memory, memory, strict=True))

    def _leave_if_alone(self, *_: object) -> None:
        if not self._poller.poll(0) and os.getppid() == self._parent:  # the other end is open
            return
        if self._runtime is None:
            self.hear(socket.MSG_DONTWAIT)
        shutil.rmtree(str(self._runtime), ignore_errors=True)
        os._exit(1)


class Zygote:
    def __init__(self, channel: socket.socket, hello: Hello, memory: dict[str, int]) -> None:
        self._channel = channel
        self._hello = hello
        self._memory = memory  # name -> descriptor
        self._pid = os.getpid()
        self._pages: dict[int, int] = {}  # pid -> page

    def run(self) -> None:
        """Serve until the supervisor is gone; then take everything along."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the supervisor decides; its death is our end
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        poller.register(wake_read, select.POLLIN)
        gc.freeze()  # forked workers share these pages: keep the collector from touching them
        alive = True
        while alive:
            for fd, _ in poller.poll():
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    self._reap()
                else:
                    alive = self._serve()
        self._end()
        # To take torch down in good order would cost tenths of a second, in which we still seem to be there.
        os._exit(0)

    def _serve(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, MESSAGE_BYTES, 2)
        except ConnectionError:
            return False
        if not data:
            return False
        launch = msgspec.msgpack.decode(data, type=Launch)
        control, log = descriptors
        try:
            pid = os.fork()
        except OSError as error:
            print(f"cannot fork {launch.group}/{launch.index}: {error}", flush=True)
            os.close(control)
            os.close(log)
            self._tell(Exited(launch.page, 0, CANNOT_FORK))
            return True
        if pid == 0:
            os.setpgid(0, 0)  # what a worker starts is in its group, and ends with it
            code = 1
            try:
                self._become(launch, control, log)
                code = run_worker(launch, self._hello, self._memory, control)
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        with contextlib.suppress(OSError):  # whoever comes first, we or the child
            os.setpgid(pid, pid)
        os.close(control)
        os.close(log)
        self._pages[pid] = launch.page
        self._tell(Forked(launch.page, pid))
        return True

    def _become(self, launch: Launch, control: int, log: int) -> None:
        """Turn a fresh copy of the zygote into a worker that dies with it."""
        signal_on_parent_death(signal.SIGKILL)
        if os.getppid() != self._pid:
            os._exit(1)  # the zygote died before the kernel knew of our wish
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._channel.close()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.nice(launch.niceness)
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        sys.argv = [f"srl-worker {launch.group}/{launch.index}"]

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
                self._tell(Exited(page, pid, os.waitstatus_to_exitcode(status)))

    def _tell(self, message: Forked | Exited) -> None:
        with contextlib.suppress(ConnectionError):  # the supervisor is gone: the next poll ends us
            self._channel.send(msgspec.msgpack.encode(message))

    def _end(self) -> None:
        for pid in self._pages:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        shutil.rmtree(self._hello.runtime, ignore_errors=True)


def run_worker(launch: Launch, hello: Hello, descriptors: dict[str, int], control_fd: int) -> int:
    """The life of a worker process."""
    from srl.transports.host import HostTransport
    from srl.transports.tcp import TcpTransport

    limit_threads()
    network = hello.network
    memory = RunMemory.inherit(descriptors)
    control = control_channel(socket.socket(fileno=control_fd), "controller")
    names = NameView(lambda name, address: control.send(Register(name, address)))
    context = WorkerContext(
        place=Place(launch.group, launch.index, launch.incarnation),
        seed=launch.seed,
        meter=memory.board.meter(launch.page),
        names=names,
        local=HostTransport(Path(hello.runtime)),
        stores=dict(memory.parameters),
        committed=memory.commits,
        send=control.send,
        threads=True,
        runtime=Path(hello.runtime),
        tcp=lambda: TcpTransport(network.secret, hello.run, network.bind, encrypt=network.encrypt),
        host=network.host,
        bind=network.bind,
    )
    context.bells.watch(control)
    config: WorkerConfig = from_data(launch.config)
    return WorkerHost(config, context, control, names).run()


if __name__ == "__main__":
    main()
