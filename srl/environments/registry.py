"""Adapter selection by environment name."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import load_env_creator

from srl.api.lanes import GoalFunctions, Lanes, LanesConfig
from srl.base.object_names import name_of
from srl.environments.adapters.agent_ids import with_agent_ids
from srl.environments.adapters.goals import goal_functions
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.adapters.vector import VectorConfig
from srl.environments.factories import NamedConfig, check_options, check_required, locate, parameters_of

# For each family, keyed by part of its entry point: the package it needs and the command that installs it.
EXTRAS = {
    "ale_py": ("ale_py", 'pip install "srl-rl[atari]"'),
    "envs.mujoco": ("mujoco", 'pip install "srl-rl[mujoco]"'),
    "envs.box2d": ("Box2D", 'pip install "srl-rl[box2d]"'),
    "envs.phys2d": ("jax", 'pip install "gymnasium[jax]"'),
    "envs.tabular": ("jax", 'pip install "gymnasium[jax]"'),
    "minigrid": ("minigrid", 'pip install "srl-rl[minigrid]"'),
}
REGISTERED_BY = {
    r"(Fetch|HandReach|HandManipulate|AdroitHand|PointMaze|AntMaze|FrankaKitchen)": "gymnasium_robotics",
    r"(highway|merge|roundabout|parking|intersection|racetrack)-": "highway_env",
    r"MiniWorld-": "miniworld",
    r"SuperMarioBros": "gym_super_mario_bros",
}
"""Ids that begin so -> module of the package that registers them."""
SEARCHED = ("ale_py", "envpool", "minigrid", "pettingzoo", "srl")
"""Packages whose environments are found without naming a module."""
HIDE_AND_SEEK = "hide-and-seek/"
MAKE_OPTIONS = ("max_episode_steps", "render_mode")
"""Options of `gymnasium.make` itself, which every environment accepts."""


@dataclass(frozen=True)
class LanesFunctionConfig(NamedConfig):
    """The name of a function that takes `num_copies` and returns lanes."""

    agent_ids: bool = False
    """Add each agent's number to its observation."""

    def build(self, num_copies: int) -> Lanes:
        lanes = locate(self.name)(num_copies=num_copies, **self.kwargs)
        if not isinstance(lanes, Lanes):
            raise TypeError(
                f"{self.name} takes num_copies, so it must return lanes, but returned {type(lanes).__name__}; derive "
                "that class from srl.api.lanes.Lanes"
            )
        return with_agent_ids(lanes) if self.agent_ids else lanes

    def goal_functions(self) -> GoalFunctions:
        return goal_functions(self.name, lambda: self.build(1))

    def with_agent_ids(self) -> LanesFunctionConfig:
        return replace(self, agent_ids=True)


def lanes_config(environment: str | Callable[..., Any], **kwargs: Any) -> LanesConfig:
    """Return the config that builds an environment's lanes; `kwargs` are options of the environment.

    `environment` is one of

    - a Gymnasium id, with the module that registers it if needed: ``CartPole-v1``, ``ale_py:ALE/Pong-v5``;
    - a function or class, or its name, ``package.module:function`` or ``path/to/file.py:function``. It returns a
      `gymnasium.Env`; or takes `num_envs` and returns a `gymnasium.vector.VectorEnv`; or takes `num_copies` and
      returns :class:`srl.api.lanes.Lanes`;
    - ``envpool:Pong-v5`` or ``pettingzoo:pettingzoo.butterfly.pistonball_v6``;
    - ``game:tic-tac-toe``, ``game:connect-four``, ``game:openspiel:NAME``, ``game:pettingzoo:classic.NAME`` or
      ``game:package.module:Config``, a game with a simulator;
    - ``hide-and-seek/quadrant``, ``hide-and-seek/full`` and the other games of
      :mod:`srl.environments.hide_and_seek.variants`.

    Raise ValueError, suggesting the nearest valid name, if there is no such environment or option.
    """
    if not isinstance(environment, str):
        if not callable(environment):
            raise ValueError(_not_an_instance(environment))
        return _of_function(name_of(environment), kwargs)
    family, _, rest = environment.partition(":")
    if family == "envpool" and rest:
        from srl.environments.adapters import envpool

        envpool.check_installed(rest)
        return envpool.EnvPoolConfig(rest, kwargs)
    if family == "pettingzoo" and rest:
        from srl.environments.pettingzoo.config import PettingZooConfig

        return PettingZooConfig(rest, kwargs)
    if family == "game" and rest:
        from srl.environments.games.config import game_config

        return game_config(rest, kwargs)
    if environment.startswith(HIDE_AND_SEEK):
        from srl.environments.hide_and_seek.lanes import HideAndSeekConfig
        from srl.environments.hide_and_seek.variants import check_installed, game_options

        variant = environment.removeprefix(HIDE_AND_SEEK)
        game_options(variant, kwargs)
        check_installed(variant)
        return HideAndSeekConfig(variant, kwargs)
    if _names_function(environment):
        return _of_function(environment, kwargs)
    return _of_id(environment, kwargs)


def _not_an_instance(environment: Any) -> str:
    """Return the message for an environment in place of the class or function that makes it: every actor makes its own
    copies."""
    if isinstance(environment, (list, tuple)):
        return "pass one class or function; every actor makes copies with it, `lanes` of them in each lane group"
    kind = type(environment)
    spec = getattr(environment, "spec", None)
    call = repr(spec.id) if spec is not None else kind.__name__
    known = {name: getattr(environment, name, None) for name in parameters_of(kind)} if spec is None else {}
    plain = {name: value for name, value in known.items() if isinstance(value, (int, float, str))}
    call += f", env_args={plain}" if plain else ""
    return f"pass the class or a function, not an instance of {kind.__name__}: srl.train({call})"


def _names_function(name: str) -> bool:
    """Return whether the name is that of a function (`module:make`) rather than an id (`module:MyEnv-v0`)."""
    place, _, last = name.rpartition(":")
    if not place or not re.fullmatch(r"[A-Za-z_][\w.]*", last):
        return False
    return place.endswith(".py") or last not in gymnasium.registry


def _of_function(name: str, kwargs: Mapping[str, Any]) -> LanesConfig:
    place, _, qualname = name.rpartition(":")
    if place.endswith(".py"):
        name = f"{Path(place).expanduser().resolve()}:{qualname}"  # Workers may have another working directory.
    factory = locate(name)
    parameters = parameters_of(factory)
    check_options(name, factory, kwargs)
    check_required(name, factory, kwargs)
    if "num_copies" in parameters:
        return LanesFunctionConfig(name, kwargs)
    if "num_envs" in parameters:
        return VectorConfig(name, kwargs, located=True)
    return GymnasiumConfig(name, kwargs, located=True)


def _of_id(name: str, kwargs: Mapping[str, Any]) -> LanesConfig:
    from srl.environments.adapters import atari, minigrid
    from srl.environments.mujoco import lanes as mujoco

    module, _, last = name.rpartition(":")
    if module:
        _import_registering(module)
    minigrid.register(last)
    if (game := atari.config_of(last, kwargs)) is not None:
        return game
    spec = gymnasium.registry.get(last) or gymnasium.registry.get(_latest(last))
    if spec is None:
        raise ValueError(_unknown(name))
    _check_extra(name, str(spec.vector_entry_point or spec.entry_point))
    if (native := mujoco.config_of(spec.id, kwargs)) is not None:
        return native
    if str(spec.entry_point).startswith(minigrid.ENTRY_POINTS):
        return GymnasiumConfig(minigrid.FACTORY, {"id": spec.id, **kwargs}, located=True)
    is_atari = spec.entry_point == atari.ENTRY_POINT  # with RAM observations: the vector environment only has images
    vector = spec.vector_entry_point is not None and not spec.additional_wrappers and not is_atari
    entry_point = spec.vector_entry_point if vector else spec.entry_point
    if kwargs:
        creator = entry_point if callable(entry_point) else load_env_creator(entry_point)
        check_options(name, creator, kwargs, *MAKE_OPTIONS)
    module = "ale_py" if is_atari else module
    if not module and not str(entry_point).startswith("gymnasium."):
        return _of_registered(spec, entry_point, vector, kwargs)
    full = f"{module}:{spec.id}" if module else spec.id
    return VectorConfig(full, kwargs) if vector else GymnasiumConfig(full, kwargs)


def _of_registered(spec: Any, entry_point: Any, vector: bool, kwargs: Mapping[str, Any]) -> LanesConfig:
    """Return a config that names the entry point: the id is registered in this process but not in workers."""
    if spec.additional_wrappers:
        raise ValueError(
            f"{spec.id} is registered with additional wrappers; name the module that registers it: module:{spec.id}"
        )
    name = entry_point if isinstance(entry_point, str) else name_of(entry_point)
    options = {**spec.kwargs, **kwargs}
    limit = options.pop("max_episode_steps", spec.max_episode_steps)
    if vector:
        return VectorConfig(name, options if limit is None else {**options, "max_episode_steps": limit}, located=True)
    return GymnasiumConfig(name, options, located=True, max_episode_steps=limit)


def _latest(name: str) -> str:
    """Return the newest versioned id for a name without a version, or the name itself if there is none."""
    versions = [spec for spec in gymnasium.registry.values() if spec.id == f"{name}-v{spec.version}"]
    return max(versions, key=lambda spec: spec.version).id if versions else name


def _import_registering(module: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        _, command = EXTRAS.get(package, ("", f"pip install {package}"))
        raise ValueError(f"no module {error.name!r}, which registers the environment; try {command}") from error


def _check_extra(name: str, entry_point: str) -> None:
    for part, (package, command) in EXTRAS.items():
        if part in entry_point and importlib.util.find_spec(package) is None:
            raise ValueError(f"environment {name} needs the package {package}, which is not installed; {command}")


def _unknown(name: str) -> str:
    if name.endswith(".py"):
        return f"{name!r} is a file; name the function in it that makes the environment: {name}:make"
    known = sorted(gymnasium.registry, key=lambda key: (-key.count("/"), -len(key), key))  # plain names have priority
    simple = {re.sub(r"-v\d+$", "", key).rpartition("/")[2].lower(): key for key in known}
    asked = re.sub(r"-v\d+$", "", name).rpartition("/")[2].lower()
    near = [simple[match] for match in get_close_matches(asked, simple, 3, cutoff=0.6)]
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    if ":" not in name and (modules := _registering()):
        modules = [f"{module}:{name}" for module in modules]
        hint += f" If an installed package registers it, name its module, too: {' or '.join(modules)}."
    package = next((package for begin, package in REGISTERED_BY.items() if re.match(begin, name)), "")
    if package and importlib.util.find_spec(package) is None:
        hint = f". `pip install {package.replace('_', '-')}` has it as {package}:{name}."
    own = "Name your own as package.module:function or path/to/file.py:function"
    return f"no environment {name!r}{hint} {own}, or install the package that registers it"


def _registering() -> list[str]:
    """Return the modules of installed packages that depend on Gymnasium and may register ids."""
    from importlib import metadata

    found = set()
    for module, distributions in metadata.packages_distributions().items():
        for distribution in distributions:
            needs = metadata.requires(distribution) or ()
            if any(re.match(r"gymnasium\b(?!-)", need) and "extra ==" not in need for need in needs):
                found.add(module)
    return sorted(module for module in found if module.isidentifier() and module not in SEARCHED)
