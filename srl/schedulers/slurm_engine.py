"""Slurm from inside a job: an agent on each of its nodes, started again when it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from srl.schedulers.slurm import SlurmError, ask

FIRST_RETRY_SECONDS = 2.0
MAX_RETRY_SECONDS = 30.0
GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Node:
    name: str
    cpus: int
    label: str
    """What groups may ask for as their `node`."""
    component: int | None
    """None: the job has only one."""


def nodes_of_job(environment: Mapping[str, str], labels: Sequence[str]) -> list[Node]:
    """The nodes that Slurm gave us, by the variables that it sets; `labels` are those of the job's components."""
    size = environment.get("SLURM_HET_SIZE")
    found = []
    for number in range(int(size)) if size else [None]:
        tail = "" if number is None else f"_HET_GROUP_{number}"
        names = ask("scontrol", "show", "hostnames", environment[f"SLURM_JOB_NODELIST{tail}"]).split()
        cpus = int(environment.get(f"SLURM_CPUS_PER_TASK{tail}", "1"))
        found += [Node(name, cpus, labels[number or 0], number) for name in names]
    return found


def own_address(environment: Mapping[str, str]) -> str:
    """Where the other nodes reach this one."""
    name = environment.get("SLURMD_NODENAME", "")
    described = ask("scontrol", "--oneliner", "show", "node", name).split()
    fields = dict(word.split("=", 1) for word in described if "=" in word)
    where = fields.get("NodeAddr", name)
    try:
        return socket.gethostbyname(where)
    except OSError as error:
        raise SlurmError(f"the address of this node, {where}, cannot be resolved: {error}") from error


@dataclass
class _Step:
    node: Node
    process: subprocess.Popen[bytes] | None = None
    failures: int = 0
    retry_at: float = 0.0
    began: float = 0.0


class SlurmEngine:
    """One job step for each node, so that the loss of one does not touch the others."""

    def __init__(self, nodes: list[Node], logs: Path, secret_file: Path) -> None:
        self._steps = [_Step(node) for node in nodes]
        self._logs = logs
        self._secret_file = secret_file
        self._address = ""

    def start(self, address: str, secret: bytes) -> None:
        self._address = address
        for step in self._steps:
            self._launch(step)

    def _log(self, step: _Step) -> Path:
        return self._logs / f"agent-{step.node.name}.log"

    def _launch(self, step: _Step) -> None:
        node = step.node
        het = [] if node.component is None else [f"--het-group={node.component}"]
        label = ["--label", node.label] if node.label else []
        command = [
            *("srun", *het, "--nodes=1", "--ntasks=1", f"--nodelist={node.name}", f"--cpus-per-task={node.cpus}"),
            *("--overlap", "--input=none", "--kill-on-bad-exit=0", "--quiet"),
            *(sys.executable, "-m", "srl.cli", "agent", self._address, "--secret-file", str(self._secret_file)),
            *("--cpus", str(node.cpus), "--host", node.name, "--patience", "20", *label),
        ]
        with self._log(step).open("ab") as log:
            step.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        step.began = time.monotonic()

    def poll(self) -> str | None:
        problem = None
        now = time.monotonic()
        for step in self._steps:
            if step.process is None:
                if now >= step.retry_at:
                    self._launch(step)
            elif step.process.poll() is not None:
                status, step.process = step.process.returncode, None
                step.failures = 1 if now - step.began > MAX_RETRY_SECONDS else step.failures + 1
                step.retry_at = now + min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2 ** (step.failures - 1))
                problem = f"the agent on {step.node.name} ended with code {status}: {self._last_words(step)}"
        return problem

    def _last_words(self, step: _Step) -> str:
        try:
            lines = self._log(step).read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1][:300] if lines else "it said nothing"

    def hint(self, address: str) -> str:
        return f"look at the agents' logs in {self._logs}"

    def close(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        for step in self._steps:
            if step.process is None:
                continue
            try:
                step.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                step.process.terminate()
                step.process.wait()


def requeue(environment: Mapping[str, str] = os.environ) -> None:
    """Ask Slurm to run this job again, from the beginning of the queue's line."""
    ask("scontrol", "requeue", environment["SLURM_JOB_ID"])
