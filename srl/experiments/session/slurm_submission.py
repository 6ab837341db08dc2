"""Runs on Slurm, as seen from the user's machine: submitting a run as a job and following it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.base.errors import end_of_log
from srl.controller.control_socket import (
    ADDRESS,
    CLUSTER,
    STOP_REASON,
    StatusReply,
    StatusRequest,
    StopRequest,
    ask,
)
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.run import Run, RunFailed
from srl.experiments.session.session import OnStatus
from srl.experiments.session.slurm_queue import JOB, OUTCOME, End, cancel, write_job
from srl.schedulers.engines import slurm_commands as slurm
from srl.schedulers.engines.components import components
from srl.storage.run_directory import RunDirectory

SCRIPT = "job.sh"
LOG = "slurm.log"
FOLLOW_SECONDS = 0.5
QUEUE_SECONDS = 2.0  # between questions to Slurm about a job that does not respond; they become rarer with time
MAX_QUEUE_SECONDS = 30.0
MAX_SILENCE_SECONDS = 60.0  # time for which Slurm's commands may fail while a job is followed
SUBMIT_SECONDS = 5.0  # time for Slurm to consider a new job and report why it has to wait
SUBMIT_POLL_SECONDS = 0.5
OUTCOME_SECONDS = 2.0  # time for the outcome to appear after a job has ended
STOP_SECONDS = 30.0


def script_of(run: RunDirectory, experiment: Experiment, options: TrainOptions) -> str:
    """Return the batch script of a run."""
    parts = components(experiment.groups, options.cluster.hosts)
    command = [sys.executable, "-m", "srl.experiments.session.slurm_job", str(run.path)]
    cluster = options.cluster
    return slurm.batch_script(run.name, parts, run.logs / LOG, command, cluster.partition, cluster.slurm_options)


def submit(run: RunDirectory, experiment: Experiment, options: TrainOptions) -> str:
    """Submit a run whose config has been written. Return the job id."""
    cluster = run.path / CLUSTER
    cluster.mkdir(mode=0o700, exist_ok=True)
    for name in (OUTCOME, ADDRESS, JOB):
        (cluster / name).unlink(missing_ok=True)
    script = cluster / SCRIPT
    script.write_text(script_of(run, experiment, options))
    job = slurm.submit(script)
    write_job(cluster, job)
    return job


def state_of_new_job(run: RunDirectory, job: str, seconds: float = SUBMIT_SECONDS) -> str:
    """Return the state of a new job once Slurm has considered it; empty if that takes longer or Slurm does not respond.

    Cancels a job that can never start and raises RunFailed.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state, reason = slurm.job_state(job)
        except slurm.SlurmError:
            break
        if state != "PENDING" or reason not in ("", "None"):
            _refuse_impossible(run, job, state, reason)
            return slurm.describe_state(state, reason)
        time.sleep(SUBMIT_POLL_SECONDS)
    return ""


def _refuse_impossible(run: RunDirectory, job: str, state: str, reason: str) -> None:
    if not slurm.never_starts(state, reason):
        return
    end = End(
        "failed",
        f"job {job}: {slurm.describe_state(state, reason)}: it can never start, so it was canceled. "
        "Request other resources",
    )
    cancel(run.path / CLUSTER, job, end)
    raise RunFailed(end.reason)


def follow(run: RunDirectory, job: str, on_status: OnStatus) -> Run:
    """Report the status until the run ends. An interrupt stops the run, as it would on this machine."""
    cluster = run.path / CLUSTER
    status = RunStatus(run.name, "", "", str(run.path))
    queue = _JobWatch(run, job)
    with _stopping_at_interrupt(cluster, job):
        while not (cluster / OUTCOME).exists():
            answer = ask(cluster, StatusRequest()) if (cluster / ADDRESS).exists() else None
            if isinstance(answer, StatusReply):
                status = answer.status
            else:
                if not queue.update(time.monotonic()):
                    break
                status = msgspec.structs.replace(status, messages=[queue.message])
            if on_status is not None:
                on_status(status)
            time.sleep(FOLLOW_SECONDS)
    return _outcome(run, queue.message, status)


class _JobWatch:
    """State of a job in Slurm, while its run does not respond."""

    def __init__(self, run: RunDirectory, job: str) -> None:
        self.message = f"job {job} was submitted"
        self._run, self._job = run, job
        self._began = time.monotonic()
        self._asked = self._answered = self._began - QUEUE_SECONDS

    def update(self, now: float) -> bool:
        """Ask Slurm. Return False once the job has ended.

        Raises SlurmError if Slurm does not respond for a long time. Cancels a job that can never start and raises
        RunFailed.
        """
        if now - self._asked < max(QUEUE_SECONDS, min(MAX_QUEUE_SECONDS, (now - self._began) / 20)):
            return True
        self._asked = now
        try:
            state, reason = slurm.job_state(self._job)
        except slurm.SlurmError as error:  # slurmctld restarts, or is very busy
            if now - self._answered > MAX_SILENCE_SECONDS:
                raise
            self.message = f"job {self._job}: {error}"
            return True
        self._answered = now
        self.message = f"job {self._job}: {slurm.describe_state(state, reason)}"
        _refuse_impossible(self._run, self._job, state, reason)
        return state not in slurm.ENDED


def _outcome(run: RunDirectory, message: str, status: RunStatus) -> Run:
    path, deadline = run.path / CLUSTER / OUTCOME, time.monotonic() + OUTCOME_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        end = msgspec.json.decode(path.read_bytes(), type=End)
    except FileNotFoundError:
        words = end_of_log(run.logs / LOG) or "(it is empty)"
        raise RunFailed(f"{message}, before the run ended. The end of its log {run.logs / LOG}:\n{words}") from None
    return Run(run.path, end.state, end.reason, run.read_status() or status)


@contextmanager
def _stopping_at_interrupt(cluster: Path, job: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if ask(cluster, StopRequest()) is None:
            cancel(cluster, job, End("stopped", STOP_REASON))
            raise
        deadline = time.monotonic() + STOP_SECONDS
        while not (cluster / OUTCOME).exists() and time.monotonic() < deadline:
            time.sleep(0.1)
