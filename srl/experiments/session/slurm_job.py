"""The batch step of a run on Slurm: conducts the run inside the job.

Slurm may end a job and queue it again; each such attempt resumes from the run's last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.base.errors import explain
from srl.controller.control_socket import ADDRESS, CLUSTER, SECRET, STOP_REASON
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.cluster_site import ClusterSite
from srl.experiments.session.launch import conduct_on
from srl.experiments.session.session import RunFailed
from srl.experiments.session.slurm_queue import OUTCOME, End
from srl.schedulers.engines.components import components
from srl.schedulers.engines.slurm import SlurmEngine, nodes_of_job, own_address, requeue, requeue_other_components
from srl.storage.run_directory import RunDirectory
from srl.transports.join_secret import find_or_make_secret

ATTEMPT = "attempt"
INTERRUPTED = 143  # exit code that a shell reports for a command ended by SIGTERM
LOCK_SECONDS = 60.0
"""Time limit for a new attempt to lock the run directory, since an earlier attempt may still be ending."""


def conduct(path: Path) -> int:
    """Start the run, or resume it from the last checkpoint of an earlier attempt. Returns the exit code."""
    run = RunDirectory(path)
    cluster = run.path / CLUSTER
    attempt = _start_attempt(cluster)
    (cluster / OUTCOME).unlink(missing_ok=True)

    def superseded() -> bool:
        with contextlib.suppress(OSError):
            return (cluster / ATTEMPT).read_text() != attempt
        return True

    def site(experiment: Experiment, options: TrainOptions) -> ClusterSite:
        labels = [part.constraint for part in components(experiment.groups, options.cluster.hosts)]
        nodes = nodes_of_job(os.environ, labels)
        engine = SlurmEngine(nodes, run.logs, cluster / SECRET)
        secret = find_or_make_secret(cluster / SECRET)
        return ClusterSite(engine, secret, own_address(os.environ), 0, cluster, superseded)

    printed: set[str] = set()

    def print_messages(status: RunStatus) -> None:
        """Print the run's new messages to the job log; metrics are in metrics.jsonl."""
        for text in status.messages:
            if text not in printed:
                printed.add(text)
                print(text, flush=True)

    out_of_time = False

    def on_notice(number: int, frame: Any) -> None:
        nonlocal out_of_time
        out_of_time = True
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGUSR1, on_notice)
    with run.locked(LOCK_SECONDS):
        end = _run(lambda: conduct_on(run, site, print_messages))
    if superseded():
        return 0
    (cluster / ADDRESS).unlink(missing_ok=True)
    if end.state == "stopped" and end.reason != STOP_REASON:
        # Slurm needs the nodes (preemption, `scontrol requeue`), and may start this job again.
        print(f"{end.reason}: the run resumes from its checkpoint when this job starts again, or with `srl resume`")
        if out_of_time:
            print("the job's time limit is reached: requesting to be queued again", flush=True)
            requeue()
            return 0
        requeue_other_components()
        return INTERRUPTED
    (cluster / OUTCOME).write_bytes(msgspec.json.encode(end))
    (cluster / SECRET).unlink(missing_ok=True)
    return 0 if end.state == "finished" else 1


def _run(conduct_run: Callable[[], Any]) -> End:
    try:
        ended = conduct_run()
        return End(ended.state, ended.reason)
    except (RunFailed, ValueError, LookupError, ImportError, OSError, RuntimeError, MemoryError) as error:
        print(explain(error), flush=True)
        return End("failed", str(error))


def _start_attempt(cluster: Path) -> str:
    """Write and return a unique id. An attempt that finds another id in the file has been superseded."""
    attempt = f"{os.environ.get('SLURM_JOB_ID', '0')}.{os.environ.get('SLURM_RESTART_COUNT', '0')}.{time.time_ns()}"
    partial = cluster / f"{ATTEMPT}.new"
    partial.write_text(attempt)
    partial.replace(cluster / ATTEMPT)
    return attempt


if __name__ == "__main__":
    sys.exit(conduct(Path(sys.argv[1])))
