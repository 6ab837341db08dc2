"""Flags of training commands: options of the run and its algorithm, and names from other libraries."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srl.cli.parser import AlgorithmCommand, Option, options_of, parse_words
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class, option_names
from srl.experiments.options.aliases import as_flag, set_twice
from srl.experiments.options.config_file import read_config
from srl.experiments.options.keywords import ALGO
from srl.experiments.options.setting_texts import parse_pairs
from srl.experiments.options.train_options import SECTIONS, TrainOptions
from srl.storage import ROOT, run_directory

TRUST = "--trust-code"
CHECK, RESUME = "check-algo", "resume"
METAVARS = {
    "algo": "NAME", "recipe": "NAME", "sinks": "NAME ...", "graph": "FUNCTION", "bind": "HOST[:PORT]",
    "address": "HOST:PORT", "partition": "NAME", "join_file": "FILE", "slurm_options": "NAME=VALUE ...",
    "resources": "GROUP=... ...", "roles": "PATTERN=POLICY ...", "algo.device": "DEVICE", "algo.network": "FUNCTION",
    "until_return": "RETURN", "until": "GOAL ...", "log_info": "NAME ...", "best": "NAME", "callbacks": "NAME",
    "hosts_timeout": "SECONDS", "hang_timeout": "SECONDS", "headless": "SECONDS",
    "checkpoint_seconds": "SECONDS", "data": "DATASET ...", "algo.expert": "EXPERT",
}  # fmt: skip
"""Placeholders for values in the help, where the type alone says little."""


def parse_command(kind: type[Any], name: str, words: Sequence[str]) -> Any:
    """Parse the words into a command of this class."""
    options = options_of(kind)
    own = {option.name for option in options}
    if not issubclass(kind, AlgorithmCommand):
        return kind(**parse_words(options, words))
    algo = chosen_algorithm(name, words)
    options += run_options(TrainOptions(), algo, only_algorithm=name == CHECK)
    values = parse_words(options, words, algo)
    keywords: dict[str, Any] = {}
    for option, value in values.items():
        if option.startswith(ALGO):
            keywords.setdefault("algorithm", {})[option.removeprefix(ALGO)] = value
        elif option not in own:
            keywords[option] = value
    return kind(**{option: value for option, value in values.items() if option in own}, keywords=keywords)


def with_pairs(keywords: Mapping[str, Any], env_arg: tuple[str, ...], algo_arg: tuple[str, ...]) -> dict[str, Any]:
    """Return `keywords` for :func:`srl.train`, extended by NAME=VALUE options of the environment and the algorithm."""
    complete = dict(keywords)
    if env_arg:
        complete["env_args"] = parse_pairs(env_arg)
    if algo_arg:
        settings, pairs = complete.get("algorithm", {}), parse_pairs(algo_arg)
        for name in settings.keys() & pairs.keys():
            raise set_twice(as_flag(ALGO + name), f"--algo-arg {name}")
        complete["algorithm"] = {**settings, **pairs}
    return complete


def run_options(options: TrainOptions, algo: str, only_algorithm: bool = False) -> list[Option]:
    """Return the options of a run and its algorithm, with the values of `options` as defaults."""
    own = algorithm_options(algo, options)
    if only_algorithm:
        return own
    names = ", ".join(f"`{name}`" for name in ALGORITHMS)
    found = [Option("algo", str, algo, f"Algorithm: {names}, or your own config class as `path/file.py:Config`.")]
    for section, kind in SECTIONS.items():
        found += [option for option in options_of(kind, getattr(options, section)) if option.name != "env_args"]
    return [*_with_metavars(found), *own]


def algorithm_options(algo: str, options: TrainOptions) -> list[Option]:
    """Return the fields of the algorithm's config as options."""
    kind = algorithm_class(algo)
    found = options_of(kind, options.algorithm if type(options.algorithm) is kind else None, ALGO)
    return _with_metavars([option for option in found if option.name.removeprefix(ALGO) in option_names(kind)])


def _with_metavars(options: Sequence[Option]) -> list[Option]:
    return [dataclasses.replace(option, metavar=METAVARS.get(option.name, option.metavar)) for option in options]


def chosen_algorithm(command: str, words: Sequence[str]) -> str:
    """Return the algorithm set by `--algo`, by the `--config` file, or by the run to resume."""
    if command == CHECK:
        names = (word for word in words if word in ALGORITHMS or (":" in word and "=" not in word))
        return next(names, ALGORITHMS[0])
    if written := _value_of("--algo", words):
        return written
    if config := _value_of("--config", words):
        return str(read_config(config, TRUST in words)[0].get("algo", ALGORITHMS[0]))
    return options_before(command, words).algo


def options_before(command: str, words: Sequence[str]) -> TrainOptions:
    """Return the defaults of a command's options. For `srl resume`, they are the run's options with the sizes that it
    chose; if there is no such run, the command itself reports that."""
    if command != RESUME:
        return TrainOptions()
    from srl.experiments.graph.sizes import with_sizes

    try:
        name = next(word for word in words if not word.startswith("-"))
        run = run_directory.find(name, Path(_value_of("--root", words) or ROOT))
        config = run.load_config(TRUST in words)
        return with_sizes(config["options"], config["sizes"], config["options"])
    except (StopIteration, KeyError, ValueError, OSError, TypeError, AttributeError):
        return TrainOptions()


def _value_of(flag: str, words: Sequence[str]) -> str:
    """Return the last value of a flag in the words, or an empty string."""
    found = ""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        found = after if word == flag else word.partition("=")[2] if word.startswith(f"{flag}=") else found
    return found
