"""The command line's words for the options of the chosen algorithm: `--algo impala --algo.gamma 0.9`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from srl.experiments.options import ALGORITHMS

PREFIX = "--algo."
CHECK = "check-algo"
"""The command that names its algorithm without `--algo`."""


def chosen_algorithm(arguments: Sequence[str]) -> str:
    """What `--algo` says, or the default; of `srl check-algo`, the first word that can be an algorithm."""
    chosen = ALGORITHMS[0]
    if arguments[:1] == [CHECK]:
        names = (word for word in arguments[1:] if word in ALGORITHMS or (":" in word and "=" not in word))
        return next(names, chosen)
    for i, argument in enumerate(arguments):
        if argument == "--algo" and i + 1 < len(arguments):
            chosen = arguments[i + 1]
        elif argument.startswith("--algo="):
            chosen = argument.partition("=")[2]
    return chosen


def spell_out(arguments: Sequence[str]) -> list[str]:
    """`--algo.gamma 0.9` as the parser knows it: `--impala.gamma 0.9`, or `--algo-arg gamma=0.9` for an algorithm of
    the user's own. ValueError for an option of another algorithm."""
    algorithm = chosen_algorithm(arguments)
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
    spelt: list[str] = []
    words = iter(arguments)
    for word in words:
        if word.startswith(PREFIX):
            name, separator, value = word.removeprefix(PREFIX).partition("=")
            value = value if separator else next(words, "")
            spelt += ["--algo-arg", f"{name.replace('-', '_')}={value}"]
        else:
            spelt.append(word)
    return spelt


def given_on(words: Sequence[str]) -> frozenset[str]:
    """The names of the options among them: `--ppo.no-normalize-observation` gives `ppo.normalize_observation`."""
    names: set[str] = set()
    for word in words:
        if word.startswith("--"):
            owner, dot, name = word[2:].partition("=")[0].replace("-", "_").rpartition(".")
            names.add(owner + dot + name.removeprefix("no_"))
    return frozenset(names)


def parse_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Options of an environment or algorithm, each written NAME=VALUE; values are JSON where they can be."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise ValueError(f"an option of an environment or algorithm is written NAME=VALUE; found {pair!r}")
        try:
            parsed[name] = json.loads(text)
        except json.JSONDecodeError:
            parsed[name] = text
    return parsed
