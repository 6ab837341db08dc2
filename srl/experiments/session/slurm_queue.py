"""Runs that Slurm has and nobody answers for: their directory names the job, and Slurm says whether it waits, begins or
is gone."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import msgspec

from srl.api.status import RunStatus
from srl.base.files import write_whole
from srl.controller.control_socket import ADDRESS, CLUSTER, SECRET, AskStatus, ask
from srl.schedulers.engines import slurm_commands as slurm
from srl.storage.run_directory import RunDirectory, RunDirectoryError

JOB = "job"
OUTCOME = "outcome.json"
GONE_SECONDS = 30.0
LOOK_SECONDS = 0.2


class End(msgspec.Struct):
    """What a run that is over for good leaves for those who watch it from elsewhere."""

    state: str
    reason: str


@dataclass(frozen=True)
class Queued:
    """A job that is not over, whose run does not answer."""

    cluster: Path
    """The folder of the run directory that tells of it."""
    job: str
    state: str
    """Slurm's word, as the reason is."""
    reason: str

    @property
    def run(self) -> str:
        return self.cluster.parent.name

    def status(self) -> RunStatus:
        """With the figures of an earlier attempt, if there was one."""
        path = self.cluster.parent
        last = None
        with contextlib.suppress(RunDirectoryError):  # unreadable: then without them
            last = RunDirectory(path).read_status()
        last = last or RunStatus(self.run, "", "", str(path))
        begun = (self.cluster / ADDRESS).exists()
        words = {
            "PENDING": ("queued", self.reason),
            "RUNNING": ("running", "does not answer") if begun else ("starting", ""),
        }
        state, reason = words.get(self.state, (self.state.lower(), ""))
        return msgspec.structs.replace(
            last, state=state, reason=reason, workers=[], streams=[], env_fps=0.0, train_fps=0.0, messages=[]
        )


def job_of(cluster: Path) -> str:
    """The number of the job that a run was handed over as; empty if it was not, or is over for good."""
    try:
        return "" if (cluster / OUTCOME).exists() else (cluster / JOB).read_text().strip()
    except OSError:
        return ""


def refuse_if_going_on(run: RunDirectory) -> None:
    """Raises RunDirectoryError if this run is a job that has begun, or waits to."""
    cluster = run.path / CLUSTER
    if ask(cluster, AskStatus()) is not None:
        raise RunDirectoryError(f"{run.name} is going on as a job of Slurm; end it with `srl stop {run.name}`")
    job = job_of(cluster)
    if not job or shutil.which("squeue") is None:
        return
    state, reason = slurm.job_state(job)
    if state not in slurm.OVER:
        raise RunDirectoryError(
            f"{run.name} is job {job} of Slurm, {slurm.describe_state(state, reason)}; "
            f"end it with `srl stop {run.name}`"
        )


def queued(root: Path, answering: Container[str]) -> list[Queued]:
    """Of the runs below the root, but those that answer; the newest last. Raises SlurmError if Slurm does not."""
    clusters = [path.parent for path in sorted(root.glob(f"*/{CLUSTER}/{JOB}"), key=lambda path: path.stat().st_mtime)]
    jobs = {cluster: job_of(cluster) for cluster in clusters if cluster.parent.name not in answering}
    wanted = [job for job in jobs.values() if job]
    if not wanted or shutil.which("squeue") is None:
        return []
    known = slurm.job_states(wanted)
    found = [Queued(cluster, job, *known[job]) for cluster, job in jobs.items() if job in known]
    return [each for each in found if each.state not in slurm.OVER]


def take_back(cluster: Path, job: str, end: End) -> None:
    """Cancel a job, and leave word how its run ended."""
    slurm.cancel(job)
    deadline = time.monotonic() + GONE_SECONDS
    while slurm.job_state(job)[0] not in (
        *slurm.OVER,
        "COMPLETING",
    ):  # which it stays as long as a node is lost
        if time.monotonic() > deadline:
            raise slurm.SlurmError(f"job {job} is not gone {GONE_SECONDS:.0f} s after it was cancelled; see `squeue`")
        time.sleep(LOOK_SECONDS)
    write_whole(cluster / OUTCOME, msgspec.json.encode(end))
    for name in (ADDRESS, SECRET):
        (cluster / name).unlink(missing_ok=True)
