"""Options as keywords: names and values from Python, a config file or a saved run."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from srl.base.errors import did_you_mean, nearest
from srl.base.object_names import name_of
from srl.experiments.options.algorithms import (
    ALGORITHMS,
    build_algorithm,
    missing_option,
    name_of_config,
    option_names,
    with_settings,
)
from srl.experiments.options.aliases import SAME, set_twice
from srl.experiments.options.train_options import SECTION_OF, SECTIONS, TrainOptions

ALGO = "algo."
"""Prefix of an algorithm's own options in a set of option names: `algo.gamma`."""
CONFIGS = ("algo", "algorithm", *ALGORITHMS)
"""Keywords that take the algorithm's config, or a dictionary with some of its settings."""
TYPES = {name: hint for kind in SECTIONS.values() for name, hint in typing.get_type_hints(kind).items()}
EXPECTED = {int: "an integer", float: "a number", bool: "true or false", str: "a string", Path: "a path"}


def make_options(**keywords: Any) -> TrainOptions:
    """Return the TrainOptions for keywords, as :func:`srl.train` takes them. `algo` is a name, `algorithm` a config or
    a dictionary with some of its settings; ``ppo={"gamma": 0.99}`` and ``gamma=0.99`` mean the same for PPO."""
    return merged(TrainOptions(), keywords)[0]


def merged(options: TrainOptions, keywords: Mapping[str, Any]) -> tuple[TrainOptions, frozenset[str]]:
    """Return the options changed by keywords, and the names of the options they set: `lanes`, `algo.gamma`. A config
    object sets all of its fields. Raises ValueError for unknown names, an option set twice, and invalid values."""
    chosen, from_config = _with_algorithm(options, keywords)
    hints = typing.get_type_hints(type(chosen.algorithm)) if chosen.algo in ALGORITHMS else {}
    own = option_names(type(chosen.algorithm))
    values: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    written: dict[str, str] = {}
    unknown = []
    for path, value in _paths(keywords):
        name = _meaning(path, own)
        if not name:
            unknown.append(_unknown(path, own, chosen.algo))
            continue
        if name in written:
            raise set_twice(written[name], path)
        written[name] = path
        if name.startswith(ALGO):
            field = name.removeprefix(ALGO)
            hint = hints.get(field, Any)
            settings[field] = name_of(value) if callable(value) and hint is str else checked(field, value, hint)
        else:
            values[name] = name_of(value) if callable(value) else checked(name, value, TYPES[name])
    if unknown:
        raise ValueError("\n".join(unknown))
    if settings:
        values["algorithm"] = with_settings(chosen.algorithm, settings, chosen.algo)
    return chosen.replace(**values), frozenset({*written, *from_config} | ({"algo", "algorithm"} & keywords.keys()))


def _paths(keywords: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each option as it was written, `lanes`, `workers.lanes` or `ppo.gamma`, with its value."""
    for name, value in keywords.items():
        if name in SECTIONS and isinstance(value, SECTIONS[name]):
            value = vars(value)
        if name in (*SECTIONS, *CONFIGS) and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        elif name not in CONFIGS:
            yield name, value


def _meaning(path: str, own: Sequence[str]) -> str:
    """Return the option that a written name refers to, or an empty string. `own` are the algorithm's options."""
    owner, _, last = path.rpartition(".")
    for name in (last, SAME.get(last, last)):
        if name in SECTION_OF and owner in ("", SECTION_OF[name]):
            return name
        if name in own and owner in ("", *CONFIGS):
            return ALGO + name
    return ""


def _unknown(path: str, own: Sequence[str], algo: str) -> str:
    owner, _, last = path.rpartition(".")
    if owner in SECTIONS:
        members = [name for name, section in SECTION_OF.items() if section == owner]
        return f"no option {last!r} in {owner!r}{nearest(last, members)}"
    if owner:
        return missing_option(last, algo, flags=False) or f"{algo} has no option {last!r}{nearest(last, own)}"
    known = [*SECTION_OF, *own, *SECTIONS, "algo", "algorithm"]
    return missing_option(path, algo, flags=False) or f"no option {path!r}{did_you_mean(path, known)}"


def _with_algorithm(options: TrainOptions, keywords: Mapping[str, Any]) -> tuple[TrainOptions, list[str]]:
    """Return the options with the algorithm chosen by the keywords, and the names of options set by a config object."""
    named = keywords.get("algo") if isinstance(keywords.get("algo"), str) else None
    given = {key: keywords[key] for key in CONFIGS if keywords.get(key) is not None and keywords[key] is not named}
    configs: dict[str, Any] = {key: each for key, each in given.items() if not isinstance(each, Mapping)}
    for key, config in configs.items():
        if not dataclasses.is_dataclass(config) or isinstance(config, type):
            raise ValueError(
                f"{key} must be a config or a dictionary with settings, found {config!r}; `algo` takes a name"
            )
    if len(configs) > 1:
        raise set_twice(*list(configs)[:2])
    config = next(iter(configs.values()), None)
    general = configs.get("algo") or configs.get("algorithm")
    name = named or (options.algo if general is None else name_of_config(general))
    if name not in ALGORITHMS and ":" not in name:
        build_algorithm(name)  # raises for the unknown name
    for other in ALGORITHMS:
        if other in given and other != name:
            raise ValueError(
                f"{other}=... sets options of {other}, but the algorithm is {name}; to train with {other}, add "
                f"algo={other!r}"
            )
    if config is not None:
        fields = [ALGO + field.name for field in dataclasses.fields(config) if field.init]
        return options.replace(algo=named or name_of_config(config), algorithm=config), fields
    if name != options.algo:
        settings = {setting: value for inner in given.values() for setting, value in inner.items()}
        options = options.replace(algo=name, algorithm=build_algorithm(name, settings if ":" in name else {}))
    return options, []


def checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value converted to the type of its option. Raises ValueError if that is not possible."""
    if hint in (int, int | None) and isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return msgspec.convert(value, hint)
    except TypeError:  # a type in a user's algorithm that cannot be checked
        return value
    except msgspec.ValidationError:
        raise ValueError(f"{name} must be {expected(hint)}, found {value!r}") from None


def expected(hint: Any) -> str:
    """Describe the values that a type allows, for an error message: `an integer`, `one of tanh, relu`."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return f"one of {', '.join(map(str, members))}"
    if origin in (typing.Union, types.UnionType):
        return " or ".join(expected(member) for member in members if member is not type(None))
    if origin is tuple:
        return f"a list, each item {expected(members[0])}"
    return EXPECTED.get(hint, "a table of names and values")
