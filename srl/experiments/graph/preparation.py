"""Preparation of a run: the experiment for an environment and options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from srl.api.experiment import Experiment
from srl.api.lanes import LanesConfig, LaneSpec
from srl.api.spaces import Box
from srl.base.config import TrustCode, texts_in, to_data
from srl.base.object_names import LOCAL, load_object, local_name, refuse_private_code
from srl.environments.adapters.previous_step import PreviousStepConfig, with_previous_step
from srl.experiments.graph.environment_probe import EnvironmentProfile, probe
from srl.experiments.graph.hindsight import hindsight_hint
from srl.experiments.graph.recorded_data import with_data
from srl.experiments.graph.replay import check_learning_starts
from srl.experiments.graph.sizes import (
    check_minibatches,
    describe_long_sequences,
    describe_long_updates,
    describe_sizes,
    describe_slow_steps,
)
from srl.experiments.graph.standard import standard_experiment
from srl.experiments.options.algorithms import with_absolute_paths
from srl.experiments.options.roles import role_patterns, with_checkpoints, with_expert_path
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.apply import apply, apply_to_environment, recipe_for, settings_in_force, summary
from srl.networks.spaces.boxes import is_image, layout_of, space_leaves
from srl.storage.service_sinks import check_sinks
from srl.workers.role import assign_teams

LARGE_SIDE = 128
"""Shorter side of an image, in pixels, from which on there is a hint to make it smaller."""


@dataclass(frozen=True)
class PreparedRun:
    """A run that is ready to start."""

    options: TrainOptions  # options, including the recipe's values
    environment: LanesConfig
    experiment: Experiment
    profile: EnvironmentProfile
    recipe: str = ""  # one line about the recipe
    from_recipe: Mapping[str, str] = field(default_factory=dict)  # option set by the recipe -> recipe and reason
    own: bool = True  # whether the user starts the run now, had started it, or trusts it: its files are signed

    @property
    def summary(self) -> str:
        """Lines to print when the run starts: the recipe, the sizes, and hints about updates that are longer than the
        run, slow steps, large images, hindsight, sequences that are longer than episodes, and code that only this
        process has."""
        hint = describe_long_updates(self.experiment) + describe_slow_steps(self.experiment, self.profile.step_us)
        hint += _image_hint(self.profile.spec, self.environment)
        hint += hindsight_hint(self.experiment) + _private_hint([to_data(self.environment), to_data(self.options)])
        hint += describe_long_sequences(self.experiment, self.environment.episode_limit())
        return f"{self.recipe}\n{describe_sizes(self.experiment)}{hint}".lstrip()


def prepare(
    env: str | Callable[..., Any],
    options: TrainOptions,
    given: Collection[str] | None,
    trust_code: TrustCode = False,
    probes: dict[str, EnvironmentProfile] | None = None,
) -> PreparedRun:
    """Probe the environment, apply its recipe, and return the run.

    The recipe sets only the options whose names are not in `given`; with None, no recipe is applied, because the
    options already contain its values. `trust_code` is for the checkpoints of frozen policies. Any error in the user's
    input is raised here, before a directory is created or a worker is started. With `probes`, environments that are in
    it are not probed again, and others are added.
    """
    options = with_expert_path(with_absolute_paths(options))
    options = options.replace(roles=with_checkpoints(options.agents.roles))
    options = with_data(options, given)
    check_sinks(options.run.sinks)
    environment = environment_for(env, options)
    if options.workers.scheduler != "inline":
        refuse_private_code([to_data(environment), to_data(options)])
    title = env if isinstance(env, str) else local_name(env)
    probes = {} if probes is None else probes
    if (key := repr(environment)) not in probes:
        probes[key] = probe_for(environment, options)
    profile = probes[key]
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
    environment = completed(environment, profile.spec, options)
    profile = replace(profile, spec=completed_spec(profile.spec, options))
    experiment = standard_experiment(title, environment, profile, options, trust_code)
    check_minibatches(experiment, given or ())
    check_learning_starts(experiment)
    return PreparedRun(options, environment, experiment, profile, line, reasons)


def environment_for(env: str | Callable[..., Any], options: TrainOptions) -> LanesConfig:
    """Return the environment as the algorithm needs it."""
    from srl.environments.registry import lanes_config

    environment = lanes_config(env, **options.run.env_args)
    if mask_key := options.algorithm.action_mask_key():
        environment = environment.with_mask_key(mask_key)
    environment = environment.with_log_info(options.run.log_info)
    environment = environment.with_images(options.run.image_size, options.run.grayscale)
    if options.algorithm.wants_global_state():
        environment = environment.with_global_state()
    if options.algorithm.wants_simulator():
        environment = environment.with_states()
    elif options.algorithm.wants_joint_seats():
        environment = environment.with_joint_seats()
    return environment.with_agent_ids() if options.algorithm.wants_agent_ids() else environment


def completed(environment: LanesConfig, spec: LaneSpec, options: TrainOptions) -> LanesConfig:
    """Return the environment with repeated actions, shared rewards and previous steps, as the options require. `spec`
    is that without them."""
    environment = environment.with_action_repeat(options.run.action_repeat)
    if options.agents.team_reward:
        environment = team_reward(environment, spec, role_patterns(spec, options.agents.roles))
    return PreviousStepConfig(environment) if options.run.previous_step else environment


def completed_spec(spec: LaneSpec, options: TrainOptions) -> LaneSpec:
    """Return the spec of the environment that `completed` returns."""
    return with_previous_step(spec) if options.run.previous_step else spec


def _image_hint(spec: LaneSpec, environment: LanesConfig) -> str:
    """Return a line that says how to make large images smaller; empty if there are none."""
    leaves = [leaf for team in spec.teams for _, leaf in space_leaves(team.observation)]
    large = [
        leaf for leaf in leaves if isinstance(leaf, Box) and is_image(leaf) and min(layout_of(leaf).sides) >= LARGE_SIDE
    ]
    for leaf in large[:1]:
        shape = " x ".join(map(str, leaf.shape))
        how = "--image-size 84 and --grayscale make" if environment.can_shrink_images() else "a wrapper makes"
        return f"\nhint: images of {shape} slow down every part of the run; {how} them smaller"
    return ""


def _private_hint(data: Any) -> str:
    names = [local_name(load_object(text)) for text in texts_in(data) if text.startswith(LOCAL)]
    if not names:
        return ""
    passed = " and ".join(dict.fromkeys(names))
    return f"\nnote: other programs can use this run only if they pass {passed} again (env=..., trust_code=[...])"


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
