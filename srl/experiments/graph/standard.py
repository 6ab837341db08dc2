"""The standard recipe: actors, policy workers and trainers for any environment."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

from srl.api.block import BlockSpec
from srl.api.experiment import Experiment, Resources, RestartRule, WorkerGroup
from srl.api.lanes import LanesConfig, TeamSpec
from srl.api.spaces import array_spec
from srl.base.config import to_data
from srl.base.process import num_cores
from srl.base.tree import TreeSpec
from srl.experiments.graph.frozen_policy import FrozenPolicyConfig
from srl.experiments.graph.probe import Probed
from srl.experiments.graph.resources import gpu_shares, wants_gpu, with_needs
from srl.experiments.graph.rewire import extend
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.roles import RoleOptions, role_options
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.networks.spaces.images import has_image
from srl.populations.pool import PoolConfig
from srl.populations.self_play import SelfPlayConfig
from srl.populations.versus import versus_spec
from srl.streams.push import PushStream
from srl.streams.request import RequestStream
from srl.workers.actor.worker import ActorConfig
from srl.workers.evaluator import EvaluatorConfig
from srl.workers.policy import PolicyWorkerConfig
from srl.workers.roles import Role, assign_teams
from srl.workers.trainer.worker import TrainerWorkerConfig

ACTOR_NICENESS = 5
EVALUATOR_NICENESS = 10
"""Behind everybody else, but not so far that it starves where all cores are busy; its share is what bounds it."""
UPDATE_US = {"image": 600.0, "vector": 4.0}
"""Microseconds to learn from one decision for one epoch, roughly: decides how many processes step environments."""


@dataclass(frozen=True)
class Sizes:
    """The numbers that None stood for."""

    actors: int
    lanes: int
    ring: int
    horizon: int
    batch: int | None


def has_accelerator() -> bool:
    """Without importing torch: does a driver show a device?"""
    return any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/kfd"))


def choose_sizes(options: TrainOptions, probed: Probed, cores: int, inline: bool) -> Sizes:
    """Light environments leave a core to the trainer; heavy ones take all of them. In one thread a second actor brings
    nothing, and a number that hung on how fast this machine is just now would keep runs from being repeated."""
    image = any(has_image(team.observation) for team in probed.spec.teams)
    algorithm, workers = options.algorithm, options.workers
    update_us = UPDATE_US["image" if image else "vector"] * algorithm.update_cost().epochs
    heavy = probed.step_us > update_us
    # In one thread more actors gain nothing, and runs that shall repeat cannot depend on a measurement.
    chosen = 1 if workers.scheduler == "inline" else cores if heavy else max(1, cores - 1)
    actors = workers.actors or chosen
    ring = workers.ring or (1 if inline else 2)
    lanes = workers.lanes or max(1, (algorithm.suggested_lanes() or (8 if image else 64)) // ring)
    horizon = workers.horizon or algorithm.suggested_horizon() or (128 if image else 32)
    return Sizes(actors, lanes, ring, horizon, workers.batch)


def choose_inference(options: TrainOptions) -> str:
    """A batch system's nodes are not this machine: there it is what was asked for that counts."""
    if options.workers.inference != "auto":
        return options.workers.inference
    elsewhere = options.workers.scheduler in ("ray", "slurm")
    accelerated = wants_gpu(options.algorithm) if elsewhere else has_accelerator()
    return "host" if accelerated else "inline"


def standard_experiment(title: str, environment: LanesConfig, probed: Probed, options: TrainOptions) -> Experiment:
    """The graph for one environment. Raises ValueError for what cannot work, before anything is launched."""
    inference = choose_inference(options)
    sizes = choose_sizes(options, probed, num_cores(), inference == "inline")
    spec = probed.spec if options.agents.self_play == "none" else versus_spec(probed.spec)
    named = role_options(spec, options)
    learning = [role.policy for role in named if role.frozen is None]
    if options.workers.scheduler in CLUSTERS and options.workers.actors is None:
        others = options.workers.trainers + (options.workers.policies if inference != "inline" else 0)
        sizes = replace(sizes, actors=max(1, num_cores() * options.cluster.hosts - others * len(learning)))
    teams = assign_teams(spec, tuple(role.agents for role in named))
    num_agents = [sum(len(spec.teams[m].agents) for m in members) for members in teams]
    num_learning = sum(number for role, number in zip(named, num_agents, strict=True) if role.frozen is None)
    roles: list[Role] = []
    groups: list[WorkerGroup] = []
    described: dict[str, Any] = {}
    watched = RestartRule(hang_timeout=options.workers.hang_timeout)
    for own, members, agents in zip(named, teams, num_agents, strict=True):
        policy, algorithm = own.policy, own.algorithm
        light = algorithm.on_cpu()
        team = spec.teams[members[0]]
        _check(own, team, here=options.workers.scheduler not in CLUSTERS)
        policies = options.workers.policies if inference != "inline" else 0
        trainer_gpu, policy_gpu = gpu_shares(algorithm, options.workers.trainers, policies)
        aligned = all(spec.teams[m].aligned for m in members)
        decision = algorithm.decision_spec(team.observation, team.action)
        if own.frozen is None:
            role_sizes = replace(sizes, horizon=own.horizon or sizes.horizon)
            samples = _sample_stream(policy, team, decision, options, role_sizes, aligned, agents)
        else:
            samples = PushStream(policy, BlockSpec(1, sizes.lanes * agents, array_spec(team.observation), decision), 1)
        requests = None
        if inference != "inline":
            requests = RequestStream(policy, samples.spec, remote=inference == "remote")
            in_flight = options.workers.in_flight
            config = PolicyWorkerConfig(policy, algorithm, team.observation, team.action, requests, in_flight)
            needs = Resources(gpu=policy_gpu)
            groups.append(WorkerGroup(_group("policies", policy), config, options.workers.policies, needs, watched))
        frozen = own.frozen is not None
        roles.append(Role(policy, light, team.observation, team.action, samples, requests, own.agents, aligned, frozen))
        described[policy] = {
            "algorithm": to_data(light),
            "observation": to_data(team.observation),
            "action": to_data(team.action),
        }
        if frozen:
            publisher = FrozenPolicyConfig(policy, str(own.frozen))
            groups.append(WorkerGroup(f"frozen-{policy}", publisher, 1, Resources(cpu=0.0), watched, scalable=False))
            continue
        trainer = TrainerWorkerConfig(
            policy,
            algorithm,
            team.observation,
            team.action,
            samples,
            math.ceil(options.run.steps * agents / num_learning),
            options.run.seed,
            options.workers.trainers,
            alone=len(learning) == 1,
            journal=options.checkpoints.journal,
        )
        rule = replace(watched, together=True)
        scalable = options.workers.scheduler != "inline"  # several trainers need processes of their own
        needs = Resources(gpu=trainer_gpu)
        groups.append(WorkerGroup(_group("trainers", policy), trainer, options.workers.trainers, needs, rule, scalable))
    played = environment
    if options.agents.self_play != "none":
        played = _self_play(environment, roles[0], options)
    actors = ActorConfig(played, spec, tuple(roles), sizes.lanes, sizes.ring, options.workers.max_env_failures)
    # A trainer that has data goes before the actors, which then have to wait for its next version anyway.
    groups.append(WorkerGroup("actors", actors, sizes.actors, Resources(niceness=ACTOR_NICENESS), watched))
    if options.evaluation.eval_every:
        groups.append(_evaluators(environment, tuple(roles), options, watched))
    experiment = Experiment(
        name="run",
        seed=options.run.seed,
        groups=tuple(groups),
        policies=tuple(role.policy for role in named),
        learning=tuple(learning),
        environment=title,
        algorithm=title_of(options.algo),
        target_steps=options.run.steps,
        max_lag=options.workers.max_lag,
        description=described,
    )
    return with_needs(extend(experiment, options.run.graph), options.cluster.resources)


def pool_of(options: TrainOptions) -> PoolConfig | None:
    """The pool of past versions to play against; None without self-play."""
    agents = options.agents
    if agents.self_play == "none":
        return None
    return PoolConfig(agents.self_play, agents.self_play_share, agents.self_play_every, agents.self_play_versions)


def _self_play(environment: LanesConfig, role: Role, options: TrainOptions) -> SelfPlayConfig:
    pool = pool_of(options)
    assert pool is not None
    return SelfPlayConfig(environment, role.policy, role.algorithm, role.observation, role.action, pool)


def _check(role: RoleOptions, team: TeamSpec, here: bool) -> None:
    """Does its algorithm go with what its agents see and do? The message names both. If it is not computed `here`, its
    device need not be here either: workers look for it where they are."""
    who = f"role {role.agents}={role.policy}, agent {team.agents[0]!r}"
    if role.frozen is not None:
        for name, known, space in zip(
            ("observation", "action"), role.trained_on, (team.observation, team.action), strict=True
        ):
            if known != space:
                raise ValueError(f"{who}: the frozen policy of {role.frozen} was trained on another {name} space")
    try:
        (role.algorithm if here else role.algorithm.on_cpu()).check(team.observation, team.action)
    except ValueError as error:
        raise ValueError(str(error) if role.agents == "*" else f"{who}: {error}") from error


def _evaluators(
    environment: LanesConfig, roles: tuple[Role, ...], options: TrainOptions, watched: RestartRule
) -> WorkerGroup:
    batch, evaluation = next(role.samples.batch for role in roles if not role.frozen), options.evaluation
    config = EvaluatorConfig(
        environment,
        roles,
        every=max(1, round(evaluation.eval_every / batch)),
        episodes=evaluation.eval_episodes,
        share=evaluation.eval_share,
        greedy=evaluation.eval_greedy,
        max_steps=evaluation.eval_max_steps,
    )
    resources = Resources(cpu=evaluation.eval_share, niceness=EVALUATOR_NICENESS)
    return WorkerGroup("evaluators", config, 1, resources, replace(watched, vital=False), scalable=False)


def _group(kind: str, policy: str) -> str:
    return kind if policy == "policy" else f"{kind}-{policy}"


def _sample_stream(
    policy: str,
    team: TeamSpec,
    decision: dict[str, TreeSpec],
    options: TrainOptions,
    sizes: Sizes,
    aligned: bool,
    agents: int,
) -> PushStream:
    lanes = sizes.lanes * agents if aligned else 1
    spec = BlockSpec(sizes.horizon, lanes, array_spec(team.observation), decision)
    block = lanes * sizes.horizon
    # Actors that this machine has cores for do not count: what is learned shall not hang on the machine.
    whole = sizes.batch or sizes.lanes * agents * sizes.horizon * sizes.ring * (options.workers.actors or 1)
    trainers = options.workers.trainers
    per_trainer = whole // trainers
    if sizes.batch is None:
        per_trainer = max(block, per_trainer // block * block)
    if per_trainer % block or per_trainer == 0 or whole % trainers:
        unit = block * trainers
        nearest = max(1, round(whole / unit)) * unit
        raise ValueError(
            f"a batch of {whole} is not made of whole blocks: with {lanes} lanes x {sizes.horizon} steps"
            f"{f' and {trainers} trainers' if trainers > 1 else ''} it must be a multiple of {unit}; "
            f"the nearest is --batch {nearest}"
        )
    return PushStream(
        policy,
        spec,
        batch_blocks=per_trainer // block,
        max_lag=options.workers.max_lag,
        consumers=trainers,
        remote=options.workers.inference == "remote",
    )
