"""Algorithms by name: built-in ones, and users' own config classes."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Any

from srl.algorithms.a2c import A2CConfig
from srl.algorithms.alphazero.config import AlphaZeroConfig
from srl.algorithms.dqn.config import ApeXConfig, DQNConfig, RainbowConfig
from srl.algorithms.impala import ImpalaConfig
from srl.algorithms.mappo import IPPOConfig, MAPPOConfig
from srl.algorithms.muzero.config import MuZeroConfig
from srl.algorithms.offline.config import BCConfig, CQLConfig, DAggerConfig, IQLConfig, TD3BCConfig
from srl.algorithms.ppg import PPGConfig
from srl.algorithms.ppo.config import PPOConfig
from srl.algorithms.qmix.config import QMIXConfig, VDNConfig
from srl.algorithms.r2d2.config import R2D2Config
from srl.algorithms.sac.config import DDPGConfig, SACConfig, TD3Config
from srl.api.algorithm import AlgorithmConfig
from srl.base.errors import nearest
from srl.base.object_names import load_object, name_of
from srl.experiments.options.aliases import ADVICE, SAME, advice, as_flag, set_twice
from srl.experiments.options.train_options import TrainOptions

BUILT_IN: dict[str, type[AlgorithmConfig]] = {
    "ppo": PPOConfig,
    "a2c": A2CConfig,
    "impala": ImpalaConfig,
    "ppg": PPGConfig,
    "ippo": IPPOConfig,
    "mappo": MAPPOConfig,
    "dqn": DQNConfig,
    "rainbow": RainbowConfig,
    "apex": ApeXConfig,
    "r2d2": R2D2Config,
    "sac": SACConfig,
    "td3": TD3Config,
    "ddpg": DDPGConfig,
    "vdn": VDNConfig,
    "qmix": QMIXConfig,
    "muzero": MuZeroConfig,
    "alphazero": AlphaZeroConfig,
    "bc": BCConfig,
    "dagger": DAggerConfig,
    "iql": IQLConfig,
    "td3bc": TD3BCConfig,
    "cql": CQLConfig,
}
ALGORITHMS = tuple(BUILT_IN)
PURPOSES = {
    "ppo": "most tasks; the default",
    "impala": "cheap steps and old data: a large --max-lag, many actors, slow links",
    "a2c": "a simple baseline with one gradient step per batch",
    "ppg": "expensive steps and rich observations such as images",
    "ippo": "several agents that play against each other or see enough",
    "mappo": "several agents that cooperate while each sees little",
    "dqn": "choices and expensive steps: learns Q values from a memory of past steps",
    "rainbow": "dqn with all its extensions: slower updates, fewer steps",
    "apex": "dqn for many actors, which explore more or less",
    "r2d2": "as apex, with a memory: for tasks in which a policy must remember what it saw",
    "sac": "real-valued actions and expensive steps: learns from a memory of past steps",
    "td3": "as sac, with a deterministic policy",
    "ddpg": "a simple baseline of td3",
    "vdn": "a team of agents with choices and expensive steps: learns the sum of the agents' Q values from replay",
    "qmix": "as vdn, with a network that mixes the agents' Q values, given the state of the whole game",
    "muzero": "few steps: learns a model of the environment, and searches in it before each action",
    "alphazero": "games with known rules (game:NAME): searches with them, and plays against itself",
    "bc": "recorded data (--data): imitates it",
    "dagger": "an expert to ask (--expert): imitates it where the learner itself plays",
    "iql": "recorded data (--data): a policy better than the one that played",
    "cql": "as iql, with critics that rate unrecorded actions low",
    "td3bc": "as iql, for real-valued actions, with a deterministic policy",
}


VARIANTS = {
    "her": "sac --algo.her future (also td3, ddpg and dqn)",
    "drq": "sac --algo.random-shift 4 (also dqn)",
    "redq": "sac --algo.num-critics 10 --algo.target-critics 2 --algo.updates-per-decision 20",
    "droq": "sac --algo.critic-dropout 0.01 --algo.critic-layer-norm --algo.updates-per-decision 20",
    "doubledqn": "dqn",
    "ddqn": "dqn",
    "duelingdqn": "dqn --algo.dueling",
    "per": "dqn --algo.prioritized (also sac, td3 and ddpg)",
    "c51": "dqn --algo.distributional c51",
    "qrdqn": "dqn --algo.distributional qr",
    "noisynet": "dqn --algo.noisy",
    "sacdiscrete": "sac",
}
"""Name of a method -> algorithm and options that are this method."""


def algorithm_class(algo: str) -> type[AlgorithmConfig]:
    """Return the config class of an algorithm. Raises ValueError for an unknown name or an unusable class."""
    if algo in BUILT_IN:
        return BUILT_IN[algo]
    if ":" not in algo:
        if (same := re.sub(r"[^a-z0-9]", "", algo.lower())) in BUILT_IN:
            raise ValueError(f"unknown algorithm {algo!r}; did you mean {same!r}?")
        if variant := VARIANTS.get(re.sub(r"[^a-z0-9]", "", algo.lower())):
            raise ValueError(f"{algo!r} is not an algorithm but options of one: --algo {variant}")
        known = "".join(f"\n  {name:7} {purpose}" for name, purpose in PURPOSES.items())
        raise ValueError(f"unknown algorithm {algo!r}; name your own as path/file.py:Config. SRL has{known}")
    kind = load_object(algo)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{algo} must be a frozen dataclass, found {type(kind).__name__} {kind!r}")
    if not issubclass(kind, AlgorithmConfig):
        raise ValueError(f"{algo} must inherit from srl.api.algorithm.AlgorithmConfig, found {kind!r}")
    if missing := sorted(kind.__abstractmethods__):
        raise ValueError(f"{algo} is not a complete AlgorithmConfig: it lacks {', '.join(missing)}")
    return kind


def option_names(kind: type[Any]) -> list[str]:
    """Return the names of an algorithm's options: the fields of its config that it uses."""
    unused = getattr(kind, "UNUSED", ())
    return [each.name for each in dataclasses.fields(kind) if each.init and each.name not in unused]


def algorithms_with(option: str) -> list[str]:
    """Return the algorithms that have an option."""
    return [name for name, kind in BUILT_IN.items() if option in option_names(kind)]


def missing_option(name: str, algo: str, *, flags: bool) -> str:
    """Return the message for a name that is no option of the run or the algorithm, but has a meaning elsewhere: in
    another library, or as an option of other algorithms. Empty for other names."""
    option = SAME.get(name, name)
    others = algorithms_with(option) if name not in ADVICE else []
    if not others:
        return advice(name, flags=flags)
    shown, choose = (as_flag(option), "--algo") if flags else (repr(option), "`algo`")
    return f"{title_of(algo)} has no option {shown}; these have: {', '.join(others)}. Choose one of them with {choose}"


def build_algorithm(algo: str, settings: Mapping[str, Any] | None = None) -> AlgorithmConfig:
    """Return the config of an algorithm, with `settings` for its fields. Raises ValueError for an invalid name, class
    or setting."""
    kind = algorithm_class(algo)
    return kind(**settings_by_field(kind, settings or {}, title_of(algo)))


def with_settings(algorithm: AlgorithmConfig, settings: Mapping[str, Any], title: str) -> AlgorithmConfig:
    """Return the config with `settings` applied. Raises ValueError for unknown names."""
    config: Any = algorithm
    changed: AlgorithmConfig = dataclasses.replace(config, **settings_by_field(type(config), settings, title))
    return changed


def settings_by_field(kind: type[Any], settings: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return the settings by field name, with aliases resolved. Where the config has a tuple, a list is a tuple, too,
    and a single value a tuple of one, as on the command line."""
    own = option_names(kind)
    known = {field.name: field.default for field in dataclasses.fields(kind) if field.name in own}
    names: dict[str, str] = {}
    unknown = []
    for written in settings:
        name = written if written in known else SAME.get(written, written)
        if name not in known:
            unknown.append(f"{title} has no option {written!r}{nearest(written, known)}")
        elif name in names:
            raise set_twice(names[name], written)
        names[name] = written
    if unknown:
        raise ValueError("\n".join(unknown))
    values = {name: settings[written] for name, written in names.items()}
    return {name: _as_tuple(value) if isinstance(known[name], tuple) else value for name, value in values.items()}


def _as_tuple(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, (int, float, str)) else value


def name_of_config(algorithm: AlgorithmConfig) -> str:
    """Return the name of the algorithm that this config belongs to."""
    kind = type(algorithm)
    return next((name for name, made in BUILT_IN.items() if made is kind), "") or name_of(kind)


def title_of(algo: str) -> str:
    """Return a short name for display: `ppo`, or the name of the config class without `Config`. For a class that is
    only called `Config`, return the name of its file."""
    place, _, qualname = algo.rpartition(":")
    name = qualname.rpartition("<locals>.")[2]  # for a class that was defined inside a function
    return name.removesuffix("Config").lower() or os.path.basename(place).removesuffix(".py")


def with_absolute_paths(options: TrainOptions) -> TrainOptions:
    """Return the options with absolute file paths, so that a run can be resumed from any directory."""
    run = options.run
    names = {
        "algo": absolute_name(options.algo),
        "graph": absolute_name(run.graph),
        "sinks": tuple(map(absolute_name, run.sinks)),
        "callbacks": tuple(map(_absolute_callback, run.callbacks)),
    }
    return options.replace(**names)


def _absolute_callback(text: str) -> str:
    name, *settings = re.split(r",(?=\w+=)", text)
    return ",".join([absolute_name(name), *settings])


def absolute_name(name: str) -> str:
    """Return `path/file.py:name` with an absolute path, and any other name unchanged."""
    source, separator, attribute = name.rpartition(":")
    return f"{os.path.abspath(source)}{separator}{attribute}" if source.endswith(".py") else name
