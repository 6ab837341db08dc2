"""The engine without an engine: one agent on this host, the others are started by people with `srl agent`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from srl.base.text import last_words
from srl.schedulers.joining import Orders

GRACE_SECONDS = 5.0


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
        self._agent: subprocess.Popen[bytes] | None = None

    def start(self, address: str, secret: bytes) -> None:
        if self._here:
            self._agent = start_agent(Orders(address, secret, cpus=self._cpus, outlives=self._outlives), self._log)

    def poll(self) -> str | None:
        if self._agent is not None and self._agent.poll() is not None:
            status, self._agent = self._agent.returncode, None
            return f"the agent of this host ended with code {status}: {last_words(self._log)}"
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
