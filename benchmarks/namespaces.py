"""Two hosts that are network namespaces on a switch, with an agent on the second, for benchmarks over hosts (root)."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs import SRL

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from support.namespaces import Hosts, hosts

PORT = 7700
SECOND = "host1"


@dataclass(frozen=True)
class TwoHosts:
    hosts: Hosts
    secret: Path

    @property
    def address(self) -> str:
        return f"{self.hosts.address(0)}:{PORT}"

    @property
    def options(self) -> tuple[str, ...]:
        """Options for `srl train` on the first host."""
        return ("--scheduler", "hosts", "--hosts", "2", "--bind", self.address, "--secret-file", str(self.secret))

    @property
    def enter(self) -> tuple[str, ...]:
        """Command prefix that runs a command on the first host."""
        return self.hosts.enter(0)

    def cable(self, state: str) -> None:
        """Unplug the second host (down) or plug it in again (up)."""
        self.hosts.set_link(1, state)


@contextmanager
def two_hosts(*agent_options: str) -> Iterator[TwoHosts]:
    """Yield two hosts, with an agent on the second that joins any run on the first."""
    with hosts(2) as both:
        two = TwoHosts(both, both.folder / "secret")
        two.secret.touch(mode=0o600)
        two.secret.write_bytes(secrets.token_bytes(32))
        join = (SRL, "agent", two.address, "--secret-file", str(two.secret), "--patience", "60", *agent_options)
        agent = subprocess.Popen([*both.enter(1), *join], stdout=subprocess.DEVNULL, text=True)
        try:
            yield two
        finally:
            agent.terminate()
            agent.wait()
