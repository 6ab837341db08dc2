"""Choosing a recipe for an environment, and applying it to the options that the user did not set."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from srl.api.dataflow import OnPolicy
from srl.api.lanes import LanesConfig, LaneSpec
from srl.api.spaces import Box
from srl.base.errors import nearest
from srl.base.process import num_cores
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class, with_settings
from srl.experiments.options.roles import role_patterns
from srl.experiments.options.sections import AUTO, NONE
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.recipe import Recipe, Setting
from srl.experiments.recipes.single_agent import NAMES, RECIPES
from srl.networks.spaces.boxes import has_image, space_leaves
from srl.workers.role import assign_teams

SIZES = ("lanes", "horizon", "batch")
ALGO, ENV = "algo", "env"
FAMILIES = {"ppo": "ppo", "ippo": "ppo", "mappo": "ppo", "dqn": "dqn", "sac": "sac", "td3": "td3", "ddpg": "td3"}
FAMILIES |= {"vdn": "qmix", "qmix": "qmix"}
FAMILIES |= {"apex": "apex", "r2d2": "r2d2", "alphazero": "alphazero", "muzero": "muzero"}
"""Algorithm -> field of a recipe with settings for its update."""


def recipe_for(environment: LanesConfig, spec: LaneSpec, wanted: str = AUTO) -> Recipe | None:
    """Return the recipe named `wanted`; for `auto`, the first that fits the environment; for `none`, None."""
    if wanted not in NAMES:
        raise ValueError(f"no recipe {wanted!r}{nearest(wanted, NAMES)}")
    if wanted == NONE:
        return None
    by_name = {recipe.name: recipe for recipe in RECIPES}
    if wanted != AUTO:
        return by_name[wanted]
    known_as = _known_as(environment)
    for recipe in RECIPES:
        if any(fnmatchcase(name, pattern) for name in known_as for pattern in recipe.patterns):
            return recipe
    continuous = all(any(isinstance(leaf, Box) for _, leaf in space_leaves(team.action)) for team in spec.teams)
    if any(has_image(team.observation) for team in spec.teams):
        return by_name["continuous-image" if continuous else "image"]
    return by_name["continuous" if continuous else "default"]


def _known_as(environment: LanesConfig) -> list[str]:
    """Return an environment's id, name and Gymnasium entry points. EnvPool's ids may lack the prefix `ALE/`."""
    import gymnasium

    name = environment.environment_name()
    last = name.rpartition(":")[2]
    specs = [gymnasium.registry[key] for key in (last, f"ALE/{last}") if key in gymnasium.registry]
    entry_points = [str(point) for spec in specs for point in (spec.entry_point, spec.vector_entry_point) if point]
    return [last, name, *entry_points]


def apply(
    recipe: Recipe | None, options: TrainOptions, given: Collection[str], spec: LaneSpec | None = None
) -> TrainOptions:
    """Return the options with the recipe's values for those whose names are not in `given`. `spec` describes one copy
    of the environment."""
    if recipe is None:
        return options.replace(recipe=NONE)
    values: dict[str, dict[str, Any]] = {ALGO: {}, ENV: {}, "": {}}
    for setting in settings_for(recipe, options.algo):
        if setting.option not in given:
            values[setting.owner][setting.name] = setting.value
    own = values[""]
    sharing = _sharing(spec, options) if spec else [1]
    if sum(sharing) > 1 and not recipe.patterns:
        own.pop("batch", None)  # it is meant for one agent; with several, the batch is what the actors fill
    algorithm = with_settings(options.algorithm, values[ALGO], options.algo)
    chosen = options.replace(recipe=recipe.name, algorithm=algorithm, **own)
    scale = options.run.scale or (min(1.0, num_cores() / recipe.cores) if recipe.cores else 1.0)
    if "batch" in own and (scale != 1.0 or sum(sharing) > 1):
        return _scaled(chosen, scale, sharing)
    return _fitting(chosen, own, given)


def apply_to_environment(
    recipe: Recipe | None, environment: LanesConfig, options: TrainOptions
) -> tuple[LanesConfig, TrainOptions]:
    """Return the environment and the options with the recipe's values for those environment options that exist and that
    the user did not set."""
    config: Any = environment
    known = {field.name for field in dataclasses.fields(config)} if dataclasses.is_dataclass(config) else set()
    free = known - options.run.env_args.keys()
    settings = settings_for(recipe, options.algo) if recipe else []
    new = {setting.name: setting.value for setting in settings if setting.owner == ENV and setting.name in free}
    if not new:
        return environment, options
    return dataclasses.replace(config, **new), options.replace(env_args={**options.run.env_args, **new})


def settings_for(recipe: Recipe, algo: str) -> list[Setting]:
    """Return a recipe's settings for an algorithm; none for a user's own, whose options are unknown."""
    if algo not in ALGORITHMS:
        return []
    on_policy = isinstance(algorithm_class(algo)().dataflow(), OnPolicy)
    task = [setting for setting in recipe.task if on_policy or setting.owner != ALGO]
    own: tuple[Setting, ...] = getattr(recipe, FAMILIES[algo]) if algo in FAMILIES else ()
    return [*task, *own]


def settings_in_force(recipe: Recipe | None, options: TrainOptions, given: Collection[str]) -> list[Setting]:
    """Return the recipe's settings that took effect in the options."""
    found = []
    for setting in settings_for(recipe, options.algo) if recipe else ():
        if setting.owner == ENV:
            value = options.run.env_args.get(setting.name)
        else:
            value = getattr(options.algorithm, setting.name) if setting.owner else options.value(setting.name)
        scaled = setting.option == "batch" and value is not None
        if setting.option not in given and (value == setting.value or scaled):
            found.append(dataclasses.replace(setting, value=value))
    return found


def summary(recipe: Recipe | None, options: TrainOptions, given: Collection[str]) -> str:
    """Return one line with the recipe and the values it set."""
    if recipe is None:
        return "recipe none: the defaults of the options"
    in_force = settings_in_force(recipe, options, given)
    values = ", ".join(f"{setting.name} {setting.value}" for setting in in_force)
    return f"recipe {recipe.name}{': ' if values else ''}{values} (--recipe none for the defaults)"


def _sharing(spec: LaneSpec, options: TrainOptions) -> list[int]:
    """Return the number of agents of each policy."""
    roles = assign_teams(spec, tuple(role_patterns(spec, options.agents.roles)))
    return [sum(len(spec.teams[team].agents) for team in teams) for teams in roles]


def _scaled(options: TrainOptions, scale: float, sharing: Sequence[int]) -> TrainOptions:
    """Return the options with the batch multiplied by `scale` and rounded to whole blocks of every policy."""
    workers = options.workers
    assert workers.batch is not None
    unit = (workers.lanes or 1) * (workers.horizon or 1) * math.lcm(*sharing) * workers.trainers
    return options.replace(batch=max(1, round(workers.batch * scale / unit)) * unit)


def _fitting(options: TrainOptions, own: Mapping[str, Any], given: Collection[str]) -> TrainOptions:
    """Return the options without recipe sizes that conflict with the user's: a batch must consist of whole blocks."""
    lanes, horizon, batch = (options.value(name) for name in SIZES)
    if None in (lanes, horizon, batch) or batch % (lanes * horizon * options.workers.trainers) == 0:
        return options
    dropped = ("lanes", "horizon") if "batch" in given else ("batch",)
    left: dict[str, Any] = {name: None for name in dropped if name in own}
    return options.replace(**left)
