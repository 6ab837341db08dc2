"""The engine without an engine: one agent on this host, the others are started by people with `srl agent`."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from srl.base.errors import last_log_line
from srl.schedulers.agent.join import REFUSED, Orders
from srl.schedulers.engines.orphan_agent import MODULE, UNSEEN, OrphanAgent, find, write_down
from srl.schedulers.engines.retries import Retries

GRACE_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.25


class ManualEngine:
    def __init__(
        self,
        log: Path,
        cpus: float | None = None,
        secret_file: str = "",
        note: Path | None = None,
        attach: bool = False,
    ) -> None:
        """The agent of this host writes into `log`. With a `note` it outlives us, and our successor finds it there; we
        are one if we `attach`."""
        self._log = log
        self._cpus = cpus
        self._secret_file = secret_file
        self._note = note
        self._attach = attach
        self._orders: Orders | None = None
        self._agent: subprocess.Popen[bytes] | OrphanAgent | None = None
        self._retries = Retries(FIRST_RETRY_SECONDS)

    def start(self, address: str, secret: bytes) -> None:
        self._orders = Orders(address, secret, cpus=self._cpus, outlives=self._note is not None)
        if not self._attach:
            self._launch(self._orders)

    def _take_over(self, note: Path) -> None:
        """Not before the run is ours: until then nothing of it may end with us."""
        try:
            self._agent = find(note)
        except OSError:
            self._orders = None  # it may well be there: another one would be too many

    def _launch(self, orders: Orders) -> None:
        agent = self._agent = start_agent(orders, self._log)
        self._retries.begun(time.monotonic())
        if self._note is not None:
            with contextlib.suppress(OSError):  # it ended already, or the disk is full: then a successor does without
                write_down(agent.pid, self._note)

    def poll(self) -> str | None:
        """An agent of ours that ended is started again: nobody else would, and all workers may be waiting for it."""
        if self._attach and self._note is not None:
            self._attach = False
            self._take_over(self._note)
        now = time.monotonic()
        if self._agent is None:
            if self._orders is not None and self._retries.due(now):
                self._launch(self._orders)
        elif (status := self._agent.poll()) is not None:
            self._agent = None
            if self._retries.ended(now, refused=status == REFUSED):
                return f"the agent of this host ended ({_how(status)}): {last_log_line(self._log)}"
        return None

    def in_vain(self) -> bool:
        return self._retries.in_vain

    def hint(self, address: str) -> str:
        option = f" --secret-file {self._secret_file}" if self._secret_file else ""
        return f"on each other host run: srl agent {address}{option}"

    def close(self) -> None:
        if self._agent is None:
            return
        try:
            self._agent.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._agent.kill()
            self._agent.wait()


def _how(status: int) -> str:
    if status == UNSEEN:
        return "nobody saw how"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"code {status}"


def start_agent(orders: Orders, log: Path) -> subprocess.Popen[bytes]:
    """An agent as a process of its own; what it must know goes through its standard input."""
    with log.open("ab") as stream:
        agent = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    assert agent.stdin is not None
    agent.stdin.write(msgspec.msgpack.encode(orders))
    agent.stdin.close()
    return agent
