"""Preparation of a run: the experiment for an environment and options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig, LaneSpec
from srl.experiments.graph.environment_probe import EnvironmentProfile, probe
from srl.experiments.graph.sizes import describe_sizes
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.algorithms import with_absolute_paths
from srl.experiments.options.roles import role_patterns, with_checkpoints
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.apply import apply, apply_to_environment, recipe_for, settings_in_force, summary
from srl.storage.service_sinks import check_sinks
from srl.workers.role import assign_teams


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start."""

    options: TrainOptions  # options, including the recipe's values
    environment: LanesConfig
    experiment: Experiment
    profile: EnvironmentProfile
    recipe: str = ""  # one line about the recipe
    from_recipe: Mapping[str, str] = field(default_factory=dict)  # option set by the recipe -> recipe and reason

    @property
    def summary(self) -> str:
        """Lines to print when the run starts: the recipe and the sizes."""
        return f"{self.recipe}\n{describe_sizes(self.experiment)}".lstrip()


def prepare(env: str | Callable[..., Any], options: TrainOptions, given: Collection[str] | None) -> PreparedRun:
    """Probe the environment, apply its recipe, and return the run.

    The recipe sets only the options whose names are not in `given`; with None, no recipe is applied, because the
    options already contain its values. Any error in the user's input is raised here, before a directory is created or a
    worker is started.
    """
    from srl.environments.registry import lanes_config

    options = with_absolute_paths(options)
    options = options.replace(roles=with_checkpoints(options.agents.roles))
    check_sinks(options.run.sinks)
    environment = lanes_config(env, **options.run.env_args)
    if mask_key := options.algorithm.action_mask_key():
        environment = environment.with_mask_key(mask_key)
    if options.algorithm.wants_global_state():
        environment = environment.with_global_state()
    title = env if isinstance(env, str) else getattr(env, "__qualname__", str(env))
    profile = probe_for(environment, options)
    environment = environment.with_spec(profile.spec)
    line, reasons = "", dict[str, str]()
    if given is not None:
        recipe = recipe_for(environment, profile.spec, options.run.recipe)
        options = apply(recipe, options, given, profile.spec)
        environment, options = apply_to_environment(recipe, environment, options)
        if recipe is not None and "action_repeat" not in given and not environment.can_repeat_actions():
            options = options.replace(action_repeat=1)  # the recipe asked for more, not the user
        line = summary(recipe, options, given)
        in_force = settings_in_force(recipe, options, given)
        reasons = {each.option: f"recipe {options.run.recipe}: {each.why}" for each in in_force}
    environment = environment.with_action_repeat(options.run.action_repeat)
    if options.agents.team_reward:
        environment = team_reward(environment, profile.spec, role_patterns(profile.spec, options.agents.roles))
    experiment = standard_experiment(title, environment, profile, options)
    return PreparedRun(options, environment, experiment, profile, line, reasons)


def team_reward(environment: LanesConfig, spec: LaneSpec, patterns: Mapping[str, str]) -> LanesConfig:
    """Return the environment with rewards shared among the agents of each role."""
    from srl.environments.adapters.team_reward import TeamRewardConfig

    for team in spec.teams:
        if not team.aligned:
            raise ValueError(
                f"{spec.environment}: agent {team.agents[0]!r} does not act at every step, so there is no reward of "
                "the same step to share; --team-reward is for agents that act together"
            )
    return TeamRewardConfig(environment, tuple(map(tuple, assign_teams(spec, tuple(patterns)))))


def probe_for(environment: LanesConfig, options: TrainOptions) -> EnvironmentProfile:
    """Probe the environment as the options require."""
    workers = options.workers
    return probe(environment, options.run.seed, workers.hang_timeout, resumable=workers.scheduler == "inline")
