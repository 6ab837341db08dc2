"""The engine without an engine: one agent on this host, the others are started by people with `srl agent`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from srl.base.text import last_words
from srl.schedulers.joining import Orders
from srl.schedulers.retries import Retries

GRACE_SECONDS = 5.0
FIRST_RETRY_SECONDS = 0.25


class ByHand:
    def __init__(
        self, log: Path, here: bool = True, cpus: float | None = None, secret_file: str = "", outlives: bool = False
    ) -> None:
        """`here`: does the controller's own host take part, with an agent of ours, which writes into `log`?
        `outlives`: it goes on when we die."""
        self._log = log
        self._here = here
        self._cpus = cpus
        self._secret_file = secret_file
        self._outlives = outlives
        self._orders: Orders | None = None
        self._agent: subprocess.Popen[bytes] | None = None
        self._retries = Retries(FIRST_RETRY_SECONDS)

    def start(self, address: str, secret: bytes) -> None:
        if self._here:
            self._orders = Orders(address, secret, cpus=self._cpus, outlives=self._outlives)
            self._launch(self._orders)

    def _launch(self, orders: Orders) -> None:
        self._agent = start_agent(orders, self._log)
        self._retries.begun(time.monotonic())

    def poll(self) -> str | None:
        """An agent of ours that ended is started again: nobody else would, and all workers may be waiting for it."""
        now = time.monotonic()
        if self._agent is None:
            if self._orders is not None and self._retries.due(now):
                self._launch(self._orders)
        elif self._agent.poll() is not None:
            status, self._agent = self._agent.returncode, None
            if self._retries.ended(now):
                return f"the agent of this host ended ({_how(status)}): {last_words(self._log)}"
        return None

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
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"code {status}"


def start_agent(orders: Orders, log: Path) -> subprocess.Popen[bytes]:
    """An agent as a process of its own; what it must know goes through its standard input."""
    with log.open("ab") as stream:
        agent = subprocess.Popen(
            [sys.executable, "-m", "srl.schedulers.joining"],
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    assert agent.stdin is not None
    agent.stdin.write(msgspec.msgpack.encode(orders))
    agent.stdin.close()
    return agent
