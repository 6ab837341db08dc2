"""The engine for hosts that users add with `srl agent`. It starts only the agent on the controller's own host."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from srl.base.errors import last_log_line
from srl.base.files import write_whole
from srl.base.process import boot_id, start_ticks
from srl.schedulers.agent.join import REFUSED, AgentInput
from srl.schedulers.hosts.engine import Engine, Retries
from srl.transports.join_ticket import JoinTicket

MODULE = "srl.schedulers.agent.join"
CLOSE_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.25
UNKNOWN_STATUS = 256  # placeholder for the exit code of a process that is not a child of this one


class ManualEngine(Engine):
    """Engine that starts only this host's agent, which writes to `log`. With a `record` file, the agent outlives this
    process, and the next controller finds it through that file. A controller that takes over a run sets `takeover`."""

    def __init__(
        self,
        log: Path,
        join_file: Path,
        cpus: float | None = None,
        record: Path | None = None,
        takeover: bool = False,
    ) -> None:
        self._log = log
        self._cpus = cpus
        self._join_file = join_file
        self._record = record
        self._takeover = takeover
        self._new_ticket: Callable[[], JoinTicket] | None = None
        self._agent: subprocess.Popen[bytes] | OrphanAgent | None = None
        self._retries = Retries(FIRST_RETRY_SECONDS)

    def start(self, new_ticket: Callable[[], JoinTicket]) -> None:
        self._new_ticket = new_ticket
        if not self._takeover:
            self._launch(new_ticket())

    def _launch(self, ticket: JoinTicket) -> None:
        given = AgentInput(ticket, cpus=self._cpus, outlives_parent=self._record is not None)
        agent = self._agent = start_agent(given, self._log)
        self._retries.started(time.monotonic())
        if self._record is not None:
            with contextlib.suppress(OSError):  # it has ended, or the disk is full: then it cannot be taken over
                record_agent(agent.pid, self._record)

    def poll(self) -> str | None:
        """Restart the agent if it ended: nothing else would, and all workers may be waiting for it."""
        if self._takeover and self._record is not None:  # not in `start`, which runs before the takeover
            self._takeover = False
            try:
                self._agent = find_agent(self._record)
            except OSError:
                self._new_ticket = None  # the agent may be running, and there must not be two
        now = time.monotonic()
        if self._agent is None:
            if self._new_ticket is not None and self._retries.due(now):
                self._launch(self._new_ticket())
        elif (status := self._agent.poll()) is not None:
            self._agent = None
            if self._retries.ended(now, refused=status == REFUSED):
                return f"the agent of this host ended ({_describe(status)}): {last_log_line(self._log)}"
        return None

    def start_failed(self) -> bool:
        return self._retries.hopeless

    def hint(self) -> str:
        return f"on each other host run: srl agent {self._join_file}"

    def close(self) -> None:
        if self._agent is None:
            return
        try:
            self._agent.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()


def _describe(status: int) -> str:
    if status == UNKNOWN_STATUS:
        return "exit code unknown"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"


def start_agent(given: AgentInput, log: Path) -> subprocess.Popen[bytes]:
    """Start an agent process in its own session, and pass its input on standard input."""
    with log.open("ab") as stream:
        agent = subprocess.Popen(
            [sys.executable, "-m", MODULE], stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True
        )
    assert agent.stdin is not None
    agent.stdin.write(msgspec.msgpack.encode(given))
    agent.stdin.close()
    return agent


class OrphanAgent:
    """An agent started by the previous controller, with the Popen methods needed to wait for it and to kill it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        if self._descriptor >= 0:
            poller = select.poll()
            poller.register(self._descriptor, select.POLLIN)
            if not poller.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(MODULE, timeout or 0.0)
            self.close()
        return UNKNOWN_STATUS

    def kill(self) -> None:
        if self._descriptor >= 0:
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _AgentRecord(msgspec.Struct, frozen=True):
    """What identifies a process: its id alone is reused, and start times repeat after a restart of the machine."""

    boot: str
    pid: int
    start_ticks: int


def record_agent(pid: int, path: Path) -> None:
    write_whole(path, msgspec.json.encode(_AgentRecord(boot_id(), pid, start_ticks(pid))))


def find_agent(path: Path) -> OrphanAgent | None:
    """Return the recorded agent, or None if it has ended. Raises OSError if that cannot be determined."""
    try:
        record = msgspec.json.decode(path.read_bytes(), type=_AgentRecord)
    except msgspec.MsgspecError as error:
        raise OSError(f"{path} is not the record of an agent: {error}") from error
    try:
        agent = OrphanAgent(os.pidfd_open(record.pid))  # first: it refers to this process even if the id is reused
    except ProcessLookupError:
        return None
    try:
        same = (boot_id(), start_ticks(record.pid)) == (record.boot, record.start_ticks)
    except (FileNotFoundError, ProcessLookupError):
        same = False
    except BaseException:
        agent.close()
        raise
    if not same or agent.poll() is not None:
        agent.close()
        return None
    return agent
