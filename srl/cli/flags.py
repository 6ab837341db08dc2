"""Words of the command line as options of a run: short names, names from other libraries, options of an algorithm."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from srl.base.config import from_data
from srl.cli.parser import FlagNames, Option, options_of, parse_words
from srl.experiments.options.algorithms import ALGORITHMS, build_algorithm
from srl.experiments.options.aliases import SAME, advice, as_flag, set_twice
from srl.experiments.options.config_file import read_config
from srl.experiments.options.keywords import ALGO, parse_pairs
from srl.experiments.options.train_options import SECTIONS, TrainOptions
from srl.storage import ROOT, run_directory

CHECK, RESUME = "check-algo", "resume"
METAVARS = {
    "algo": "NAME", "recipe": "NAME", "sinks": "NAME ...", "graph": "FUNCTION", "bind": "HOST[:PORT]",
    "address": "HOST:PORT", "partition": "NAME", "secret_file": "FILE", "slurm_options": "NAME=VALUE ...",
    "resources": "GROUP=... ...", "roles": "PATTERN=POLICY ...", "algo.device": "DEVICE", "algo.network": "FUNCTION",
    "until_return": "RETURN", "hosts_timeout": "SECONDS", "hang_timeout": "SECONDS", "headless": "SECONDS",
    "checkpoint_seconds": "SECONDS",
}  # fmt: skip
"""Words for values in the help, where the type alone says little."""


def parse_command(kind: type[Any], name: str, words: Sequence[str]) -> Any:
    """Return the command of this class with the values that the words give."""
    options = options_of(kind)
    own = {option.name for option in options}
    if not takes_run_options(kind):
        return kind(**parse_words(options, words))
    algo = chosen_algorithm(name, words)
    if ":" not in algo:
        build_algorithm(algo)  # raises for an unknown name, before its options count as unknown
    more = run_options(TrainOptions(algo=algo, algorithm=_config_of(algo)), only_algorithm=name == CHECK)
    options += more
    values = parse_words(options, words if algo in ALGORITHMS else _as_pairs(words), RunFlagNames(options, algo))
    keywords: dict[str, Any] = {}
    for option, value in values.items():
        if option.startswith(ALGO):
            keywords.setdefault("algorithm", {})[option.removeprefix(ALGO)] = value
        elif option not in own:
            keywords[option] = value
    return kind(**{option: value for option, value in values.items() if option in own}, keywords=keywords)


def with_pairs(keywords: Mapping[str, Any], env_arg: tuple[str, ...], algo_arg: tuple[str, ...]) -> dict[str, Any]:
    """Keywords for :func:`srl.train` from flags, and from options of the environment and the algorithm as
    NAME=VALUE."""
    complete = dict(keywords)
    if env_arg:
        complete["env_args"] = parse_pairs(env_arg)
    if algo_arg:
        settings, pairs = complete.get("algorithm", {}), parse_pairs(algo_arg)
        for name in settings.keys() & pairs.keys():
            raise set_twice(as_flag(ALGO + name), f"--algo-arg {name}")
        complete["algorithm"] = {**settings, **pairs}
    return complete


def takes_run_options(kind: type[Any]) -> bool:
    """Whether a command has the options of a run besides its own."""
    return "keywords" in {field.name for field in dataclasses.fields(kind)}


def run_options(options: TrainOptions, only_algorithm: bool = False) -> list[Option]:
    """The options of a run and of its algorithm, which it has if it is one of SRL's; defaults are the values here."""
    found = [] if only_algorithm else [_algo_option(options)]
    for section, kind in SECTIONS.items() if not only_algorithm else ():
        found += [option for option in options_of(kind, getattr(options, section)) if option.name != "env_args"]
    return [*_with_metavars(found), *(algorithm_options(options) if options.algo in ALGORITHMS else ())]


def algorithm_options(options: TrainOptions) -> list[Option]:
    """Return the fields of the algorithm's config as options."""
    return _with_metavars(options_of(type(options.algorithm), options.algorithm, ALGO))


def _with_metavars(options: Sequence[Option]) -> list[Option]:
    return [dataclasses.replace(option, metavar=METAVARS.get(option.name, option.metavar)) for option in options]


def _algo_option(options: TrainOptions) -> Option:
    (option,) = (option for option in options_of(TrainOptions, options) if option.name == "algo")
    names = ", ".join(f"`{name}`" for name in ALGORITHMS)
    return dataclasses.replace(option, text=f"Algorithm: {names}, or your own config class as `path/file.py:Config`.")


def _config_of(algo: str) -> Any:
    """The config whose fields are options; that of a user's class is built later, when the command runs."""
    return build_algorithm(algo) if algo in ALGORITHMS else None


def chosen_algorithm(command: str, words: Sequence[str]) -> str:
    """The algorithm that `--algo` names, or the file of `--config`, or the run that is resumed."""
    if command == CHECK:
        names = (word for word in words if word in ALGORITHMS or (":" in word and "=" not in word))
        return next(names, ALGORITHMS[0])
    if written := _value_of("--algo", words):
        return written
    if config := _value_of("--config", words):
        return str(read_config(config).get("algo", ALGORITHMS[0]))
    return options_before(command, words).algo


def options_before(command: str, words: Sequence[str]) -> TrainOptions:
    """The defaults of a command's options. Those of `srl resume` are the options of the run, with the sizes that it
    chose; if there is no such run, the command itself reports it."""
    if command != RESUME:
        return TrainOptions()
    from srl.experiments.graph.sizes import with_sizes

    try:
        name = next(word for word in words if not word.startswith("-"))
        config = run_directory.find(name, Path(_value_of("--root", words) or ROOT)).read_config()
        options = from_data(config["options"])
    except (StopIteration, KeyError, ValueError, OSError, TypeError):
        return TrainOptions()
    return (
        with_sizes(options, config.get("sizes", {}), options) if isinstance(options, TrainOptions) else TrainOptions()
    )


def _value_of(flag: str, words: Sequence[str]) -> str:
    """Return the last value of a flag among the words."""
    found = ""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        found = after if word == flag else word.partition("=")[2] if word.startswith(f"{flag}=") else found
    return found


class RunFlagNames(FlagNames):
    """Names of the flags of a run: also those of the algorithm's options, and those of other libraries."""

    def __init__(self, options: Sequence[Option], algo: str) -> None:
        super().__init__(options)
        self._algo = algo

    def meaning(self, written: str) -> str:
        owner, dot, last = written.rpartition(".")
        if dot and owner + dot not in (ALGO, f"{self._algo}."):
            return ""
        for name in (last, SAME.get(last, last)):
            for option in (ALGO + name,) if dot else (name, ALGO + name):
                if option in self.known:
                    return option
        return ""

    def explain(self, written: str) -> str:
        owner, _, last = written.rpartition(".")
        if owner in ALGORITHMS and owner != self._algo:
            option = last.replace("_", "-")
            return (
                f"--{owner}.{option} is an option of {owner}, but the algorithm is {self._algo}; to set it for "
                f"{self._algo}, use --algo.{option}"
            )
        own = "" if self._algo in ALGORITHMS else "; options of your algorithm are written --algo.NAME VALUE"
        return (advice(last, flags=True) or super().explain(written)) + own


def _as_pairs(words: Sequence[str]) -> list[str]:
    """`--algo.gamma 0.9`, for an algorithm whose types are not known, as `--algo-arg gamma=0.9`."""
    spelled: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word.startswith(f"--{ALGO}"):
            name, separator, value = word.removeprefix(f"--{ALGO}").partition("=")
            spelled += ["--algo-arg", f"{name.replace('-', '_')}={value if separator else _value(left)}"]
        else:
            spelled.append(word)
    return spelled


def _value(words: list[str]) -> str:
    """Take the value of an option off the words after it: one, several numbers, or none, which means true."""
    taken: list[str] = []
    while words and not words[0].startswith("--") and (not taken or (_is_number(taken[-1]) and _is_number(words[0]))):
        taken.append(words.pop(0))
    if len(taken) > 1:
        return f"[{','.join(taken)}]"
    return taken[0] if taken else "true"


def _is_number(word: str) -> bool:
    try:
        return isinstance(json.loads(word), (int, float))
    except json.JSONDecodeError:
        return False
