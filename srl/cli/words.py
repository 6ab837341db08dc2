"""The command line's words for the options of the chosen algorithm: `--algo impala --algo.gamma 0.9`."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from srl.base.config import from_data
from srl.experiments.options.algorithms import ALGORITHMS
from srl.experiments.options.train_options import SECTION_OF, TrainOptions
from srl.storage import ROOT, run_directory

PREFIX = "--algo."
CHECK = "check-algo"
"""The command that names its algorithm without `--algo`."""
RESUME = "resume"


def chosen_algorithm(arguments: Sequence[str], default: str = ALGORITHMS[0]) -> str:
    """What `--algo` says, or the default; of `srl check-algo`, the first word that can be an algorithm."""
    chosen = default
    if arguments[:1] == [CHECK]:
        names = (word for word in arguments[1:] if word in ALGORITHMS or (":" in word and "=" not in word))
        return next(names, chosen)
    for i, argument in enumerate(arguments):
        if argument == "--algo" and i + 1 < len(arguments):
            chosen = arguments[i + 1]
        elif argument.startswith("--algo="):
            chosen = argument.partition("=")[2]
    return chosen


def options_before(arguments: Sequence[str]) -> TrainOptions:
    """What options are unless they are given: of `srl resume`, those of the run, with the sizes it chose for itself.
    The defaults where there is none such: the command itself will complain."""
    if arguments[:1] != [RESUME]:
        return TrainOptions()
    from srl.experiments.graph.sizes import with_sizes

    words = list(arguments)
    for word in words:
        if word.startswith("--root="):
            words += word.split("=", 1)
    root = Path(words[words.index("--root") + 1]) if "--root" in words[:-1] else ROOT
    try:
        config = run_directory.find(words[1], root).read_config()
        options = from_data(config["options"])
    except (IndexError, KeyError, ValueError, OSError, TypeError):
        return TrainOptions()
    if not isinstance(options, TrainOptions):
        return TrainOptions()
    return with_sizes(options, config.get("sizes", {}), options)


def spell_out(arguments: Sequence[str], default: str = ALGORITHMS[0]) -> list[str]:
    """`--algo.gamma 0.9` as the parser knows it: `--impala.gamma 0.9`, or `--algo-arg gamma=0.9` for an algorithm of
    the user's own; `default` is the algorithm without `--algo`. ValueError for an option of another algorithm."""
    algorithm = chosen_algorithm(arguments, default)
    for word in arguments:
        owner, dot, rest = word.removeprefix("--").partition(".")
        if word.startswith("--") and dot and owner in ALGORITHMS and owner != algorithm:
            option = rest.partition("=")[0]
            raise ValueError(
                f"--{owner}.{option} is an option of {owner}, but the algorithm is {algorithm}: --algo.{option}"
            )
    if algorithm in ALGORITHMS:
        named = f"--{algorithm}."
        return [named + word.removeprefix(PREFIX) if word.startswith(PREFIX) else word for word in arguments]
    spelled: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word.startswith(PREFIX):
            name, separator, value = word.removeprefix(PREFIX).partition("=")
            spelled += ["--algo-arg", f"{name.replace('-', '_')}={value if separator else _value(words)}"]
        else:
            spelled.append(word)
    return spelled


def _value(words: list[str]) -> str:
    """Take the value of an option off the words behind it: one, several numbers, or none, which means true."""
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


def given_on(words: Sequence[str]) -> frozenset[str]:
    """The names of the options among them: `--ppo.no-normalize-observation` gives `algo.normalize_observation`."""
    names: set[str] = set()
    for word in words:
        if word.startswith("--"):
            owner, dot, name = word[2:].partition("=")[0].replace("-", "_").rpartition(".")
            names.add(("algo" if owner in ALGORITHMS else owner) + dot + name.removeprefix("no_"))
    return frozenset(names)


def given_values(options: TrainOptions, given: Collection[str]) -> dict[str, Any]:
    """The options of these names as keywords for :func:`srl.resume`: ``{"steps": 5, "algorithm": {"gamma": 0.9}}``."""
    values: dict[str, Any] = {}
    for name in sorted(given):
        owner, _, last = name.rpartition(".")
        if owner == "algo":
            values.setdefault("algorithm", {})[last] = getattr(options.algorithm, last)
        elif name == "algo":
            values[name] = options.algo
        elif name in SECTION_OF:
            values[name] = options.value(name)
    return values
