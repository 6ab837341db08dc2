"""Changes to the standard graph: by a user's function, and by replacing a stream."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeAlias

from srl.api.experiment import Experiment, WorkerGroup
from srl.api.worker import WorkerConfig
from srl.base.object_names import load_object
from srl.experiments.graph.replay import BufferWorkers, behind_buffers
from srl.streams.push import PushStream
from srl.streams.request import RequestStream
from srl.streams.sample import SampleStream
from srl.workers.trainer.worker import TrainerWorkerConfig


def extend(experiment: Experiment, graph: str) -> Experiment:
    """Return the experiment as changed by the user's function `graph`, or unchanged if the name is empty."""
    if not graph:
        return experiment
    extended = load_object(graph)(experiment)
    if not isinstance(extended, Experiment):
        raise ValueError(f"{graph} must return an srl.Experiment, found {type(extended).__name__}")
    names = [group.name for group in extended.groups]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{graph}: two groups of workers are named {name!r}")
    for group in extended.groups:
        _check_group(group, graph)
    return extended


def _check_group(group: WorkerGroup, graph: str) -> None:
    if group.count < 1:
        raise ValueError(f"{graph}: group {group.name!r} needs at least one worker, found {group.count}")
    if not dataclasses.is_dataclass(group.config) or not isinstance(group.config, WorkerConfig):
        raise ValueError(
            f"{graph}: the config of {group.name!r} must be a dataclass that inherits from "
            f"srl.api.worker.WorkerConfig, found {type(group.config).__name__}"
        )


Stream: TypeAlias = PushStream | RequestStream | SampleStream


def rewired(experiment: Experiment, old: Stream, new: Stream) -> Experiment:
    """Return the experiment with the stream `old` replaced by `new` in all configs, so that its endpoints stay
    consistent. Use it in a `--graph` function, for example to broadcast samples or to change a stream's capacity."""
    groups = tuple(dataclasses.replace(group, config=_replaced(group.config, old, new)) for group in experiment.groups)
    if groups == experiment.groups and old != new:
        names = ", ".join(group.name for group in experiment.groups)
        raise ValueError(f"no worker of {names} has this stream {old.name!r}; get the stream from their configs")
    return dataclasses.replace(experiment, groups=groups)


def with_buffer_workers(experiment: Experiment, name: str, workers: BufferWorkers) -> Experiment:
    """Return the experiment with a group of buffer workers, one for each replay worker, that change the batches which
    trainers draw. `workers` is what they apply, or makes their config from two streams: the one to the replay workers,
    and the one to the trainers. Use it in a `--graph` function; several groups form a chain, the last one next to the
    trainers. With several policies, each has its own group."""
    groups: list[WorkerGroup] = []
    for group in experiment.groups:
        trainers = group.config
        if isinstance(trainers, TrainerWorkerConfig) and trainers.replay is not None:
            own = name if len(experiment.learning) == 1 else f"{name}-{trainers.policy}"
            groups += behind_buffers(group, trainers, trainers.replay, own, workers)
        else:
            groups.append(group)
    if len(groups) == len(experiment.groups):
        raise ValueError(
            f"buffer workers {name!r} need replay workers, which this run does not have: use --replay host or remote "
            "with an algorithm that learns from replay"
        )
    return dataclasses.replace(experiment, groups=tuple(groups))


def _replaced(value: Any, old: Any, new: Any) -> Any:
    """Return `value` with the stream replaced, or the same object if it does not contain the stream."""
    if type(value) is type(old) and value == old:
        return new
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            after = _replaced(before, old, new)
            if after is not before:
                changes[field.name] = after
        return dataclasses.replace(value, **changes) if changes else value
    if isinstance(value, tuple):
        items = tuple(_replaced(item, old, new) for item in value)
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value
