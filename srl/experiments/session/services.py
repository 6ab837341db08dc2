"""What a session needs besides the controller: the run's memory, a server of metrics, and recorders of streams."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from srl.api.experiment import Experiment
from srl.base.shared_memory import KeptFile
from srl.datasets.stream_recorder import StreamRecording
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.replay.saved import ReplayArchive
from srl.replay.saving import ReplaySaving
from srl.schedulers.local.run_memory import RunMemory
from srl.storage.run_directory import RunDirectory
from srl.workers.replay.worker import ReplayWorkerConfig
from srl.workers.trainer.worker import TrainerWorkerConfig

if TYPE_CHECKING:
    from srl.controller.prometheus import MetricsServer


def metrics_server(port: int) -> MetricsServer | None:
    """Return a server for Prometheus, or None for port 0."""
    if not port:
        return None
    try:
        from srl.controller.prometheus import MetricsServer
    except ImportError:
        raise ImportError('--metrics-port needs prometheus_client; pip install "srl-rl[dashboard]"') from None
    return MetricsServer(port)


def run_memory(experiment: Experiment, options: TrainOptions) -> RunMemory:
    """Return the run's memory in this process. Agents have their own, also for replay."""
    workers, saves = options.workers, options.checkpoints.save_replay
    here = workers.scheduler not in CLUSTERS
    directory = Path(workers.replay_dir).absolute() if workers.replay_dir and here else None
    if workers.replay_dir and workers.scheduler == "hosts":
        KeptFile.create("test", Path(workers.replay_dir)).close()  # an error here is shown at once, unlike in an agent
    # Anonymous memory is faster, but nothing can read it, and it ends with its process: in an inline run, with the run.
    keeps = here and (workers.scheduler != "inline" or saves or directory is not None)
    return RunMemory.create(experiment.policies, keeps_replay=keeps, replay_dir=directory)


def replay_archive(run: RunDirectory, memory: RunMemory, options: TrainOptions) -> ReplayArchive | None:
    """Return the archive in which this process saves the replay of its host's workers, or None if it does not."""
    here = options.workers.scheduler not in CLUSTERS
    return ReplayArchive(run.replay, memory.replays) if here and options.checkpoints.save_replay else None


def saved(experiment: Experiment, run: RunDirectory, options: TrainOptions) -> Experiment:
    """Return the experiment whose workers save their replay themselves, if the user wants that and this process cannot
    do it. As with `recorded`, the directory is not part of the graph with which checkpoints are compared."""
    if not options.checkpoints.save_replay or options.workers.scheduler not in CLUSTERS:
        return experiment
    run.replay.mkdir(exist_ok=True)
    groups = []
    for group in experiment.groups:
        config = group.config
        if isinstance(config, ReplayWorkerConfig) or (isinstance(config, TrainerWorkerConfig) and not config.replay):
            saving = ReplaySaving(str(run.replay / config.policy), options.checkpoints.checkpoint_seconds)
            group = replace(group, config=replace(config, saving=saving))
        groups.append(group)
    return replace(experiment, groups=tuple(groups))


def recorded(experiment: Experiment, run: RunDirectory, options: TrainOptions) -> Experiment:
    """Return the experiment whose trainers record the batches that reach them, if the user wants that. The directory is
    not part of the graph with which checkpoints are compared."""
    if not options.checkpoints.record_streams:
        return experiment
    run.streams.mkdir(exist_ok=True)
    groups = []
    for group in experiment.groups:
        if isinstance(config := group.config, TrainerWorkerConfig):
            folder = str(run.streams / config.policy)
            recording = StreamRecording(folder, options.checkpoints.record_mb)
            group = replace(group, config=replace(config, recording=recording))
        groups.append(group)
    return replace(experiment, groups=tuple(groups))
