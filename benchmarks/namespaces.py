"""Hosts that are network namespaces on a switch, with an agent on all but the first, for benchmarks (root)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from jobs import PATIENCE, SRL, Job

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from support.namespaces import Hosts, hosts

PORT = 7700


@dataclass
class Cluster:
    """Hosts whose agents join any run on the first."""

    hosts: Hosts
    agent_options: tuple[str, ...]
    _agents: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def _address(self) -> str:
        return f"{self.hosts.address(0)}:{PORT}"

    @property
    def _join_file(self) -> str:
        return str(self.hosts.folder / "join")

    @property
    def options(self) -> tuple[str, ...]:
        """Options for `srl train` on the first host."""
        count = str(len(self.hosts.names))
        return ("--scheduler", "hosts", "--hosts", count, "--bind", self._address, "--join-file", self._join_file)

    @property
    def enter(self) -> tuple[str, ...]:
        """Command prefix that runs a command on the first host."""
        return self.hosts.enter(0)

    def start_agent(self, index: int) -> None:
        """Start the agent of a host, after its previous one has ended."""
        if index in self._agents:
            self._agents[index].wait()
        join = (SRL, "agent", self._join_file, "--patience", "600", *self.agent_options)
        command = [*self.hosts.enter(index), *join]
        with self._output(index).open("ab") as output:
            own = {**os.environ, "XDG_RUNTIME_DIR": str(self.hosts.folder)}
            self._agents[index] = subprocess.Popen(  # in its own session: job control would continue stopped processes
                command, stdout=output, stderr=output, env=own, start_new_session=True
            )

    def agent(self, index: int) -> psutil.Process:
        return psutil.Process(self._agents[index].pid)

    def num_joins(self, index: int, run: Job) -> int:
        """Return how often a host has joined the run, ready to start workers."""
        return len(re.findall(rf"host {self.hosts.names[index]}(-\d+)? joined:", run.output()))

    def wait_for_join(self, index: int, run: Job, previous: int) -> None:
        """Wait until a host has joined the run more often than `previous` times."""
        deadline = time.monotonic() + PATIENCE
        while self.num_joins(index, run) <= previous:
            if time.monotonic() > deadline:
                said = self._output(index).read_text()[-1000:]
                raise TimeoutError(f"{self.hosts.names[index]} did not join within {PATIENCE:.0f} s:\n{said}")
            time.sleep(0.05)

    def _output(self, index: int) -> Path:
        return self.hosts.folder / f"agent{index}"


@contextmanager
def cluster(count: int, *agent_options: str) -> Iterator[Cluster]:
    """Yield hosts with an agent on all but the first, which runs the command."""
    with hosts(count) as made:
        yours = Cluster(made, agent_options)
        for index in range(1, count):
            yours.start_agent(index)
        yield yours  # the processes of all hosts are killed when they end
