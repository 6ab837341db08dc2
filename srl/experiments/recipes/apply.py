"""Which recipe an environment gets, and what it sets: everything that the user did not give."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from srl.api.lanes import LanesConfig, LaneSpec
from srl.api.spaces import Box
from srl.experiments.graph.standard import num_cores
from srl.experiments.options.roles import role_patterns
from srl.experiments.options.train_options import ALGORITHMS, TrainOptions
from srl.experiments.recipes.recipe import AUTO, NONE, Recipe, Setting
from srl.experiments.recipes.table import RECIPES
from srl.networks.spaces.images import has_image
from srl.workers.roles import assign_teams

SIZES = ("lanes", "horizon", "batch")
ENV = "env"
PPO_FAMILY = ("ppo", "ippo", "mappo")
"""Algorithms that learn by PPO's update, and take its sizes and rates."""


def given_in(options: Mapping[str, Any]) -> frozenset[str]:
    """The names of options that came as keywords: `lanes`, `ppo.gamma`. A whole config gives all of its fields."""
    names: set[str] = set()
    for name, value in options.items():
        inner: Iterable[str] = ()
        if isinstance(value, Mapping):
            inner = value
        elif dataclasses.is_dataclass(value):
            inner = (field.name for field in dataclasses.fields(value))
        names |= {name, *(f"{name}.{key}" for key in inner)}
    return frozenset(names)


def recipe_for(environment: LanesConfig, spec: LaneSpec, wanted: str = AUTO) -> Recipe | None:
    """The recipe that is wanted by its name, or the first that fits; None for `none`."""
    if wanted == NONE:
        return None
    by_name = {recipe.name: recipe for recipe in RECIPES}
    if wanted != AUTO:
        return by_name[wanted]
    known_as = _known_as(environment)
    for recipe in RECIPES:
        if any(fnmatchcase(name, pattern) for name in known_as for pattern in recipe.patterns):
            return recipe
    continuous = all(isinstance(team.action, Box) for team in spec.teams)
    if any(has_image(team.observation) for team in spec.teams):
        return by_name["continuous-image" if continuous else "image"]
    return by_name["continuous" if continuous else "default"]


def _known_as(environment: LanesConfig) -> list[str]:
    """An environment's id and the entry points that Gymnasium knows for it; EnvPool's ids are the same or ALE's."""
    import gymnasium

    name = environment.environment_name()
    last = name.rpartition(":")[2]
    specs = [gymnasium.registry[key] for key in (last, f"ALE/{last}") if key in gymnasium.registry]
    entry_points = [str(point) for spec in specs for point in (spec.entry_point, spec.vector_entry_point) if point]
    return [last, name, *entry_points]


def apply(
    recipe: Recipe | None, options: TrainOptions, given: Collection[str], spec: LaneSpec | None = None
) -> TrainOptions:
    """The options with the recipe's values where nothing was given; `spec` is that of one copy of the environment."""
    if recipe is None:
        return dataclasses.replace(options, recipe=NONE)
    own: dict[str, Any] = {}
    learning: dict[str, Any] = {}
    for setting in _settings(recipe, options):
        owner, _, name = setting.option.rpartition(".")
        if owner != ENV and f"{options.algo}.{name}" not in given and name not in given:
            (learning if owner else own)[name] = setting.value
    sharing = _sharing(spec, options) if spec else [1]
    if sum(sharing) > 1 and not recipe.patterns:
        own.pop("batch", None)  # of one agent; several policies may share these: each takes what the actors fill
    if learning:
        own[options.algo] = dataclasses.replace(getattr(options, options.algo), **learning)
    chosen = dataclasses.replace(options, recipe=recipe.name, **own)
    scale = options.scale or (min(1.0, num_cores() / recipe.cores) if recipe.cores else 1.0)
    if "batch" in own and (scale != 1.0 or sum(sharing) > 1):
        return _scaled(chosen, scale, sharing)
    return _fitting(chosen, own, given)


def apply_to_environment(
    recipe: Recipe | None, environment: LanesConfig, options: TrainOptions
) -> tuple[LanesConfig, TrainOptions]:
    """The environment and the options with what the recipe says of the environment, where this has such an option and
    the user did not give it."""
    config: Any = environment
    known = [field.name for field in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else []
    new: dict[str, Any] = {}
    for setting in _settings(recipe, options) if recipe else ():
        owner, _, name = setting.option.rpartition(".")
        if owner == ENV and name in known and name not in options.env_args:
            new[name] = setting.value
    if not new:
        return environment, options
    return dataclasses.replace(config, **new), dataclasses.replace(options, env_args={**options.env_args, **new})


def _sharing(spec: LaneSpec, options: TrainOptions) -> list[int]:
    """How many agents share each policy."""
    roles = assign_teams(spec, tuple(role_patterns(spec, options.roles)))
    return [sum(len(spec.teams[team].agents) for team in teams) for teams in roles]


def _scaled(options: TrainOptions, scale: float, sharing: Sequence[int]) -> TrainOptions:
    """With the batch times `scale`, to the nearest that is made of whole blocks of every policy."""
    assert options.batch is not None
    unit = (options.lanes or 1) * (options.horizon or 1) * math.lcm(*sharing) * options.trainers
    return dataclasses.replace(options, batch=max(1, round(options.batch * scale / unit)) * unit)


def _settings(recipe: Recipe, options: TrainOptions) -> list[Setting]:
    """What concerns the algorithm: nothing for one of the user's own, whose options we do not know."""
    if options.algo not in ALGORITHMS:
        return []
    return [*recipe.task, *(recipe.ppo if options.algo in PPO_FAMILY else ())]


def _fitting(options: TrainOptions, own: Mapping[str, Any], given: Collection[str]) -> TrainOptions:
    """A batch is made of whole blocks: where the recipe's sizes do not go with the user's, the recipe gives way."""
    lanes, horizon, batch = (getattr(options, name) for name in SIZES)
    if None in (lanes, horizon, batch) or batch % (lanes * horizon * options.trainers) == 0:
        return options
    dropped = ("lanes", "horizon") if "batch" in given else ("batch",)
    left: dict[str, Any] = {name: None for name in dropped if name in own}
    return dataclasses.replace(options, **left)


def told(recipe: Recipe | None, options: TrainOptions) -> str:
    """One line for the user: the recipe and what it set."""
    if recipe is None:
        return "recipe none: the options' own defaults"
    set_to = []
    for setting in _settings(recipe, options):
        owner, _, name = setting.option.rpartition(".")
        if owner == ENV:
            value = options.env_args.get(name)
        else:
            value = getattr(getattr(options, options.algo) if owner else options, name)
        if value == setting.value:
            set_to.append(f"{name} {setting.value}")
    return f"recipe {recipe.name}{': ' if set_to else ''}{', '.join(set_to)} (--recipe none for the defaults)"
