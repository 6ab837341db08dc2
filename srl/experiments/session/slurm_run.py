"""A run on Slurm: submitted as one job from the user's machine, followed from there, conducted inside the job."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.base.errors import explain
from srl.controller.control_socket import (
    ADDRESS,
    CLUSTER,
    SECRET,
    STOP_REASON,
    AskStatus,
    AskStop,
    TellStatus,
    ask,
)
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.hosting import ClusterSite
from srl.experiments.session.session import Outcome, RunFailed
from srl.experiments.session.slurm_queue import JOB, OUTCOME, End, take_back
from srl.schedulers.agent.secret import find_or_make_secret
from srl.schedulers.engines import slurm_commands as slurm
from srl.schedulers.engines.components import components
from srl.schedulers.engines.slurm import SlurmEngine, nodes_of_job, own_address, requeue, requeue_other_components
from srl.storage.run_directory import RunDirectory, RunDirectoryError

SCRIPT = "job.sh"
ATTEMPT = "attempt"
LOG = "slurm.log"
FOLLOW_SECONDS = 0.5
QUEUE_SECONDS = 2.0
SILENT_SECONDS = 60.0
"""So long Slurm's commands may fail while a job is watched."""
SUBMIT_SECONDS = 5.0
"""In which Slurm has looked at a new job, and knows why it has to wait."""
SUBMIT_LOOK_SECONDS = 0.5
WORD_SECONDS = 2.0
"""So long after the end of a job its outcome may be on its way."""
LEAVE_SECONDS = 30.0
INTERRUPTED = 143
"""What the shell calls the end of a command by SIGTERM."""
PREDECESSOR_SECONDS = 60.0
"""How long a new attempt waits for one that was taken for dead to let go of the run directory."""


def script_of(run: RunDirectory, experiment: Experiment, options: TrainOptions) -> str:
    """The batch script of a run."""
    parts = components(experiment.groups, options.cluster.hosts)
    command = [sys.executable, "-m", "srl.experiments.session.slurm_run", str(run.path)]
    cluster = options.cluster
    return slurm.batch_script(run.name, parts, run.logs / LOG, command, cluster.partition, cluster.slurm_options)


def submit(run: RunDirectory, experiment: Experiment, options: TrainOptions) -> str:
    """Hand a run whose config is written over to Slurm; returns the job's number."""
    cluster = run.path / CLUSTER
    cluster.mkdir(mode=0o700, exist_ok=True)
    for name in (OUTCOME, ADDRESS, JOB):
        (cluster / name).unlink(missing_ok=True)
    find_or_make_secret(cluster / SECRET)
    script = cluster / SCRIPT
    script.write_text(script_of(run, experiment, options))
    job = slurm.submit(script)
    (cluster / JOB).write_text(job)
    return job


def begun_or_waiting(run: RunDirectory, job: str, seconds: float = SUBMIT_SECONDS) -> str:
    """How a new job is, as soon as Slurm has looked at it; empty if that takes longer, or Slurm does not answer. Raises
    RunFailed for one that can never begin, which is taken out of the queue."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state, reason = slurm.job_state(job)
        except slurm.SlurmError:
            break
        if state != "PENDING" or reason not in ("", "None"):
            _refuse_hopeless(run, job, state, reason)
            return slurm.describe_state(state, reason)
        time.sleep(SUBMIT_LOOK_SECONDS)
    return ""


def _refuse_hopeless(run: RunDirectory, job: str, state: str, reason: str) -> None:
    if not slurm.never_starts(state, reason):
        return
    end = End(
        "failed",
        f"job {job}: {slurm.describe_state(state, reason)}: this will never begin, so it was taken back. "
        "Ask for something else",
    )
    take_back(run.path / CLUSTER, job, end)
    raise RunFailed(end.reason)


def follow(run: RunDirectory, job: str, on_status: Callable[[RunStatus], None]) -> Outcome:
    """Show how it goes until it is over. An interrupt stops the run, as it would one of this machine."""
    cluster = run.path / CLUSTER
    status = RunStatus(run.name, "", "", str(run.path))
    queue = _Queue(run, job)
    with _stopping_at_interrupt(cluster, job):
        while not (cluster / OUTCOME).exists():
            answer = ask(cluster, AskStatus()) if (cluster / ADDRESS).exists() else None
            if isinstance(answer, TellStatus):
                status = answer.status
            else:
                if not queue.look(time.monotonic()):
                    break
                status = msgspec.structs.replace(status, messages=[queue.message])
            on_status(status)
            time.sleep(FOLLOW_SECONDS)
    return _outcome(run, queue.message, status)


class _Queue:
    """What Slurm says about a job whose run does not answer."""

    def __init__(self, run: RunDirectory, job: str) -> None:
        self.message = f"job {job} was submitted"
        self._run, self._job = run, job
        self._asked = self._answered = time.monotonic() - QUEUE_SECONDS

    def look(self, now: float) -> bool:
        """Is it still worth waiting? Raises SlurmError if Slurm does not answer for long, RunFailed for a job that can
        never begin, which is taken out of the queue."""
        if now - self._asked < QUEUE_SECONDS:
            return True
        self._asked = now
        try:
            state, reason = slurm.job_state(self._job)
        except slurm.SlurmError as error:  # slurmctld is begun anew, or very busy
            if now - self._answered > SILENT_SECONDS:
                raise
            self.message = f"job {self._job}: {error}"
            return True
        self._answered = now
        self.message = f"job {self._job}: {slurm.describe_state(state, reason)}"
        _refuse_hopeless(self._run, self._job, state, reason)
        return state not in slurm.OVER


def _outcome(run: RunDirectory, message: str, status: RunStatus) -> Outcome:
    path, deadline = run.path / CLUSTER / OUTCOME, time.monotonic() + WORD_SECONDS
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        end = msgspec.json.decode(path.read_bytes(), type=End)
    except FileNotFoundError:
        words = _tail(run.logs / LOG)
        raise RunFailed(f"{message}, before the run was over. Its log {run.logs / LOG} ends:\n{words}") from None
    return Outcome(end.state, end.reason, run.read_status() or status, run.path)


def _tail(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()[-2000:]
    except OSError:
        return "(there is none)"


@contextmanager
def _stopping_at_interrupt(cluster: Path, job: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if ask(cluster, AskStop()) is None:
            take_back(cluster, job, End("stopped", STOP_REASON))
            raise
        deadline = time.monotonic() + LEAVE_SECONDS
        while not (cluster / OUTCOME).exists() and time.monotonic() < deadline:
            time.sleep(0.1)


# Inside the job


def conduct(path: Path) -> int:
    """The life of the batch step: begin the run, or go on with it where an earlier attempt ended."""
    from srl.experiments.session.train import conduct_on

    run = RunDirectory(path)
    cluster = run.path / CLUSTER
    attempt = _begin_attempt(cluster)
    (cluster / OUTCOME).unlink(missing_ok=True)

    def superseded() -> bool:
        return _attempt(cluster) != attempt

    def ground(experiment: Experiment, options: TrainOptions) -> ClusterSite:
        labels = [part.constraint for part in components(experiment.groups, options.cluster.hosts)]
        nodes = nodes_of_job(os.environ, labels)
        engine = SlurmEngine(nodes, run.logs, cluster / SECRET)
        secret = find_or_make_secret(cluster / SECRET)
        return ClusterSite(engine, secret, own_address(os.environ), 0, cluster, superseded)

    time_is_up = False

    def on_notice(number: int, frame: Any) -> None:
        nonlocal time_is_up
        time_is_up = True
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGUSR1, on_notice)
    with _held(run):
        end = _run(lambda: conduct_on(run, ground, _Messages().print))
    if superseded():
        return 0
    (cluster / ADDRESS).unlink(missing_ok=True)
    if end.state == "stopped" and end.reason != STOP_REASON:
        # Nobody ended the run: Slurm wants the nodes (preemption, `scontrol requeue`), and may begin this job again.
        print(f"{end.reason}: the run goes on from its checkpoint when this job is begun again, or with `srl resume`")
        if time_is_up:
            print("the job's time is up: it asks to be queued again", flush=True)
            requeue()
            return 0
        requeue_other_components()
        return INTERRUPTED
    (cluster / OUTCOME).write_bytes(msgspec.json.encode(end))
    (cluster / SECRET).unlink(missing_ok=True)
    return 0 if end.state == "finished" else 1


def _run(go: Callable[[], Any]) -> End:
    try:
        ended = go()
        return End(ended.state, ended.reason)
    except (RunFailed, ValueError, LookupError, ImportError, OSError, RuntimeError, MemoryError) as error:
        print(explain(error), flush=True)
        return End("failed", str(error))


def _attempt(cluster: Path) -> str:
    with contextlib.suppress(OSError):
        return (cluster / ATTEMPT).read_text()
    return ""


def _begin_attempt(cluster: Path) -> str:
    """A mark that no other attempt at this run has: whoever finds another one there has been replaced."""
    attempt = f"{os.environ.get('SLURM_JOB_ID', '0')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}.{time.time_ns()}"
    partial = cluster / f"{ATTEMPT}.new"
    partial.write_text(attempt)
    partial.replace(cluster / ATTEMPT)
    return attempt


@contextmanager
def _held(run: RunDirectory) -> Iterator[None]:
    deadline = time.monotonic() + PREDECESSOR_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(run.locked())
                break
            except RunDirectoryError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        yield


class _Messages:
    """The job's log gets the run's messages; figures are in metrics.jsonl."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def print(self, status: RunStatus) -> None:
        for text in status.messages:
            if text not in self._printed:
                self._printed.add(text)
                print(text, flush=True)


if __name__ == "__main__":
    sys.exit(conduct(Path(sys.argv[1])))
