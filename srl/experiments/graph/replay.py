"""Replay in the graph: whether it fits, where it is, and the workers that keep it."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from srl.api.dataflow import BatchTransform, Dataflow, Replay
from srl.api.experiment import Experiment, Resources, WorkerGroup
from srl.api.worker import WorkerConfig
from srl.base.wire import MAX_BYTES
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.replay.goals import GoalRewardsConfig
from srl.streams.push import PushStream
from srl.streams.sample import SampleStream
from srl.terminal.machine import limits
from srl.workers.reanalyzer import ReanalyzerConfig
from srl.workers.replay.buffer import BufferWorkerConfig
from srl.workers.replay.worker import REPLAY_MODULE, ReplayWorkerConfig
from srl.workers.trainer.worker import TrainerWorkerConfig

MIB, GIB = 2**20, 2**30
DRAWS_SHARE = 0.25  # of the machine's memory, for the minibatches that one trainer has drawn
SHORTEST_STEP_SECONDS = 20e-6  # of a gradient step, with the smallest networks
REPLAY_FIXED = (
    "with another number of replay workers, the blocks of each lane would go to other ones than before, and n-step "
    "returns and sequences follow these blocks; `srl stop` the run, and `srl resume` it with another --replay-workers. "
    "The replay then starts empty"
)
BUFFERS_FIXED = f"there is one for each replay worker, and {REPLAY_FIXED}"


def shard_bytes(flow: Replay, samples: PushStream) -> int:
    """Return the bytes of the replay of one consumer."""
    from srl.replay.memory import bytes_needed  # imports numba

    return bytes_needed(flow, samples.spec, samples.consumers)


def replay_bytes(experiment: Experiment) -> int:
    """Return the bytes of all replay memories of a graph once they are full."""
    total = 0
    for trainer in (group.config for group in experiment.groups):
        if isinstance(trainer, TrainerWorkerConfig) and not trainer.data:
            flow = trainer.algorithm.dataflow()
            total += trainer.samples.consumers * shard_bytes(flow, trainer.samples) if isinstance(flow, Replay) else 0
    return total


def check_replay_fits(flow: Replay, samples: PushStream, directory: str) -> None:
    """Raise ValueError if the replay would not fit in the memory of this machine or, with `directory`, on its disk."""
    needed = samples.consumers * shard_bytes(flow, samples)
    if directory:
        available, place, advice = _free_disk(Path(directory)), f"the disk of {directory}", "another --replay-dir"
    else:
        available, place, advice = limits().memory, "this machine", "a disk (--replay-dir)"
    if needed > available:
        each = needed / flow.capacity
        raise ValueError(
            f"a replay of {flow.capacity:,} decisions needs {needed / GIB:,.1f} GiB, {each:,.0f} bytes for each; "
            f"{place} has {available / GIB:,.1f} GiB, enough for {int(available / each):,}. Choose a smaller "
            f"--algo.replay-size, or {advice}"
        )


def check_updates(flow: Replay, samples: PushStream, hang_timeout: float) -> None:
    """Raise ValueError if an update has more gradient steps than a trainer can make: their minibatches would not fit,
    or it would be replaced as stuck."""
    steps = math.ceil(samples.batch * flow.updates_per_decision)
    # A trainer has two updates: one that it learns from, and the next one.
    each = flow.batch * SampleStream("", samples.spec, flow.unit).unit_nbytes()
    needed, available = 2 * steps * each, DRAWS_SHARE * limits().memory
    duration = steps * SHORTEST_STEP_SECONDS
    if needed > available:
        why = (
            f"whose minibatches take {needed / GIB:,.1f} GiB; a trainer may use {available / GIB:,.1f} GiB for them, "
            f"{DRAWS_SHARE:.0%} of this machine's memory"
        )
    elif duration > hang_timeout:
        why = (
            f"which take {duration:,.0f} s at {SHORTEST_STEP_SECONDS * 1e6:.0f} µs each, less than any network needs; "
            f"a trainer counts as stuck after {hang_timeout:g} s (--hang-timeout)"
        )
    else:
        return
    most = min(available / (2 * each), hang_timeout / SHORTEST_STEP_SECONDS) / samples.batch
    raise ValueError(
        f"updates-per-decision {flow.updates_per_decision:,g} cannot be reached: the trainer would limit it, with "
        f"{steps:,} gradient steps for each update of {samples.batch:,} decisions, {why}. The largest value that could "
        f"be reached is {most:,.3g}. Choose a smaller --algo.updates-per-decision, or smaller --lanes and --horizon"
    )


def check_replay_units(
    flow: Replay, samples: PushStream, num_tracks: int, trainers: int, is_recorded: bool = False
) -> None:
    """Raise ValueError if the algorithm's units cannot be drawn from such blocks, of which `num_tracks` chains fill the
    replay, or if the trainers cannot share a minibatch."""
    from srl.replay.memory import check_steps, check_units  # imports numba

    if flow.batch % trainers:
        raise ValueError(f"--algo.batch-size must be a multiple of the {trainers} trainers; found {flow.batch}")
    check_units(dataclasses.replace(flow, batch=samples.consumers), samples.spec, samples.consumers, num_tracks)
    if not is_recorded:
        check_steps(flow, samples.spec, samples.consumers, num_tracks)


def _free_disk(directory: Path) -> int:
    """Return the free space where a directory is or will be."""
    existing = next(path for path in (directory.absolute(), *directory.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free


def check_replay_options(options: TrainOptions, flows: Sequence[Dataflow]) -> None:
    """Raise ValueError if options of replay would have no effect on the policies that learn."""
    workers, saves = options.workers, options.checkpoints.save_replay
    named = {"--replay": workers.replay != "inline", "--replay-dir": workers.replay_dir, "--save-replay": saves}
    given = [name for name, value in named.items() if value]
    if given and not any(isinstance(flow, Replay) for flow in flows):
        raise ValueError(
            f"{' and '.join(given)}: {title_of(options.algo)} has no replay, because it learns from each decision "
            "once; leave it out, or choose an off-policy algorithm such as dqn, sac or td3"
        )
    if workers.buffer_workers and not any(isinstance(flow, Replay) and flow.transform for flow in flows):
        raise ValueError(
            f"--buffer-workers: {title_of(options.algo)} changes nothing in drawn batches; leave it out, or set "
            "--algo.random-shift"
        )
    if workers.reanalyze_workers and not any(isinstance(flow, Replay) and flow.reanalysis for flow in flows):
        raise ValueError(
            f"--reanalyze-workers: {title_of(options.algo)} makes no targets again; leave it out, or use muzero with "
            "--algo.max-target-age"
        )


def check_learning_starts(experiment: Experiment) -> None:
    """Raise ValueError if a trainer would still collect its first decisions when the run ends. A resumed run may end
    earlier, so this is for new runs."""
    for group in experiment.groups:
        trainer = group.config
        if not isinstance(trainer, TrainerWorkerConfig) or trainer.data:
            continue
        flow, steps = trainer.algorithm.dataflow(), trainer.target_steps
        if isinstance(flow, Replay) and flow.warmup >= steps:
            raise ValueError(
                f"learning-starts {flow.warmup:,} is not below --steps {steps:,}: nothing would be learned; use "
                f"--algo.learning-starts {steps // 10}, or more --steps"
            )
        if isinstance(flow, Replay) and (steps - flow.warmup) * flow.updates_per_decision < 1.0:
            raise ValueError(
                f"updates-per-decision {flow.updates_per_decision:g} allows no gradient step in the "
                f"{steps - flow.warmup:,} decisions after the warm-up: nothing would be learned; it is the number of "
                "gradient steps per decision, usually 0.1 to 1"
            )


def replay_workers(
    policy: str,
    flow: Replay,
    samples: PushStream,
    options: TrainOptions,
    goals: GoalRewardsConfig | None = None,
    reanalyzer: ReanalyzerConfig | None = None,
) -> tuple[ReplayWorkerConfig, Resources]:
    """Return the config of the workers that consume `samples`, and what each of them needs. Raises ValueError if the
    batches of trainers do not fit into messages."""
    workers = options.workers
    stream = SampleStream(policy, samples.spec, flow.unit, samples.consumers, samples.remote)
    _check_sample_stream(flow, stream, samples, workers.trainers)
    resources = Resources()
    if workers.scheduler in CLUSTERS:
        resources = Resources(memory_mb=math.ceil(shard_bytes(flow, samples) / MIB))
    return ReplayWorkerConfig(policy, flow, samples, stream, options.run.seed, goals, reanalyzer), resources


def _check_sample_stream(flow: Replay, stream: SampleStream, samples: PushStream, trainers: int) -> None:
    steps = math.ceil(samples.batch * flow.updates_per_decision)
    needed = steps * flow.batch // trainers * stream.unit_nbytes()
    if needed > MAX_BYTES:
        raise ValueError(
            f"{steps} minibatches of {flow.batch // trainers} units per update and trainer take up to "
            f"{needed / GIB:.1f} GiB, more than a message to a trainer may have ({MAX_BYTES / GIB} GiB): choose a "
            "smaller --horizon or fewer --lanes, so that there are more updates, or --replay inline"
        )


BufferWorkers: TypeAlias = BatchTransform | Callable[[SampleStream, SampleStream], WorkerConfig]
"""What buffer workers do: a transform that they apply, or a function that makes their config from the stream to the
replay workers and the stream to the trainers."""


def behind_buffers(
    group: WorkerGroup,
    trainers: TrainerWorkerConfig,
    replay: SampleStream,
    name: str,
    workers: BufferWorkers,
    is_transformed: bool = False,
) -> list[WorkerGroup]:
    """Return the group of `trainers`, which draw from the stream `replay`, and a group of buffer workers between them
    and that stream. With `is_transformed`, these apply the transform of the dataflow. Raises ValueError if a transform
    does not support the spaces."""
    is_transformed = is_transformed or replay.is_transformed
    batches = dataclasses.replace(replay, name=f"{replay.name}+{name}", is_transformed=is_transformed)
    if isinstance(workers, BatchTransform):
        spaces = trainers.observation, trainers.action
        workers.build(*spaces)  # raises ValueError
        config: WorkerConfig = BufferWorkerConfig(replay, batches, workers, *spaces)
    else:
        config = workers(replay, batches)
    restart = dataclasses.replace(group.restart, together=False)
    return [
        dataclasses.replace(group, config=dataclasses.replace(trainers, replay=batches)),
        WorkerGroup(name, config, replay.shards, restart=restart, fixed_because=BUFFERS_FIXED),
    ]


def replay_modules(experiment: Experiment) -> tuple[str, ...]:
    """Return the modules that replay workers need, to be imported before they start."""
    has_workers = any(isinstance(group.config, ReplayWorkerConfig) for group in experiment.groups)
    return (REPLAY_MODULE,) if has_workers else ()
