"""The standard graph: actors, policy workers, trainers and evaluators for any environment."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from typing import Any

from srl.api.algorithm import AlgorithmConfig, check_decision
from srl.api.block import BlockSpec
from srl.api.dataflow import Dataflow, Replay
from srl.api.experiment import Experiment, Resources, RestartRule, WorkerGroup
from srl.api.lanes import LanesConfig, LaneSpec, TeamSpec
from srl.api.spaces import array_spec
from srl.base.config import TrustCode, to_data
from srl.base.process import num_cores
from srl.experiments.graph.customization import extend
from srl.experiments.graph.environment_probe import EnvironmentProfile
from srl.experiments.graph.frozen_policy import FrozenPolicyConfig
from srl.experiments.graph.hindsight import goal_rewards
from srl.experiments.graph.recorded_data import check_source, update_stream
from srl.experiments.graph.replay import (
    REPLAY_FIXED,
    behind_buffers,
    check_replay_fits,
    check_replay_options,
    check_replay_units,
    check_updates,
    replay_workers,
)
from srl.experiments.graph.resources import gpu_shares, wants_gpu, with_resources
from srl.experiments.graph.sizes import Sizes, choose_sizes
from srl.experiments.options.algorithms import title_of
from srl.experiments.options.roles import RoleOptions, role_options
from srl.experiments.options.sections import CLUSTERS
from srl.experiments.options.train_options import TrainOptions
from srl.populations.opponent_pool import PoolConfig
from srl.populations.self_play import SelfPlayConfig
from srl.populations.versus import versus_spec
from srl.replay.goals import GoalRewardsConfig
from srl.streams.push import PushStream
from srl.streams.request import RequestStream
from srl.streams.sample import SampleStream
from srl.terminal.machine import limits
from srl.workers.actor.worker import ActorConfig
from srl.workers.evaluator import EvaluatorConfig
from srl.workers.policy import PolicyWorkerConfig
from srl.workers.reanalyzer import MAX_ROWS, ReanalyzerConfig
from srl.workers.replay.reanalyze import ReanalyzeWorkerConfig
from srl.workers.role import Role, assign_teams
from srl.workers.trainer.worker import TrainerWorkerConfig

ACTOR_NICENESS = 5
GIB = 2**30
PUBLISHER_FIXED = "one worker publishes the parameters that never change"
TRAINER_FIXED = "several trainers need a process each, and --scheduler inline has only one"
EVALUATOR_FIXED = "one evaluator plays one version after the other; `--eval-share` limits its time"
EVALUATOR_NICENESS = 10
"""Lower priority than all other workers, but high enough not to starve on a busy machine; `eval_share` limits it."""


def has_accelerator() -> bool:
    """Return whether this machine has a GPU, without importing torch."""
    return any(os.path.exists(path) for path in ("/dev/nvidia0", "/dev/kfd"))


def choose_inference(options: TrainOptions) -> str:
    """Return where inference runs. On Ray and Slurm, whose nodes are not this machine, it depends only on the requested
    device."""
    if options.run.data:
        return "inline"  # only evaluators act
    if options.workers.inference != "auto":
        return options.workers.inference
    elsewhere = options.workers.scheduler in ("ray", "slurm")
    accelerated = wants_gpu(options.algorithm) if elsewhere else has_accelerator()
    return "host" if accelerated else "inline"


def standard_experiment(
    title: str,
    environment: LanesConfig,
    profile: EnvironmentProfile,
    options: TrainOptions,
    trust_code: TrustCode = False,
) -> Experiment:
    """Return the graph for an environment. Raises ValueError for options that cannot work, before anything starts.
    `trust_code` is for the checkpoints of frozen policies."""
    inference = choose_inference(options)
    sizes = choose_sizes(options, profile, num_cores(), inference == "inline")
    spec = profile.spec if options.agents.self_play == "none" else versus_spec(profile.spec)
    named = role_options(spec, options, trust_code)
    learning = [role.policy for role in named if role.frozen is None]
    check_replay_options(options, [role.algorithm.dataflow() for role in named if role.frozen is None])
    check_source(named, spec, options)
    if options.workers.scheduler in CLUSTERS and options.workers.actors is None:
        others = options.workers.trainers + (options.workers.policies if inference != "inline" else 0)
        others += options.workers.replay_workers * (options.workers.replay != "inline")
        others += options.workers.replay_workers * options.workers.buffer_workers + options.workers.reanalyze_workers
        sizes = replace(sizes, actors=max(1, num_cores() * options.cluster.hosts - others * len(learning)))
    builder = _GraphBuilder(options, environment, spec, named, sizes, inference)
    for role, teams in zip(named, assign_teams(spec, tuple(role.agents for role in named)), strict=True):
        builder.add_role(role, teams)
    roles, groups, restart = tuple(builder.roles), builder.groups, builder.restart
    played, pool, first = environment, pool_of(options), roles[0]
    if pool is not None:
        played = SelfPlayConfig(environment, first.policy, first.algorithm, first.observation, first.action, pool)
    if not options.run.data:
        actors = ActorConfig(played, spec, roles, sizes.lanes, sizes.ring, options.workers.max_env_failures)
        # A trainer with data has priority over the actors, which must wait for its next version anyway.
        if options.workers.scheduler not in CLUSTERS:
            _check_memory(actors, sizes)
        groups.append(WorkerGroup("actors", actors, sizes.actors, Resources(niceness=ACTOR_NICENESS), restart))
    if options.evaluation.eval_every:
        groups.append(_evaluators(environment, roles, options, restart))
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
        description=builder.description,
    )
    return with_resources(extend(experiment, options.run.graph), options.cluster.resources)


class _GraphBuilder:
    """Collects roles, worker groups and policy descriptions, one role at a time."""

    def __init__(
        self,
        options: TrainOptions,
        environment: LanesConfig,
        spec: LaneSpec,
        named: tuple[RoleOptions, ...],
        sizes: Sizes,
        inference: str,
    ) -> None:
        self._options, self._spec, self._sizes, self._inference = options, spec, sizes, inference
        self._environment = environment
        teams = assign_teams(spec, tuple(role.agents for role in named))
        learning = [members for role, members in zip(named, teams, strict=True) if role.frozen is None]
        self._num_learning_policies = len(learning)
        self._num_learning_agents = sum(map(self._num_agents, learning))
        self.restart = RestartRule(hang_timeout=options.workers.hang_timeout)
        self.roles: list[Role] = []
        self.groups: list[WorkerGroup] = []
        self.description: dict[str, Any] = {}

    def _num_agents(self, teams: list[int]) -> int:
        return sum(len(self._spec.teams[team].agents) for team in teams)

    def add_role(self, own: RoleOptions, teams: list[int]) -> None:
        """Add the policy for these teams, with its policy workers and its trainers or, if frozen, its publisher."""
        workers, spec = self._options.workers, self._spec
        team = spec.teams[teams[0]]
        aligned = all(spec.teams[index].aligned for index in teams)
        if own.frozen is None:
            own = replace(own, algorithm=_for_agents(own, self._num_agents(teams), aligned))
            if own.algorithm.wants_simulator():
                own = replace(own, algorithm=own.algorithm.for_simulator(self._environment.simulator()))
        _check(own, team, self._most_rows(own, teams), here=workers.scheduler not in CLUSTERS)
        policy, on_cpu = own.policy, own.algorithm.on_cpu()
        samples = self._samples(own, team, aligned, self._num_agents(teams))
        flow = own.algorithm.dataflow()
        recorded = bool(self._options.run.data)
        if own.frozen is None and isinstance(flow, Replay) and workers.scheduler not in CLUSTERS and not recorded:
            check_replay_fits(flow, samples, workers.replay_dir)
            check_updates(flow, samples, workers.hang_timeout)
        if own.frozen is None and isinstance(flow, Replay):
            groups = self._sizes.actors * self._sizes.ring
            tracks = groups if aligned else groups * self._sizes.lanes * self._num_agents(teams)
            check_replay_units(flow, samples, tracks, workers.trainers, recorded)
        goals = self._goals(own)
        replay = self._replay(own, team, flow, samples, goals)
        requests = None
        separate = self._inference != "inline"
        trainer_gpu, policy_gpu = gpu_shares(own.algorithm, workers.trainers, workers.policies if separate else 0)
        if separate:
            requests = RequestStream(policy, samples.spec, remote=self._inference == "remote")
            # With one thread for all workers nothing can join, and a run resumes exactly only between decisions.
            config = PolicyWorkerConfig(
                policy,
                own.algorithm,
                team.observation,
                team.action,
                requests,
                workers.in_flight,
                gradual=workers.scheduler != "inline",
            )
            name, gpu = _group_name("policies", policy), Resources(gpu=policy_gpu)
            self.groups.append(WorkerGroup(name, config, workers.policies, gpu, self.restart))
        frozen = own.frozen is not None
        self.roles.append(
            Role(policy, on_cpu, team.observation, team.action, samples, requests, own.agents, aligned, frozen)
        )
        described = {"algorithm": on_cpu, "observation": team.observation, "action": team.action}
        self.description[policy] = {part: to_data(value) for part, value in described.items()}
        if frozen:
            publisher = FrozenPolicyConfig(policy, str(own.frozen))
            self.groups.append(
                WorkerGroup(f"frozen-{policy}", publisher, 1, Resources(cpu=0.0), self.restart, PUBLISHER_FIXED)
            )
        else:
            own_goals = goals if replay is None else None
            self._add_trainers(own, team, samples, replay, own_goals, self._num_agents(teams), trainer_gpu)

    def _most_rows(self, own: RoleOptions, teams: list[int]) -> int:
        """Return the largest number of observations that a policy gets at once."""
        sizes, flow = self._sizes, own.algorithm.dataflow()
        rows = 1 if self._options.run.data else sizes.lanes * self._num_agents(teams)
        if self._inference != "inline":
            rows *= sizes.actors * sizes.ring  # all may wait for the same policy worker
        reanalyzes = own.frozen is None and isinstance(flow, Replay) and flow.reanalysis is not None
        return max(rows, MAX_ROWS) if reanalyzes else rows

    def _has_replay_workers(self, own: RoleOptions) -> bool:
        separate = self._options.workers.replay != "inline" and own.frozen is None
        return separate and isinstance(own.algorithm.dataflow(), Replay)

    def _goals(self, own: RoleOptions) -> GoalRewardsConfig | None:
        if own.frozen is not None:
            return None
        run, workers = self._options.run, self._options.workers
        return goal_rewards(own.algorithm, self._environment, self._spec, run.seed, workers.hang_timeout)

    def _replay(
        self, own: RoleOptions, team: TeamSpec, flow: Dataflow, samples: PushStream, goals: GoalRewardsConfig | None
    ) -> SampleStream | None:
        """Add the replay workers of a policy, and return the stream to them; None if it has none."""
        if not self._has_replay_workers(own) or not isinstance(flow, Replay):
            return None
        reanalyzer = ReanalyzerConfig.of(own.policy, own.algorithm, team.observation, team.action)
        workers, resources = replay_workers(own.policy, flow, samples, self._options, goals, reanalyzer)
        count, name = self._options.workers.replay_workers, _group_name("replay", own.policy)
        self.groups.append(WorkerGroup(name, workers, count, resources, self.restart, REPLAY_FIXED))
        if reanalyzer is not None and self._options.workers.reanalyze_workers:
            searchers = ReanalyzeWorkerConfig(workers.replay, reanalyzer)
            name, count = _group_name("reanalyze", own.policy), self._options.workers.reanalyze_workers
            self.groups.append(WorkerGroup(name, searchers, count, Resources(), self.restart))
        return workers.replay

    def _add_trainers(
        self,
        own: RoleOptions,
        team: TeamSpec,
        samples: PushStream,
        replay: SampleStream | None,
        goals: GoalRewardsConfig | None,
        agents: int,
        gpu: float,
    ) -> None:
        run, workers = self._options.run, self._options.workers
        trainer = TrainerWorkerConfig(
            own.policy,
            own.algorithm,
            team.observation,
            team.action,
            samples,
            math.ceil(run.steps * agents / self._num_learning_agents),
            run.seed,
            workers.trainers,
            alone=self._num_learning_policies == 1,
            journal=self._options.checkpoints.journal,
            data=run.data,
            replay=replay,
            goals=goals,
        )
        restart = replace(self.restart, together=True)
        fixed = TRAINER_FIXED if workers.scheduler == "inline" else ""
        name = _group_name("trainers", own.policy)
        group = WorkerGroup(name, trainer, workers.trainers, Resources(gpu=gpu), restart, fixed)
        flow = own.algorithm.dataflow()
        if workers.buffer_workers and replay is not None and isinstance(flow, Replay) and flow.transform is not None:
            buffers = _group_name("buffers", own.policy)
            self.groups += behind_buffers(group, trainer, replay, buffers, flow.transform, is_transformed=True)
        else:
            self.groups.append(group)

    def _samples(self, own: RoleOptions, team: TeamSpec, aligned: bool, agents: int) -> PushStream:
        """Return the stream of samples. Raises ValueError for a batch that does not consist of whole blocks."""
        workers, sizes = self._options.workers, self._sizes
        observation, decision = array_spec(team.observation), own.algorithm.decision_spec(team.observation, team.action)
        positions = own.algorithm.explores_by_lane()
        if own.frozen is not None:
            return PushStream(own.policy, BlockSpec(1, sizes.lanes * agents, observation, decision, positions), 1)
        if self._options.run.data:
            return update_stream(own, team, sizes.batch, workers.trainers)
        horizon, in_workers = own.horizon or sizes.horizon, self._has_replay_workers(own)
        consumers = workers.replay_workers if in_workers else workers.trainers
        lanes = sizes.lanes * agents if aligned else 1
        block = lanes * horizon
        # A number of actors chosen for this machine does not count, so that results do not depend on its cores.
        batch = sizes.batch or sizes.lanes * agents * horizon * sizes.ring * (workers.actors or 1)
        per_consumer = batch // consumers
        if sizes.batch is None:
            per_consumer = max(block, per_consumer // block * block)
        if per_consumer % block or per_consumer == 0 or batch % consumers:
            unit, kind = block * consumers, "replay workers" if in_workers else "trainers"
            raise ValueError(
                f"a batch must consist of whole blocks: with {lanes} lanes x {horizon} steps"
                f"{f' and {consumers} {kind}' if consumers > 1 else ''} it must be a multiple of {unit}, found "
                f"{batch}; the nearest is --batch {max(1, round(batch / unit)) * unit}"
            )
        return PushStream(
            own.policy,
            BlockSpec(horizon, lanes, observation, decision, positions),
            batch_blocks=per_consumer // block,
            max_lag=workers.max_lag,
            consumers=consumers,
            remote=workers.inference == "remote" or (in_workers and workers.replay == "remote"),
        )


def _check_memory(actors: ActorConfig, sizes: Sizes) -> None:
    """Raise ValueError if the samples would not fit in the memory of this machine."""
    needed, available = sizes.actors * actors.sample_bytes(), limits().memory
    if needed > available:
        raise ValueError(
            f"{sizes.actors} actors x {sizes.ring} lane groups x {sizes.lanes:,} lanes x {sizes.horizon} steps need "
            f"{needed / GIB:,.1f} GiB of memory for samples; this machine has {available / GIB:,.1f} GiB. Choose "
            "smaller --lanes, --horizon, --batch or --actors"
        )


def pool_of(options: TrainOptions) -> PoolConfig | None:
    """Return the pool of past versions to play against; None without self-play."""
    agents = options.agents
    if agents.self_play == "none":
        return None
    return PoolConfig(agents.self_play, agents.self_play_share, agents.self_play_every, agents.self_play_versions)


def _for_agents(role: RoleOptions, num_agents: int, aligned: bool) -> AlgorithmConfig:
    """Return the algorithm for the agents of a role."""
    try:
        return role.algorithm.for_agents(num_agents, aligned)
    except ValueError as error:
        raise ValueError(f"role {role.agents}={role.policy}: {error}") from error


def _check(role: RoleOptions, team: TeamSpec, num_rows: int, here: bool) -> None:
    """Raise ValueError if the algorithm does not support the team's spaces, or cannot decide for `num_rows`
    observations at once. If it does not run `here`, its device need not exist on this machine."""
    subject = f"role {role.agents}={role.policy}, agent {team.agents[0]!r}"
    if role.frozen is not None:
        spaces = (team.observation, team.action)
        for name, known, space in zip(("observation", "action"), role.trained_on, spaces, strict=True):
            if known != space:
                raise ValueError(f"{subject}: the frozen policy of {role.frozen} has a different {name} space")
    try:
        (role.algorithm if here else role.algorithm.on_cpu()).check(team.observation, team.action)
        role.algorithm.check_lanes(team.observation, team.action, num_rows)
        check_decision(role.algorithm, team.observation, team.action)
        flow = role.algorithm.dataflow()
        if isinstance(flow, Replay) and flow.transform is not None:
            flow.transform.build(team.observation, team.action)
    except ValueError as error:
        raise ValueError(str(error) if role.agents == "*" else f"{subject}: {error}") from error


def _evaluators(
    environment: LanesConfig, roles: tuple[Role, ...], options: TrainOptions, restart: RestartRule
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
    return WorkerGroup("evaluators", config, 1, resources, replace(restart, vital=False), EVALUATOR_FIXED)


def _group_name(kind: str, policy: str) -> str:
    return kind if policy == "policy" else f"{kind}-{policy}"
