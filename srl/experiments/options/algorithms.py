"""Algorithms by name: those of SRL, and config classes that users bring."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from srl.algorithms.a2c import A2CConfig
from srl.algorithms.impala import ImpalaConfig
from srl.algorithms.mappo import IPPOConfig, MAPPOConfig
from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.api.algorithm import AlgorithmConfig
from srl.base.errors import nearest
from srl.base.object_names import load_object, name_of
from srl.experiments.options.train_options import TrainOptions

BUILT_IN: dict[str, Callable[[], AlgorithmConfig]] = {
    "ppo": PPOConfig,
    "a2c": A2CConfig,
    "impala": ImpalaConfig,
    "ppg": PPGConfig,
    "ippo": IPPOConfig,
    "mappo": MAPPOConfig,
}
ALGORITHMS = tuple(BUILT_IN)


def build_algorithm(algo: str, settings: Mapping[str, Any] | None = None) -> AlgorithmConfig:
    """Return the config of this name, with `settings` for its fields. Raises ValueError for a name, a class or a
    setting that cannot work."""
    if algo in BUILT_IN:
        return with_settings(BUILT_IN[algo](), settings or {}, algo)
    if ":" not in algo:
        raise ValueError(
            f"unknown algorithm {algo!r} (for your own, use package.module:Config or path/file.py:Config)"
            f"{nearest(algo, ALGORITHMS)}"
        )
    kind = load_object(algo)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{algo} must be a frozen dataclass, found {type(kind).__name__} {kind!r}")
    if not issubclass(kind, AlgorithmConfig):
        raise ValueError(f"{algo} must inherit from srl.api.algorithm.AlgorithmConfig, found {kind!r}")
    if missing := sorted(kind.__abstractmethods__):
        raise ValueError(f"{algo} is not a complete AlgorithmConfig: it lacks {', '.join(missing)}")
    built: AlgorithmConfig = kind(**_fitting(kind, settings or {}, kind.__name__))
    return built


def with_settings(algorithm: AlgorithmConfig, settings: Mapping[str, Any], title: str) -> AlgorithmConfig:
    """Return the config with other values. Raises ValueError for unknown names."""
    config: Any = algorithm
    changed: AlgorithmConfig = dataclasses.replace(config, **_fitting(type(config), settings, title))
    return changed


def _fitting(kind: type[Any], settings: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the settings with tuples where the config has tuples and JSON has lists."""
    known = {field.name: field.default for field in dataclasses.fields(kind) if field.init}
    for name in settings:
        if name not in known:
            raise ValueError(f"{title} has no option {name!r}{nearest(name, known)}")
    return {
        name: tuple(value) if isinstance(value, list) and isinstance(known[name], tuple) else value
        for name, value in settings.items()
    }


def name_of_config(algorithm: AlgorithmConfig) -> str:
    """Return the name of the algorithm that this config belongs to."""
    kind = type(algorithm)
    return next((name for name, made in BUILT_IN.items() if made is kind), "") or name_of(kind)


def title_of(algo: str) -> str:
    """A short name for people: `ppo`, or the name of the config's class without its ending."""
    return algo.rpartition(":")[2].removesuffix("Config").lower() or algo


def with_absolute_paths(options: TrainOptions) -> TrainOptions:
    """Return the options with absolute paths for files, so that a run can be resumed from any directory."""
    run = options.run
    sinks = tuple(absolute_name(name) for name in run.sinks)
    return options.replace(algo=absolute_name(options.algo), graph=absolute_name(run.graph), sinks=sinks)


def absolute_name(name: str) -> str:
    """`path/file.py:name` with the absolute path of the file; any other name unchanged."""
    source, separator, attribute = name.rpartition(":")
    return f"{os.path.abspath(source)}{separator}{attribute}" if source.endswith(".py") else name
