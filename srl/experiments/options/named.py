"""What users bring by name: an algorithm's config, and a function that changes the graph."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from srl.api.algorithm import AlgorithmConfig
from srl.api.experiment import Experiment, WorkerGroup
from srl.api.worker import WorkerConfig
from srl.base.errors import nearest
from srl.base.importing import load_object, name_of
from srl.experiments.options.train_options import ALGORITHMS, TrainOptions


def algorithm_of(options: TrainOptions) -> AlgorithmConfig:
    """The config that the options name. Raises ValueError for one that cannot work."""
    if options.algo in ALGORITHMS:
        algorithm: AlgorithmConfig = getattr(options, options.algo)
        return algorithm
    kind = load_object(options.algo)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{options.algo} must be a frozen dataclass, found {type(kind).__name__} {kind!r}")
    if not issubclass(kind, AlgorithmConfig):
        raise ValueError(f"{options.algo} must inherit from srl.api.algorithm.AlgorithmConfig, found {kind!r}")
    if missing := sorted(kind.__abstractmethods__):
        raise ValueError(f"{options.algo} is not a complete AlgorithmConfig: it lacks {', '.join(missing)}")
    known = [field.name for field in dataclasses.fields(kind) if field.init]
    for name in options.algo_args:
        if name not in known:
            raise ValueError(f"{kind.__name__} has no option {name!r}{nearest(name, known)}")
    built: AlgorithmConfig = kind(**options.algo_args)
    return built


def title_of(algo: str) -> str:
    """What people read: `ppo`, or the name of the config's class without its ending."""
    return algo.rpartition(":")[2].removesuffix("Config").lower() or algo


def by_name(options: dict[str, Any]) -> dict[str, Any]:
    """Options from Python, where `algo` may be a config and `graph` a function, as the plain data that workers and
    run directories need."""
    named = dict(options)
    algo = named.get("algo")
    if dataclasses.is_dataclass(algo) and not isinstance(algo, type):
        kind = type(algo)
        built_in = next((name for name in ALGORITHMS if kind is type(getattr(TrainOptions(), name))), "")
        if built_in:
            named.update({"algo": built_in, built_in: algo})
        else:
            fields = [field.name for field in dataclasses.fields(algo) if field.init]
            named.update(algo=name_of(kind), algo_args={name: getattr(algo, name) for name in fields})
    if callable(named.get("graph")):
        named["graph"] = name_of(named["graph"])
    return named


def anchored(options: TrainOptions) -> TrainOptions:
    """The same options, files named by their whole path: a run can be resumed from any directory."""
    sinks = tuple(anchored_name(name) for name in options.sinks)
    return dataclasses.replace(
        options, algo=anchored_name(options.algo), graph=anchored_name(options.graph), sinks=sinks
    )


def anchored_name(name: str) -> str:
    """What stands in a file, with the whole path of that file; anything else as it is."""
    source, separator, attribute = name.rpartition(":")
    return f"{os.path.abspath(source)}{separator}{attribute}" if source.endswith(".py") else name


def extend(experiment: Experiment, graph: str) -> Experiment:
    """The experiment as the user's function changes it."""
    if not graph:
        return experiment
    extended = load_object(graph)(experiment)
    if not isinstance(extended, Experiment):
        raise ValueError(f"{graph} must return an srl.Experiment, found {type(extended).__name__}")
    names = [group.name for group in extended.groups]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{graph}: two groups of workers are called {name!r}")
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
