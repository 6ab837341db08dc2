"""Slurm as an engine: one agent per node, run as a job step and restarted when it ends."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from srl.base.errors import last_log_line
from srl.schedulers.agent.join import REFUSED, HostResources, JoinError, NoController, keep_joining
from srl.schedulers.engines.slurm_commands import SlurmError, run_command
from srl.schedulers.hosts.engine import Engine, Retries
from srl.transports.join_ticket import JoinTicket, read_ticket

FIRST_RETRY_SECONDS = 2.0
CLOSE_SECONDS = 3.0  # time for agents to end after the run; those on lost nodes never do
QUERY_SECONDS = 5.0
"""Approximate time that an agent tries to reach its controller before it queries Slurm. It is randomized, because all
agents lose the controller at once and should not all query Slurm at once."""


@dataclass(frozen=True)
class Node:
    name: str
    cpus: int
    label: str  # name that `Resources.node` may match
    component: int | None  # number of the component; None if the job has only one


def nodes_of_job(environment: Mapping[str, str], labels: Sequence[str]) -> list[Node]:
    """Return this job's nodes, from the variables that Slurm sets; `labels` has one label per component."""
    size = environment.get("SLURM_HET_SIZE")
    found = []
    for number in range(int(size)) if size else [None]:
        suffix = "" if number is None else f"_HET_GROUP_{number}"
        names = run_command("scontrol", "show", "hostnames", environment[f"SLURM_JOB_NODELIST{suffix}"]).split()
        cpus = int(environment.get(f"SLURM_CPUS_PER_TASK{suffix}", "1"))
        found += [Node(name, cpus, labels[number or 0], number) for name in names]
    return found


def own_address(environment: Mapping[str, str]) -> str:
    """Return the address at which the other nodes reach this one."""
    name = environment.get("SLURMD_NODENAME", "")
    fields = _fields(run_command("scontrol", "--oneliner", "show", "node", name))
    address = fields.get("NodeAddr", name)
    try:
        return socket.gethostbyname(address)
    except OSError as error:
        raise SlurmError(f"cannot resolve the address of this node, {address}: {error}") from error


@dataclass
class _Step:
    node: Node
    process: subprocess.Popen[bytes] | None = None
    retries: Retries = field(default_factory=lambda: Retries(FIRST_RETRY_SECONDS))


class SlurmEngine(Engine):
    """Engine that runs one job step per node, so that the loss of a node does not affect the others."""

    def __init__(self, nodes: list[Node], logs: Path, join_file: Path) -> None:
        self._steps = [_Step(node) for node in nodes]
        self._logs = logs
        self._join_file = join_file

    def start(self, new_ticket: Callable[[], JoinTicket]) -> None:
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
            *(sys.executable, "-m", "srl.schedulers.engines.slurm", str(self._join_file)),
            *(node.name, str(node.cpus), node.label),
        ]
        with self._log(step).open("ab") as log:
            step.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0)
        step.retries.started(time.monotonic())

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
                    last = last_log_line(self._log(step))
                    problem = f"the agent on {step.node.name} ended with code {status}: {last}"
        return problem

    def start_failed(self) -> bool:
        return any(step.retries.hopeless for step in self._steps)

    def hint(self) -> str:
        return f"see the logs of the agents in {self._logs}"

    def close(self) -> None:
        deadline = time.monotonic() + CLOSE_SECONDS
        for step in self._steps:
            if step.process is None:
                continue
            try:
                step.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # After SIGTERM, srun would try to reach its node for another ten seconds. Whatever is left on the node
                # ends with the job.
                os.killpg(step.process.pid, signal.SIGKILL)
                step.process.wait()


def requeue(environment: Mapping[str, str] = os.environ) -> None:
    """Ask Slurm to requeue this job, which then continues from its last checkpoint."""
    run_command("scontrol", "requeue", environment["SLURM_JOB_ID"])


def requeue_other_components(environment: Mapping[str, str] = os.environ) -> None:
    """Requeue all components of a heterogeneous job if Slurm has requeued the first one: after losing a node, Slurm may
    requeue only that component, which would wait forever for the others. The controller calls this before it ends."""
    if "SLURM_HET_SIZE" not in environment:
        return
    with contextlib.suppress(SlurmError):  # Slurm complains about the component that is already queued
        restarts = int(_job_fields(environment["SLURM_JOB_ID"]).get("Restarts", "0"))
        if restarts > int(environment.get("SLURM_RESTART_COUNT", "0")):
            requeue(environment)


def _job_fields(job: str) -> dict[str, str]:
    """Return Slurm's fields for a job, or for its first component, which has the controller, if it is heterogeneous."""
    lines = run_command("scontrol", "--oneliner", "show", "job", job).splitlines()
    return _fields(lines[0] if lines else "")


def _fields(line: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def lost_controller(job: str) -> bool:
    """Return whether Slurm has removed the controller's node from the job, which continues without it."""
    try:
        fields = _job_fields(job)
        nodes = run_command("scontrol", "show", "hostnames", fields["NodeList"]).split()
    except (SlurmError, KeyError):
        return False
    return fields.get("BatchHost", "") not in nodes


def main(join_file: str, host: str, cpus: str, label: str = "") -> int:
    """Run a node's agent, and return its exit code. If the controller cannot be reached, Slurm decides whether its node
    is lost, which takes minutes (SlurmdTimeout); the remaining agents then requeue the job. Until then, the agent
    retries indefinitely: Slurm ends it with the job, and the join file is removed when the run has ended."""
    job = os.environ["SLURM_JOB_ID"]
    resources = HostResources(host, float(cpus), labels=(label,) if label else ())
    while True:
        try:
            patience = QUERY_SECONDS * random.uniform(0.5, 1.5)
            return keep_joining(partial(read_ticket, join_file), resources, patience, _log)
        except NoController as error:
            _log(str(error))
            if not Path(join_file).exists():  # the run has ended
                return REFUSED
            if lost_controller(job) and _requeue():
                return 1
        except (JoinError, PermissionError) as error:
            _log(str(error))
            return REFUSED


def _requeue() -> bool:
    _log("the node of the controller is lost; asking Slurm to queue the job again")
    try:
        requeue()
    except SlurmError as error:  # Slurm is busy, or another agent was faster
        _log(str(error))
        return False
    return True


def _log(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
