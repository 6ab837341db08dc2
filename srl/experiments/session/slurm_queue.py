"""Slurm jobs whose runs do not respond: their state in the queue, and canceling them."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec

from srl.api.status import RunStatus
from srl.base.files import read_regular, write_whole
from srl.controller.control_socket import ADDRESS, CLUSTER, StatusRequest, ask
from srl.schedulers.engines import slurm_commands as slurm
from srl.storage.run_directory import RunDirectory, RunDirectoryError
from srl.storage.signatures import is_own, sign
from srl.transports.join_ticket import IDENTITY, JOIN

JOB = "job"
OUTCOME = "outcome.json"
CANCEL_SECONDS = 30.0
POLL_SECONDS = 0.2


class End(msgspec.Struct):
    """Outcome of a run that ended, for processes that follow it from another machine."""

    state: str
    reason: str


@dataclass(frozen=True)
class QueuedJob:
    """An unfinished job whose run does not respond."""

    cluster: Path  # folder in the run directory with the files about the job
    job: str
    state: str  # state in Slurm's terms, like the reason
    reason: str

    @property
    def run(self) -> str:
        return self.cluster.parent.name

    def status(self) -> RunStatus:
        """Return a status with the figures of an earlier attempt, if there was one."""
        path = self.cluster.parent
        last = None
        with contextlib.suppress(RunDirectoryError):  # if unreadable, continue without these figures
            last = RunDirectory(path).read_status()
        last = last or RunStatus(self.run, "", "", str(path))
        begun = (self.cluster / ADDRESS).exists()
        words = {
            "PENDING": ("queued", self.reason),
            "RUNNING": ("running", "does not respond") if begun else ("starting", ""),
        }
        state, reason = words.get(self.state, (self.state.lower(), ""))
        return msgspec.structs.replace(
            last, state=state, reason=reason, workers=[], streams=[], env_fps=0.0, train_fps=0.0, messages=[]
        )


def write_job(cluster: Path, job: str) -> None:
    """Record the job of a run, signed by the user: with this file, a run of someone else could make commands of this
    user cancel another job, and connect to an address in the run directory."""
    write_whole(cluster / JOB, job.encode())
    sign(cluster / JOB, job.encode())


def submitted(root: Path) -> list[Path]:
    """Return the folders about the jobs of runs below `root`, also in sweeps, that this user submitted."""
    files = [*root.glob(f"*/{CLUSTER}/{JOB}"), *root.glob(f"*/*/{CLUSTER}/{JOB}")]
    return [file.parent for file in sorted(files, key=lambda path: path.lstat().st_mtime) if _submitted(file.parent)]


def job_of(cluster: Path) -> str:
    """Return the job id of a run that this user submitted; empty if it has none or has ended."""
    return "" if (cluster / OUTCOME).exists() else _submitted(cluster)


def _submitted(cluster: Path) -> str:
    """Return the last job that this user submitted for a run, or an empty text."""
    try:
        content = read_regular(cluster / JOB, 100)
    except OSError:
        return ""
    if not re.fullmatch(rb"[0-9]+", content) or not is_own(cluster / JOB, content):
        return ""
    return content.decode()  # it becomes an argument of Slurm's commands


def is_active(job: str) -> bool:
    """Return whether a job is waiting or running."""
    return shutil.which("squeue") is not None and slurm.job_state(job)[0] not in slurm.ENDED


def refuse_if_running(run: RunDirectory) -> None:
    """Raise RunDirectoryError if this run is a running or queued job."""
    cluster = run.path / CLUSTER
    if not _submitted(cluster):
        return
    if ask(cluster, StatusRequest()) is not None:
        raise RunDirectoryError(f"{run.name} is running as a job of Slurm; stop it with `srl stop {run.name}`")
    job = job_of(cluster)
    if not job or shutil.which("squeue") is None:
        return
    state, reason = slurm.job_state(job)
    if state not in slurm.ENDED:
        raise RunDirectoryError(
            f"{run.name} is job {job} of Slurm, {slurm.describe_state(state, reason)}; "
            f"stop it with `srl stop {run.name}`"
        )


def queued(root: Path, answering: Container[str]) -> list[QueuedJob]:
    """Return the unfinished jobs of runs below `root` whose paths are not in `answering`, newest last. Raises
    SlurmError if Slurm does not respond."""
    jobs = {cluster: job_of(cluster) for cluster in submitted(root) if str(cluster.parent.resolve()) not in answering}
    wanted = [job for job in jobs.values() if job]
    if not wanted or shutil.which("squeue") is None:
        return []
    known = slurm.job_states(wanted)
    found = [QueuedJob(cluster, job, *known[job]) for cluster, job in jobs.items() if job in known]
    return [each for each in found if each.state not in slurm.ENDED]


def cancel(cluster: Path, job: str, end: End) -> None:
    """Cancel a job and write the outcome of its run."""
    slurm.cancel(job)
    deadline = time.monotonic() + CANCEL_SECONDS
    # A job stays in the state COMPLETING while one of its nodes is lost.
    while slurm.job_state(job)[0] not in (*slurm.ENDED, "COMPLETING"):
        if time.monotonic() > deadline:
            raise slurm.SlurmError(f"job {job} still exists {CANCEL_SECONDS:.0f} s after it was canceled; see `squeue`")
        time.sleep(POLL_SECONDS)
    write_whole(cluster / OUTCOME, msgspec.json.encode(end))
    for name in (ADDRESS, JOIN, IDENTITY):
        (cluster / name).unlink(missing_ok=True)
