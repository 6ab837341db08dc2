"""Slurm from inside a job: an agent on each of its nodes, started again when it ends."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srl.base.errors import last_log_line
from srl.schedulers.agent.join import REFUSED, JoinError, Offer, Unreachable, keep_joining
from srl.schedulers.agent.secret import read_secret
from srl.schedulers.engines.retries import Retries
from srl.schedulers.engines.slurm_commands import SlurmError, ask

FIRST_RETRY_SECONDS = 2.0
GRACE_SECONDS = 3.0
"""In which agents that are told to leave have left; of lost nodes nothing is to be hoped."""
LOOK_SECONDS = 5.0
"""About so long an agent tries to reach a silent controller before it asks Slurm. Not exactly: all agents lose it at
the same time, and Slurm has more to do than to answer them all at once."""


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
    retries: Retries = field(default_factory=lambda: Retries(FIRST_RETRY_SECONDS))


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
        command = [
            *("srun", *het, "--nodes=1", "--ntasks=1", f"--nodelist={node.name}", f"--cpus-per-task={node.cpus}"),
            *("--overlap", "--input=none", "--kill-on-bad-exit=0", "--quiet"),
            *(sys.executable, "-m", "srl.schedulers.engines.slurm", self._address, str(self._secret_file)),
            *(node.name, str(node.cpus), node.label),
        ]
        with self._log(step).open("ab") as log:
            step.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
        step.retries.begun(time.monotonic())

    def poll(self) -> str | None:
        problem = None
        now = time.monotonic()
        for step in self._steps:
            if step.process is None:
                if step.retries.due(now):
                    self._launch(step)
            elif step.process.poll() is not None:
                status, step.process = step.process.returncode, None
                if step.retries.ended(now, refused=status == REFUSED):
                    problem = (
                        f"the agent on {step.node.name} ended with code {status}: {last_log_line(self._log(step))}"
                    )
        return problem

    def in_vain(self) -> bool:
        return any(step.retries.in_vain for step in self._steps)

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
                # Asked to end, srun would try to reach its node for another ten seconds. What may still be there ends
                # with the job.
                os.killpg(step.process.pid, signal.SIGKILL)
                step.process.wait()


def requeue(environment: Mapping[str, str] = os.environ) -> None:
    """Ask Slurm to run this job again: it goes on from its last checkpoint."""
    ask("scontrol", "requeue", environment["SLURM_JOB_ID"])


def requeue_the_rest(environment: Mapping[str, str] = os.environ) -> None:
    """When a heterogeneous job loses any node, Slurm may queue its first component again, and that alone: without the
    others, which fail, it would wait for ever. To be called by the controller before it leaves."""
    if "SLURM_HET_SIZE" not in environment:
        return
    with contextlib.suppress(SlurmError):  # it complains about the one that is queued already
        restarts = int(_described(environment["SLURM_JOB_ID"]).get("Restarts", "0"))
        if restarts > int(environment.get("SLURM_RESTART_COUNT", "0")):
            requeue(environment)


def _described(job: str) -> dict[str, str]:
    """What Slurm knows of a job. Of a heterogeneous one all components are described, a line each; it is the first that
    has the controller."""
    lines = ask("scontrol", "--oneliner", "show", "job", job).splitlines()
    return dict(word.split("=", 1) for line in lines[:1] for word in line.split() if "=" in word)


def lost_controller(job: str) -> bool:
    """Did Slurm take the node away on which the controller ran? It lets such a job live, without a head."""
    try:
        fields = _described(job)
        nodes = ask("scontrol", "show", "hostnames", fields["NodeList"]).split()
    except (SlurmError, KeyError):
        return False
    return fields.get("BatchHost", "") not in nodes


def main(address: str, secret_file: str, host: str, cpus: str, label: str = "") -> int:
    """The agent of a node. When the controller cannot be reached any more it is Slurm that says whether it is gone,
    which takes it minutes (SlurmdTimeout); then the job is queued again by whoever is left. Until then we try, without
    a deadline: when the job is over, Slurm ends us, and a run that is over takes its secret away."""
    job = os.environ["SLURM_JOB_ID"]
    offer = Offer(host, float(cpus), labels=(label,) if label else ())
    while True:
        try:
            secret, patience = read_secret(secret_file), LOOK_SECONDS * random.uniform(0.5, 1.5)
            return keep_joining(address, secret, offer, patience, _say)
        except Unreachable as error:
            _say(str(error))
            if lost_controller(job) and _queued_again():
                return 1
        except (JoinError, PermissionError) as error:
            _say(str(error))
            return REFUSED


def _queued_again() -> bool:
    _say("the controller's node is lost: the job is queued again")
    try:
        requeue()
    except SlurmError as error:  # it is busy, or another agent was faster
        _say(str(error))
        return False
    return True


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
