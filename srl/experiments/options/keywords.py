"""Options as keywords: the names and values that Python, a config file or a saved run gives."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from srl.base.errors import nearest
from srl.base.object_names import name_of
from srl.experiments.options.algorithms import ALGORITHMS, build_algorithm, name_of_config, with_settings
from srl.experiments.options.aliases import SAME, advice
from srl.experiments.options.train_options import SECTION_OF, SECTIONS, TrainOptions

ALGO = "algo."
"""Prefix of the names of an algorithm's own options among those that were given: `algo.gamma`."""


def make_options(**keywords: Any) -> TrainOptions:
    """Return the TrainOptions for keywords, as :func:`srl.train` takes them.

    Options of sections come without their section. `algo` is a name, `algorithm` a config or a dictionary with
    settings of the chosen one; ``ppo={"gamma": 0.99}`` and ``gamma=0.99`` mean the same for `algo="ppo"`. `graph` may
    be a function.
    """
    return merged(TrainOptions(), keywords)[0]


def merged(options: TrainOptions, keywords: Mapping[str, Any]) -> tuple[TrainOptions, frozenset[str]]:
    """Return the options changed by keywords, and the names that were given: `lanes`, `algo.gamma`. A whole config
    gives all of its fields. Raises ValueError for unknown names and invalid values."""
    flat = _without_sections(keywords)
    chosen, settings = _algorithm(options, flat)
    own = {field.name for field in dataclasses.fields(typing.cast("Any", chosen.algorithm)) if field.init}
    values: dict[str, Any] = {}
    for written, value in flat.items():
        name = SAME.get(written, written) if written not in own else written
        if name in SECTION_OF:
            values[name] = name_of(value) if callable(value) else _checked(name, value, option_types()[name])
        elif name in own:
            settings[name] = value
        else:
            known = [*SECTION_OF, *own, *SECTIONS, "algo", "algorithm"]
            raise ValueError(advice(written, flags=False) or f"no option {written!r}{nearest(written, known)}")
    given = {*values, *(ALGO + name for name in settings)} | ({"algo", "algorithm"} & keywords.keys())
    if chosen.algo in ALGORITHMS:
        hints = typing.get_type_hints(type(chosen.algorithm))
        settings = {name: _checked(name, value, hints.get(name, Any)) for name, value in settings.items()}
    if settings:
        values["algorithm"] = with_settings(chosen.algorithm, settings, chosen.algo)
    return chosen.replace(**values), frozenset(given)


def _without_sections(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Replace sections by their options: `workers={"lanes": 4}`, the form of a TOML table, becomes `lanes=4`."""
    flat: dict[str, Any] = {}
    for name, value in keywords.items():
        if name in SECTIONS and isinstance(value, Mapping):
            for inner in value:
                if SECTION_OF.get(inner) != name:
                    known = [each for each, section in SECTION_OF.items() if section == name]
                    raise ValueError(f"no option {inner!r} in {name!r}{nearest(inner, known)}")
            flat.update(value)
        elif name in SECTIONS and isinstance(value, SECTIONS[name]):
            flat.update(vars(value))
        else:
            flat[name] = value
    return flat


def _algorithm(options: TrainOptions, flat: dict[str, Any]) -> tuple[TrainOptions, dict[str, Any]]:
    """Return the options with the algorithm that the keywords choose, and the settings for it. Removes those
    keywords."""
    algo, algorithm = flat.pop("algo", None), flat.pop("algorithm", None)
    if algo is not None and not isinstance(algo, str):
        algo, algorithm = None, algo
    configs = [algorithm] if algorithm is not None else []
    name = algo or (options.algo if algorithm is None or isinstance(algorithm, Mapping) else name_of_config(algorithm))
    for other in ALGORITHMS:
        if other in flat:
            if other != name:
                if name not in ALGORITHMS and ":" not in name:
                    build_algorithm(name)  # raises for the unknown name
                raise ValueError(
                    f"{other}=... sets options of {other}, but the algorithm is {name}; to train with {other}, add "
                    f"algo={other!r}"
                )
            configs.append(flat.pop(other))
    settings: dict[str, Any] = {}
    for config in configs:
        if isinstance(config, Mapping):
            settings.update(config)
        elif dataclasses.is_dataclass(config) and not isinstance(config, type):
            options = options.replace(algo=algo or name_of_config(typing.cast("Any", config)), algorithm=config)
            settings.update({each.name: getattr(config, each.name) for each in dataclasses.fields(config) if each.init})
        else:
            raise ValueError(f"an algorithm is given by name, as a config or as a dictionary; found {config!r}")
    if name != options.algo:
        required = settings if name not in ALGORITHMS else {}
        options = options.replace(algo=name, algorithm=build_algorithm(name, required))
    return options, settings


@cache
def option_types() -> dict[str, Any]:
    """Return the type of each option."""
    return {name: hint for kind in SECTIONS.values() for name, hint in typing.get_type_hints(kind).items()}


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value converted to the type of its option. Raises ValueError if that is not possible."""
    if hint in (int, int | None) and isinstance(value, float) and value.is_integer():
        return int(value)
    try:
        return msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}: {str(error)[0].lower()}{str(error)[1:]}; found {value!r}") from None


def parse_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse options of an environment or algorithm, each written NAME=VALUE. Values that are valid JSON are parsed."""
    parsed: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator:
            raise ValueError(f"an option of an environment or algorithm is written NAME=VALUE; found {pair!r}")
        parsed[name] = json_or_text(text)
    return parsed


def json_or_text(text: str) -> Any:
    """Return the value of a text that is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
