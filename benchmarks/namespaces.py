"""Two hosts that are network namespaces on a switch, for benchmarks over hosts (root)."""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SWITCH, HOSTS = "srlbench-switch", ("srlbench-0", "srlbench-1")
ADDRESSES = ("10.79.0.1", "10.79.0.2")
ADDRESS = f"{ADDRESSES[0]}:7700"
SECOND = "second"
ENTER = ("ip", "netns", "exec", HOSTS[0])
"""Runs a command on the first."""


@dataclass(frozen=True)
class TwoHosts:
    secret: Path

    @property
    def options(self) -> tuple[str, ...]:
        """For `srl train` on the first."""
        return ("--scheduler", "hosts", "--hosts", "2", "--bind", ADDRESS, "--secret-file", str(self.secret))

    enter = ENTER

    def cable(self, state: str) -> None:
        """Unplug the second host (down) or plug it in again (up)."""
        _ip("-n", SWITCH, "link", "set", "port1", state)


@contextmanager
def two_hosts(*agent_options: str) -> Iterator[TwoHosts]:
    """With an agent on the second that joins whatever run there is on the first."""
    with tempfile.TemporaryDirectory() as directory, switched():
        secret = Path(directory) / "secret"
        secret.touch(mode=0o600)
        secret.write_bytes(secrets.token_bytes(32))
        srl = str(Path(sys.executable).with_name("srl"))
        join = (srl, "agent", ADDRESS, "--host", SECOND, "--secret-file", str(secret), "--patience", "60")
        agent = subprocess.Popen(
            ["ip", "netns", "exec", HOSTS[1], *join, *agent_options], stdout=subprocess.DEVNULL, text=True
        )
        try:
            yield TwoHosts(secret)
        finally:
            agent.terminate()
            agent.wait()


@contextmanager
def switched() -> Iterator[None]:
    """The two of them, without anything that runs there."""
    try:
        for name in (SWITCH, *HOSTS):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", SWITCH, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "stp_state", "0")
        _ip("-n", SWITCH, "link", "set", "bridge", "up")
        for number, name in enumerate(HOSTS):
            _ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{number}", "netns", SWITCH)
            _ip("-n", SWITCH, "link", "set", f"port{number}", "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{ADDRESSES[number]}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
        yield
    finally:
        for name in (SWITCH, *HOSTS):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
