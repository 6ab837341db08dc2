"""Roles: assignment of agents to policies, with settings for each policy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from srl.algorithms.offline.config import NO_EXPERT, DAggerConfig
from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LaneSpec
from srl.api.spaces import Space
from srl.base.config import TrustCode
from srl.base.errors import did_you_mean
from srl.experiments.options.algorithms import absolute_name, build_algorithm, title_of, with_settings
from srl.experiments.options.setting_texts import parse_pairs, parse_role, setting
from srl.experiments.options.train_options import TrainOptions
from srl.storage.saved_policies import SavedExpert, find_checkpoint, read_policy

FROZEN, HORIZON, ALGO = "frozen", "horizon", "algo"


@dataclass(frozen=True)
class RoleOptions:
    """One role of a run."""

    agents: str  # pattern that matches the names of its agents
    policy: str
    algorithm: AlgorithmConfig
    horizon: int | None = None  # steps in a block; None: as in the run
    frozen: Path | None = None  # checkpoint of a policy that plays but does not learn
    trained_on: tuple[Space, ...] = ()  # observation and action space of a frozen policy


def role_patterns(spec: LaneSpec, roles: tuple[str, ...]) -> dict[str, str]:
    """Return the policy for each pattern of agent names. By default, all agents share one if their spaces are equal,
    else each has its own."""
    if roles:
        parsed = [parse_role(role) for role in roles]
        policies = [policy for _, policy, _ in parsed]
        for policy in policies:
            if policies.count(policy) > 1:
                raise ValueError(f"two roles have the policy {policy!r}; write one pattern that covers both")
        return {pattern: policy for pattern, policy, _ in parsed}
    first = spec.teams[0]
    if all((team.observation, team.action) == (first.observation, first.action) for team in spec.teams):
        return {"*": "policy"}
    return {agent: agent for team in spec.teams for agent in team.agents}


def role_options(spec: LaneSpec, options: TrainOptions, trust_code: TrustCode = False) -> tuple[RoleOptions, ...]:
    """Return the roles with their settings: 'seeker*=seekers,horizon=40,gamma=0.9' or 'hider*=hiders,frozen=RUN'.
    `trust_code` is for the checkpoints of frozen policies."""
    patterns = role_patterns(spec, options.agents.roles)
    settings = {pattern: own for pattern, _, own in map(parse_role, options.agents.roles)}
    named = [(pattern, policy, settings.get(pattern, [])) for pattern, policy in patterns.items()]
    roles = tuple(_role(*each, options, trust_code) for each in named)
    if all(role.frozen for role in roles):
        raise ValueError(f"all roles are frozen, so nothing would learn: {', '.join(options.agents.roles)}")
    return roles


def with_checkpoints(roles: tuple[str, ...]) -> tuple[str, ...]:
    """Return the roles with absolute paths for the checkpoints of frozen policies, because `latest` may change, and for
    the files of users' algorithms."""
    absolute = []
    for role in roles:
        pattern, policy, parts = parse_role(role)
        named, own = f"{pattern}={policy}", parse_pairs(parts)
        with _naming(f"role {named}"):
            if FROZEN in own:
                parts = [setting(FROZEN, str(_checkpoint(own)))]
            elif ALGO in own:
                others = [part for part in parts if part.partition("=")[0] != ALGO]
                parts = [setting(ALGO, absolute_name(str(own[ALGO]))), *others]
        absolute.append(",".join((named, *parts)))
    return tuple(absolute)


@contextlib.contextmanager
def _naming(role: str) -> Iterator[None]:
    """Prefix error messages with the role."""
    try:
        yield
    except (ImportError, LookupError, OSError, RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"{role}: {error}") from error


def _role(pattern: str, policy: str, settings: list[str], options: TrainOptions, trust_code: TrustCode) -> RoleOptions:
    own = parse_pairs(settings)
    is_named = bool(options.agents.roles) or pattern != "*"
    with _naming(f"role {pattern}={policy}") if is_named else contextlib.nullcontext():
        if FROZEN in own:
            checkpoint = _checkpoint(own)
            saved = read_policy(checkpoint, policy, or_only=True, trust_code=trust_code)
            return RoleOptions(pattern, policy, saved.algorithm, None, checkpoint, (saved.observation, saved.action))
        horizon = own.pop(HORIZON, None)
        if horizon is not None and (not isinstance(horizon, int) or horizon < 1):
            raise ValueError(f"horizon must be an integer of at least 1, found {horizon!r}")
        algo = str(own.pop(ALGO, options.algo))
        algorithm = options.algorithm if algo == options.algo else build_algorithm(algo)
        for name in own:
            if close := did_you_mean(name, (FROZEN, HORIZON, ALGO), cutoff=0.75):
                raise ValueError(f"no setting {name!r}{close}")
        algorithm = with_expert(with_settings(algorithm, own, title_of(algo)), trust_code)
        return RoleOptions(pattern, policy, algorithm, horizon)


def with_expert(algorithm: AlgorithmConfig, trust_code: TrustCode) -> AlgorithmConfig:
    """Return an algorithm that learns from an expert with this expert, if it is the policy of a run."""
    if not isinstance(algorithm, DAggerConfig):
        return algorithm
    if not algorithm.expert:
        raise ValueError(f"{algorithm.title} {NO_EXPERT}")
    if ":" in algorithm.expert:
        return algorithm
    return replace(algorithm, source=SavedExpert.read(_chosen(algorithm.expert), trust_code))


def with_expert_path(options: TrainOptions) -> TrainOptions:
    """Return the options with an absolute path of the expert's checkpoint or file, because `latest` may change."""
    algorithm = options.algorithm
    if not isinstance(algorithm, DAggerConfig) or not algorithm.expert:
        return options
    expert = algorithm.expert
    path = absolute_name(expert) if ":" in expert else str(_chosen(expert))
    return options.replace(algorithm=replace(algorithm, expert=path))


def _checkpoint(own: Mapping[str, Any]) -> Path:
    """Return the checkpoint directory that the setting `frozen` refers to as RUN or RUN@CHECKPOINT."""
    if len(own) > 1:
        raise ValueError(f"a frozen policy has no other settings; found {', '.join(own.keys() - {FROZEN})}")
    return _chosen(str(own[FROZEN]))


def _chosen(text: str) -> Path:
    """Return the checkpoint that RUN or RUN@CHECKPOINT refers to."""
    run, _, which = text.partition("@")
    return find_checkpoint(run, which or "latest").resolve()
