"""What makes environments: a function or class by its name, and the options that it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from srl.base.errors import nearest
from srl.base.object_names import load_part

Factory = Callable[..., Any]


def locate(name: str) -> Factory:
    """The function or class called `name`; ValueError where it cannot be found."""
    found = load_part(name)
    if not callable(found):
        raise ValueError(f"{name} is {type(found).__name__}, not a function that makes an environment")
    factory: Factory = found
    return factory


def parameters_of(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """A factory's parameters by name; none where they cannot be known."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def check_options(environment: str, factory: Factory, options: Mapping[str, Any], *also: str) -> None:
    """Complain about options that `factory` does not take; `also` are taken before they reach it."""
    parameters = parameters_of(factory)
    if not parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = list(dict.fromkeys((*parameters, *also)))
    for option in options:
        if option not in known:
            raise ValueError(f"environment {environment} has no option {option!r}{nearest(option, known)}")
