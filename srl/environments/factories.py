"""Functions and classes that make environments: how they are found by name, and which options they take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from srl.base.errors import nearest
from srl.base.object_names import load_part

Factory = Callable[..., Any]


def locate(name: str) -> Factory:
    """Return the function or class called `name`; ValueError if there is none."""
    found = load_part(name)
    if not callable(found):
        raise ValueError(f"{name} is {type(found).__name__}, not a function that makes an environment")
    factory: Factory = found
    return factory


def parameters_of(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a factory by name; none if it has no signature."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def check_options(environment: str, factory: Factory, options: Mapping[str, Any], *also: str) -> None:
    """Raise ValueError for options that `factory` does not take; `also` are used before they reach it."""
    parameters = parameters_of(factory)
    if not parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = list(dict.fromkeys((*parameters, *also)))
    for option in options:
        if option not in known:
            raise ValueError(f"environment {environment} has no option {option!r}{nearest(option, known)}")
