"""Slurm commands: a run's batch script, and functions that submit, query and cancel jobs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from srl.base.errors import nearest
from srl.schedulers.engines.components import Component

COMMAND_SECONDS = 15.0
PERMANENT_REASONS = (
    *("BadConstraints", "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS"),
    *("AccountNotAllowed", "QOSNotAllowed", "DependencyNeverSatisfied"),
)
ENDED = ("", "FAILED", "CANCELLED", "TIMEOUT", "COMPLETED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")
"""States of jobs that have ended; the empty state means that Slurm no longer knows the job."""
NOTICE_SECONDS = 60
"""Seconds before its time limit at which a job is signaled, writes a checkpoint and asks to be requeued."""


class SlurmError(RuntimeError):
    """Slurm is not installed or refused a request; the message says which."""


def _directives(part: Component) -> list[str]:
    lines = [f"--nodes={part.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={part.cpus}"]
    if part.gpus:
        lines.append(f"--gres=gpu:{part.gpus}")
    if part.memory_mb:
        lines.append(f"--mem={part.memory_mb}")
    if part.constraint:
        lines.append(f"--constraint={part.constraint}")
    return lines


def batch_script(
    name: str, parts: Sequence[Component], log: Path, command: Sequence[str], partition: str, more: Sequence[str]
) -> str:
    """Return a run's batch script. The job's first node runs the controller, which starts an agent on every node."""
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
                "--no-kill",  # losing a node costs its workers, not the run
                f"--signal=B:USR1@{NOTICE_SECONDS}",
            ]
        directives = (*head, *_directives(part), *common)
        for directive in directives:
            if " " in directive or not directive.isprintable():  # Slurm would read the rest as further options
                raise ValueError(
                    f"an option of the batch script would contain a blank or control character: {directive!r}"
                )
        lines += [f"#SBATCH {directive}" for directive in directives]
    lines.append(f"exec {shlex.join(command)}")
    return "\n".join(lines) + "\n"


def check_slurm(partition: str) -> None:
    """Raise SlurmError if Slurm is not installed, does not answer, or has no such partition."""
    if shutil.which("sbatch") is None:
        raise SlurmError("Slurm is not installed here: found no `sbatch`. Run this on a login node of your cluster")
    known = run_command("sinfo", "--noheader", "--format=%R").split()
    if partition and partition not in known:
        raise SlurmError(f"this cluster has no partition {partition!r}{nearest(partition, known)}")


def submit(script: Path) -> str:
    """Submit a script and return the job id."""
    return run_command("sbatch", "--parsable", str(script)).strip().split(";")[0]


def job_state(job: str) -> tuple[str, str]:
    """Return a job's state and reason, e.g. ("PENDING", "Resources"); both empty once Slurm has forgotten the job."""
    return job_states([job]).get(job, ("", ""))


def job_states(jobs: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return the state and reason of each job that Slurm knows. For a heterogeneous job, they are those of its first
    component, or of one that can never start."""
    try:
        lines = run_command("squeue", "--noheader", f"--jobs={','.join(jobs)}", "--format=%i|%T|%r").splitlines()
    except SlurmError as error:
        if "Invalid job id" in str(error):
            return {}
        raise
    found: dict[str, tuple[str, str]] = {}
    for line in lines:
        number, state, reason = line.split("|", 2)
        job = number.partition("+")[0]
        if job not in found or never_starts(state, reason):
            found[job] = state, reason
    return found


def describe_state(state: str, reason: str) -> str:
    """Format a state as `pending (Resources)`."""
    return state.lower() + (f" ({reason})" if reason not in ("", "None") else "")


def never_starts(state: str, reason: str) -> bool:
    """Return whether a job will stay pending, because the cluster lacks or forbids what it requests."""
    limit = re.fullmatch(r"(QOS|Assoc)(Max|Min)\w*PerJob(Limit)?", reason)
    return state == "PENDING" and (reason in PERMANENT_REASONS or limit is not None)


def cancel(job: str) -> None:
    run_command("scancel", job)


def run_command(*command: str) -> str:
    """Run a Slurm command and return its output. Raises SlurmError with the command's error message."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except FileNotFoundError as error:
        raise SlurmError(f"Slurm is not installed here: found no `{command[0]}`") from error
    except subprocess.TimeoutExpired as error:
        text = f"`{command[0]}` did not answer within {COMMAND_SECONDS:.0f} s; check that slurmctld is running"
        raise SlurmError(text) from error
    if done.returncode != 0:
        raise SlurmError(f"{command[0]}: {done.stderr.strip() or done.stdout.strip() or 'failed'}")
    return done.stdout
