"""Environment factories: looking them up by name, checking their options, and seeding their copies."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium

from srl.api.lanes import LanesConfig, named_texts
from srl.base.errors import nearest
from srl.base.object_names import load_part
from srl.base.seeding import derive

Factory = Callable[..., Any]
ATARI = "ale_py"
FAMILIES = ("box2d", "classic_control", "mujoco", "phys2d", "tabular", "toy_text")
KNOWN_ENTRY_POINTS = (*(f"gymnasium.envs.{family}" for family in FAMILIES), f"{ATARI}.", "minigrid.")


@dataclass(frozen=True)
class NamedConfig(LanesConfig):
    """Base class for configs that consist of an environment's name and options."""

    name: str
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def environment_name(self) -> str:
        return self.name

    def named_code(self) -> tuple[str, ...]:
        return (self.environment_name(), *named_texts(self.kwargs))

    def episode_limit(self) -> int | None:
        registered = gymnasium.registry.get(self.name.rpartition(":")[2])
        limit = self.kwargs.get("max_episode_steps", registered and registered.max_episode_steps)
        return limit if isinstance(limit, int) else None


def locate(name: str) -> Factory:
    """Return the function or class called `name`. Raise ValueError if there is none."""
    found = load_part(name)
    if not callable(found):
        raise ValueError(f"{name} is {type(found).__name__}, not a function that makes an environment")
    factory: Factory = found
    return factory


def is_known(name: str) -> bool:
    """Return whether this is the id of an environment of Gymnasium, ALE or MiniGrid: other ids may belong to adapters
    that import what their options name."""
    module, _, last = name.rpartition(":")
    if module == ATARI and importlib.util.find_spec(ATARI) is not None:
        importlib.import_module(ATARI)  # importing it registers its games
    elif module:
        return False
    spec = gymnasium.registry.get(last)
    points = [point for point in (spec.entry_point, spec.vector_entry_point) if point] if spec is not None else []
    return bool(points) and all(str(point).startswith(KNOWN_ENTRY_POINTS) for point in points)


def parameters_of(factory: Factory) -> Mapping[str, inspect.Parameter]:
    """Return a factory's parameters by name, or an empty mapping if it has no signature."""
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}


def check_options(environment: str, factory: Factory, options: Mapping[str, Any], *also: str) -> None:
    """Raise ValueError for an option that is neither a parameter of `factory` nor one of `also`."""
    parameters = parameters_of(factory)
    if not parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = list(dict.fromkeys((*parameters, *also)))
    for option in options:
        if option not in known:
            raise ValueError(f"environment {environment} has no option {option!r}{nearest(option, known)}")


def check_required(environment: str, factory: Factory, options: Mapping[str, Any]) -> None:
    """Raise ValueError for a parameter of `factory` without a default that is not among the options."""
    counts, various = ("num_envs", "num_copies"), (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for name, parameter in parameters_of(factory).items():
        if parameter.default is parameter.empty and parameter.kind not in various and name not in (*options, *counts):
            raise ValueError(
                f"environment {environment} needs a value for {name!r}: --env-arg {name}=VALUE, in Python "
                f"env_args={{{name!r}: VALUE}}; or give the parameter a default"
            )


class CopySeeds(Iterator[int]):
    """Seeds that never repeat: consecutive integers, so that a saved run can continue with the next one."""

    def __init__(self, start: int) -> None:
        self.following = start

    def __next__(self) -> int:
        self.following += 1
        return self.following - 1


def copy_seeds(seed: int) -> CopySeeds:
    """Return seeds for copies, starting at a number derived from `seed` that fits in an int32."""
    return CopySeeds(derive(seed, "environments") >> 33)
