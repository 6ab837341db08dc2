"""The batch step of a run on Slurm: conducts the run inside the job.

Slurm may end a job and queue it again; each such attempt resumes from the run's last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.base.errors import explain
from srl.controller.control_socket import ADDRESS, CLUSTER, STOP_REASON
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.cluster_site import ClusterSite
from srl.experiments.session.launch import conduct_on
from srl.experiments.session.run import RunFailed
from srl.experiments.session.slurm_queue import OUTCOME, End
from srl.schedulers.engines.components import components
from srl.schedulers.engines.slurm import SlurmEngine, nodes_of_job, own_address, requeue, requeue_other_components
from srl.storage.run_directory import RunDirectory
from srl.storage.run_ownership import Superseded
from srl.transports.join_ticket import IDENTITY, JOIN, Identity

INTERRUPTED = 143  # exit code that a shell reports for a command ended by SIGTERM
LOCK_SECONDS = 60.0
"""Time for which a new attempt waits for an earlier one that is still ending. If that one lives on, because Slurm has
lost contact with its node, the new attempt takes the run directory from it."""


def conduct(path: Path) -> int:
    """Start the run, or resume it from the last checkpoint of an earlier attempt. Returns the exit code."""
    run = RunDirectory(path)
    cluster = run.path / CLUSTER

    def site(experiment: Experiment, options: TrainOptions) -> ClusterSite:
        labels = [part.constraint for part in components(experiment.groups, options.cluster.hosts)]
        nodes = nodes_of_job(os.environ, labels)
        engine, identity = SlurmEngine(nodes, run.logs, cluster / JOIN), Identity.create(cluster / IDENTITY)
        return ClusterSite(engine, identity, cluster / JOIN, own_address(os.environ), 0, cluster)

    printed: set[str] = set()

    def print_messages(status: RunStatus) -> None:
        """Print the run's new messages to the job log; metrics are in metrics.jsonl."""
        for text in status.messages:
            if text not in printed:
                printed.add(text)
                _print(text)

    out_of_time = False

    def on_notice(number: int, frame: Any) -> None:
        nonlocal out_of_time
        out_of_time = True
        os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGUSR1, on_notice)
    with run.locked(LOCK_SECONDS, force=True) as ownership:
        (cluster / OUTCOME).unlink(missing_ok=True)
        end = _run(lambda: conduct_on(run, ownership, site, print_messages))
        with contextlib.suppress(Superseded):
            ownership.check()
    if ownership.lost:
        return 0
    (cluster / ADDRESS).unlink(missing_ok=True)
    if end.state == "stopped" and end.reason != STOP_REASON:
        # Slurm needs the nodes (preemption, `scontrol requeue`), and may start this job again.
        _print(f"{end.reason}: the run resumes from its checkpoint when this job starts again, or with `srl resume`")
        if out_of_time:
            _print("the job's time limit is reached: requesting to be queued again")
            requeue()
            return 0
        requeue_other_components()
        return INTERRUPTED
    (cluster / OUTCOME).write_bytes(msgspec.json.encode(end))
    return 0 if end.state == "finished" else 1


def _run(conduct_run: Callable[[], Any]) -> End:
    try:
        ended = conduct_run()
        return End(ended.state, ended.reason)
    except (RunFailed, ValueError, LookupError, ImportError, OSError, RuntimeError, MemoryError) as error:
        _print(explain(error))
        return End("failed", str(error))


def _print(text: str) -> None:
    with contextlib.suppress(OSError):  # the disk with the job's log is full
        print(text, flush=True)


if __name__ == "__main__":
    sys.exit(conduct(Path(sys.argv[1])))
