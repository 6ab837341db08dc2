"""Hosts on one machine: network namespaces on a virtual switch, each with its own name and address (Linux, root)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NETWORK = "10.79.0"


@dataclass(frozen=True)
class Hosts:
    """Hosts that share the cores, files and process ids of the machine, but not its network."""

    names: tuple[str, ...]
    folder: Path
    """Directory of files that the hosts see instead of the machine's."""

    def address(self, index: int) -> str:
        return f"{NETWORK}.{index + 1}"

    def enter(self, index: int) -> tuple[str, ...]:
        """Return the words that run a command on this host when they precede it."""
        # `ip netns exec` would hide cgroups, which Slurm wants to see.
        own = f'hostname "$0" && mount --bind {self.folder}/hosts /etc/hosts && exec "$@"'
        return (
            *("nsenter", f"--net=/run/netns/{self.space(index)}", "unshare", "--uts", "--mount"),
            *("sh", "-c", own, self.names[index]),
        )

    def set_link(self, index: int, state: str) -> None:
        """Disconnect a host (down) or connect it again (up)."""
        _ip("-n", self.switch, "link", "set", f"port{index}", state)

    def set_rate(self, index: int, bytes_per_second: int) -> None:
        """Limit a host's link in both directions; 0 removes the limit."""
        for space, device in ((self.space(index), "eth0"), (self.switch, f"port{index}")):
            with contextlib.suppress(subprocess.CalledProcessError):  # there was no limit
                _run("tc", "-n", space, "qdisc", "delete", "dev", device, "root")
            if bytes_per_second:
                limit = ("tbf", "rate", f"{bytes_per_second}bps", "burst", "64kb", "latency", "400ms")
                _run("tc", "-n", space, "qdisc", "add", "dev", device, "root", *limit)

    def set_direction(self, index: int, direction: str, works: bool) -> None:
        """Drop what a host sends ("out") or what is sent to it ("in"), or stop dropping it."""
        space, device = (self.switch, f"port{index}") if direction == "out" else (self.space(index), "eth0")
        rule = f"{{ type filter hook ingress device {device} priority 0; policy drop; }}"
        cut = f"add table netdev {device}; add chain netdev {device} cut {rule}"
        command = f"delete table netdev {device}" if works else cut
        _run("nsenter", f"--net=/run/netns/{space}", "nft", command)

    def processes(self, index: int) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self.space(index)], capture_output=True, text=True, check=True)
        return [int(word) for word in found.stdout.split()]

    def power_off(self, index: int) -> None:
        """Kill all processes of a host. The link goes down first, so that the kernel cannot close their connections."""
        self.set_link(index, "down")
        self.signal_all(index, signal.SIGKILL)

    def signal_all(self, index: int, number: signal.Signals) -> None:
        for process in self.processes(index):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def space(self, index: int) -> str:
        """Return the name of a host's network namespace."""
        return f"srl{os.getpid()}-{index}"

    @property
    def switch(self) -> str:
        """Name of the switch's network namespace."""
        return f"srl{os.getpid()}-switch"

    def _set_up(self) -> None:
        _ip("netns", "add", self.switch)
        _ip("-n", self.switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "stp_state", "0")
        _ip("-n", self.switch, "link", "set", "bridge", "up")
        for index in range(len(self.names)):
            space, port = self.space(index), f"port{index}"
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name", port, "netns", self.switch)
            _ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            _ip("-n", space, "address", "add", f"{self.address(index)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
        known = ["127.0.0.1 localhost", *(f"{self.address(index)} {name}" for index, name in enumerate(self.names))]
        (self.folder / "hosts").write_text("\n".join(known) + "\n")

    def _tear_down(self) -> None:
        for index in range(len(self.names)):
            with contextlib.suppress(subprocess.CalledProcessError):  # it was not made yet
                self.signal_all(index, signal.SIGKILL)
                _ip("netns", "delete", self.space(index))
        with contextlib.suppress(subprocess.CalledProcessError):
            _ip("netns", "delete", self.switch)


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Make `count` hosts, named host0, host1, ...; processes that are left at the end are killed."""
    with tempfile.TemporaryDirectory(prefix="srl") as folder:  # short: sockets have paths of at most 107 bytes
        made = Hosts(tuple(f"host{index}" for index in range(count)), Path(folder))
        try:
            made._set_up()
            yield made
        finally:
            made._tear_down()


def _ip(*words: str) -> None:
    _run("ip", *words)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stderr=subprocess.PIPE)
