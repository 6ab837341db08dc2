"""Which recipe an environment gets, and what it sets: everything that the user did not give."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from srl.api.lanes import LanesConfig, LaneSpec
from srl.api.spaces import Box
from srl.experiments.options import ALGORITHMS, TrainOptions
from srl.experiments.recipes import AUTO, NONE, RECIPES, Recipe, Setting
from srl.experiments.standard import has_image

SIZES = ("lanes", "horizon", "batch")


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
    if all(isinstance(team.action, Box) for team in spec.teams):
        return by_name["continuous"]
    return by_name["image" if any(has_image(team.observation) for team in spec.teams) else "default"]


def _known_as(environment: LanesConfig) -> list[str]:
    """An environment's id and the entry points that Gymnasium knows for it; EnvPool's ids are the same or ALE's."""
    import gymnasium

    name = str(getattr(environment, "name", ""))
    last = name.rpartition(":")[2]
    specs = [gymnasium.registry[key] for key in (last, f"ALE/{last}") if key in gymnasium.registry]
    entry_points = [str(point) for spec in specs for point in (spec.entry_point, spec.vector_entry_point) if point]
    return [last, name, *entry_points]


def apply(recipe: Recipe | None, options: TrainOptions, given: Collection[str]) -> TrainOptions:
    """The options with the recipe's values where nothing was given."""
    if recipe is None:
        return dataclasses.replace(options, recipe=NONE)
    own: dict[str, Any] = {}
    learning: dict[str, Any] = {}
    for setting in _settings(recipe, options):
        owner, _, name = setting.option.rpartition(".")
        if f"{options.algo}.{name}" not in given and name not in given:
            (learning if owner else own)[name] = setting.value
    if learning:
        own[options.algo] = dataclasses.replace(getattr(options, options.algo), **learning)
    chosen = dataclasses.replace(options, recipe=recipe.name, **own)
    return _fitting(chosen, own, given)


def _settings(recipe: Recipe, options: TrainOptions) -> list[Setting]:
    """What concerns the algorithm: nothing for one of the user's own, whose options we do not know."""
    if options.algo not in ALGORITHMS:
        return []
    return [*recipe.task, *(recipe.ppo if options.algo == "ppo" else ())]


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
        if getattr(getattr(options, options.algo) if owner else options, name) == setting.value:
            set_to.append(f"{name} {setting.value}")
    return f"recipe {recipe.name}{': ' if set_to else ''}{', '.join(set_to)} (--recipe none for the defaults)"
