"""Slurm from outside: what a run asks for as a batch script, and the commands that submit it and look after it."""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from srl.api.experiment import WorkerGroup
from srl.base.errors import nearest
from srl.schedulers.hosts.placement import EPSILON, NoRoom, Room, check_all

ANYWHERE = (True, "")
"""The kind of groups that need neither a GPU nor a certain node."""
AMOUNTS = ("cpu", "gpu", "memory_mb")
COMMAND_SECONDS = 15.0
HOPELESS = (
    *("BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS"),
    *("AccountNotAllowed", "QOSNotAllowed", "DependencyNeverSatisfied"),
)
OVER = ("", "FAILED", "CANCELLED", "TIMEOUT", "COMPLETED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
"""States of jobs that will not run any more; empty: Slurm has forgotten them."""
NOTICE_SECONDS = 60
"""So long before its time is up a job is told, writes a checkpoint and asks to be queued again."""


class SlurmError(RuntimeError):
    """Slurm is not there, or does not want what we ask for; the message says what."""


@dataclass(frozen=True)
class Component:
    """Nodes of one kind. A job with several kinds is a heterogeneous one."""

    nodes: int
    cpus: int
    """On each node."""
    gpus: int = 0
    memory_mb: int = 0
    constraint: str = ""
    """Slurm's name for a feature of nodes: a group's `node`."""

    def directives(self) -> list[str]:
        lines = [f"--nodes={self.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={self.cpus}"]
        if self.gpus:
            lines.append(f"--gres=gpu:{self.gpus}")
        if self.memory_mb:
            lines.append(f"--mem={self.memory_mb}")
        if self.constraint:
            lines.append(f"--constraint={self.constraint}")
        return lines


def components(groups: Sequence[WorkerGroup], hosts: int) -> list[Component]:
    """What an experiment needs on so many hosts. Groups with the same kind of node share a component; those that need
    a GPU have one host, and of the others the largest gets all hosts that are left. Where hosts are few, groups that go
    anywhere share one with those that do not."""
    kinds: dict[tuple[bool, str], list[WorkerGroup]] = {}
    for group in groups:
        kinds.setdefault((group.resources.gpu == 0, group.resources.node), []).append(group)
    if len(kinds) > hosts and ANYWHERE in kinds:
        anywhere = kinds.pop(ANYWHERE)
        kinds[min(kinds)] += anywhere
    if len(kinds) > hosts:
        raise ValueError(
            f"the groups of this experiment need {len(kinds)} kinds of nodes, so at least --hosts {len(kinds)}; "
            f"found --hosts {hosts}"
        )
    ordered = sorted(kinds)
    largest = max(ordered, key=lambda kind: (kind[0], _total(kinds[kind], "cpu")))
    found = []
    for kind in ordered:
        nodes = hosts - len(kinds) + 1 if kind == largest else 1
        found.append(_component(kinds[kind], nodes, kind[1]))
    return found


def _component(groups: list[WorkerGroup], nodes: int, constraint: str) -> Component:
    """An even share for each node, if workers can be placed so; else as if each had its share of every group."""
    fair = [max(_total(groups, what) / nodes, _largest(groups, what)) for what in AMOUNTS]
    workers = [(group.name, replace(group.resources, node="")) for group in groups for _ in range(group.count)]
    try:
        check_all([Room(str(node), *_whole(fair)) for node in range(nodes)], workers)
    except NoRoom:
        counts = [math.ceil(group.count / nodes) for group in groups]
        amounts = [[getattr(group.resources, what) for group in groups] for what in AMOUNTS]
        fair = [sum(c * a for c, a in zip(counts, amount, strict=True)) for amount in amounts]
    return Component(nodes, *_whole(fair), constraint)


def _whole(amounts: Iterable[float]) -> tuple[int, int, int]:
    cpus, gpus, memory_mb = (math.ceil(amount - EPSILON) for amount in amounts)
    return max(1, cpus), gpus, memory_mb


def _total(groups: Iterable[WorkerGroup], what: str) -> float:
    return float(sum(getattr(group.resources, what) * group.count for group in groups))


def _largest(groups: Iterable[WorkerGroup], what: str) -> float:
    return float(max(getattr(group.resources, what) for group in groups))


def batch_script(
    name: str, parts: Sequence[Component], log: Path, command: Sequence[str], partition: str, more: Sequence[str]
) -> str:
    """One job for the whole run. Its first node runs the controller, which starts an agent on every node."""
    common = [f"--partition={partition}"] if partition else []
    common += [f"--{option.lstrip('-')}" for option in more]
    lines = ["#!/bin/bash"]
    for number, part in enumerate(parts):
        if number:
            lines.append("#SBATCH hetjob")
        head = []
        if number == 0:
            head = [
                f"--job-name=srl-{name}",
                f"--output={log}",
                "--open-mode=append",
                "--requeue",
                "--no-kill",  # a lost node costs its workers, not the run
                f"--signal=B:USR1@{NOTICE_SECONDS}",
            ]
        lines += [f"#SBATCH {directive}" for directive in (*head, *part.directives(), *common)]
    lines.append(f"exec {shlex.join(command)}")
    return "\n".join(lines) + "\n"


def check_slurm(partition: str) -> None:
    """Raises SlurmError if there is no Slurm here, it does not answer, or has no such partition."""
    if shutil.which("sbatch") is None:
        raise SlurmError("Slurm is not installed here: there is no `sbatch`. Run this on a login node of your cluster")
    known = ask("sinfo", "--noheader", "--format=%R").split()
    if partition and partition not in known:
        raise SlurmError(f"this cluster has no partition {partition!r}{nearest(partition, known)}")


def submit(script: Path) -> str:
    """The number of the new job."""
    return ask("sbatch", "--parsable", str(script)).strip().split(";")[0]


def job_state(job: str) -> tuple[str, str]:
    """State and reason, e.g. ("PENDING", "Resources"); empty once Slurm has forgotten it."""
    return job_states([job]).get(job, ("", ""))


def job_states(jobs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """The same for several, as far as Slurm knows them. Of a heterogeneous job it is the first component that counts,
    unless another one can never begin."""
    try:
        lines = ask("squeue", "--noheader", f"--jobs={','.join(jobs)}", "--format=%i|%T|%r").splitlines()
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        number, state, reason = line.split("|", 2)
        job = number.partition("+")[0]
        if job not in found or hopeless(state, reason):
            found[job] = state, reason
    return found


def told(state: str, reason: str) -> str:
    """`pending (Resources)`"""
    return state.lower() + (f" ({reason})" if reason not in ("", "None") else "")


def hopeless(state: str, reason: str) -> bool:
    """Does a job that is pending for this reason stay so, whatever others do? As it stands it asks for what nobody has
    or is allowed."""
    limit = re.fullmatch(r"(QOS|Assoc)(Max|Min)\w*PerJob(Limit)?", reason)
    return state == "PENDING" and (reason in HOPELESS or limit is not None)


def cancel(job: str) -> None:
    ask("scancel", job)


def ask(*command: str) -> str:
    """A command's output. Raises SlurmError with what it complained about."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except FileNotFoundError as error:
        raise SlurmError(f"Slurm is not installed here: there is no `{command[0]}`") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"`{command[0]}` did not answer within {COMMAND_SECONDS:.0f} s: is slurmctld up?") from error
    if done.returncode != 0:
        raise SlurmError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip() or 'failed'}")
    return done.stdout
