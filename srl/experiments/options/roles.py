"""Roles: which agents play by which policy, and the settings of each."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LaneSpec, TeamSpec
from srl.api.spaces import Space
from srl.base.errors import nearest
from srl.experiments.options.algorithms import ALGORITHMS, absolute_name, build_algorithm
from srl.experiments.options.keywords import parse_pairs
from srl.experiments.options.train_options import TrainOptions
from srl.storage.saved_policies import find_checkpoint, read_policy

FROZEN, HORIZON, ALGO = "frozen", "horizon", "algo"


@dataclass(frozen=True)
class RoleOptions:
    """One role of a run."""

    agents: str
    """Pattern of the names of its agents."""
    policy: str
    algorithm: AlgorithmConfig
    horizon: int | None = None
    """Steps in a block; None: as in the run."""
    frozen: Path | None = None
    """Checkpoint of a policy that plays and does not learn."""
    trained_on: tuple[Space, ...] = ()
    """Observation and action space of a frozen policy."""


def role_patterns(spec: LaneSpec, roles: tuple[str, ...]) -> dict[str, str]:
    """The policy of each pattern of agents. By default, agents with the same spaces share a policy."""
    if roles:
        pairs = [role.partition(",")[0].partition("=") for role in roles]
        for role, (pattern, separator, policy) in zip(roles, pairs, strict=True):
            if not separator or not pattern or not policy:
                raise ValueError(
                    f"a role is written PATTERN=POLICY, e.g. 'seeker*=seekers', followed by settings as ',NAME=VALUE'; "
                    f"found {role!r}"
                )
        policies = [policy for _, _, policy in pairs]
        for policy in policies:
            if policies.count(policy) > 1:
                raise ValueError(f"policy {policy!r} is named by two roles; write one pattern that covers both")
        return {pattern: policy for pattern, _, policy in pairs}
    kinds: list[TeamSpec] = []
    for team in spec.teams:
        if all((team.observation, team.action) != (kind.observation, kind.action) for kind in kinds):
            kinds.append(team)
    if len(kinds) == 1:
        return {"*": "policy"}
    return {agent: agent for team in spec.teams for agent in team.agents}


def role_options(spec: LaneSpec, options: TrainOptions) -> tuple[RoleOptions, ...]:
    """Each role with its settings: 'seeker*=seekers,horizon=40,gamma=0.9' or 'hider*=hiders,frozen=RUN'."""
    patterns = role_patterns(spec, options.agents.roles)
    settings = {role.partition("=")[0]: role.partition(",")[2] for role in options.agents.roles}
    roles = tuple(_role(pattern, policy, settings.get(pattern, ""), options) for pattern, policy in patterns.items())
    if all(role.frozen for role in roles):
        raise ValueError(f"all roles are frozen, so nothing would learn: {', '.join(options.agents.roles)}")
    return roles


def with_checkpoints(roles: tuple[str, ...]) -> tuple[str, ...]:
    """The same roles with absolute paths: of the checkpoints of frozen policies, because `latest` may mean another one
    later, and of the files of the user's algorithms."""
    absolute = []
    for role in roles:
        named, _, settings = role.partition(",")
        own = parse_pairs(_split(settings))
        if (source := own.get(FROZEN)) is not None:
            _refuse_more(own, f"role {named}")
            role = f"{named},{FROZEN}={_checkpoint(str(source), f'role {named}')}"
        elif (algo := own.get(ALGO)) is not None:
            others = [part for part in _split(settings) if part.partition("=")[0] != ALGO]
            role = ",".join((named, f"{ALGO}={absolute_name(str(algo))}", *others))
        absolute.append(role)
    return tuple(absolute)


def _role(pattern: str, policy: str, settings: str, options: TrainOptions) -> RoleOptions:
    where = f"role {pattern}={policy}"
    own = parse_pairs(_split(settings))
    if (frozen := own.get(FROZEN)) is not None:
        _refuse_more(own, where)
        return _frozen(pattern, policy, _checkpoint(str(frozen), where), where)
    horizon = own.pop(HORIZON, None)
    if horizon is not None and (not isinstance(horizon, int) or horizon < 1):
        raise ValueError(f"{where}: horizon must be an integer of at least 1, found {horizon!r}")
    algo = own.pop(ALGO, None)
    algorithm = options.algorithm if algo is None else _algorithm(str(algo), where)
    return RoleOptions(pattern, policy, _changed(algorithm, own, where), horizon)


def _algorithm(algo: str, where: str) -> AlgorithmConfig:
    """A role's own algorithm, with its defaults."""
    if algo not in ALGORITHMS and ":" not in algo:
        raise ValueError(
            f"{where}: unknown algorithm {algo!r}{nearest(algo, ALGORITHMS)}; for your own, use path/file.py:Config"
        )
    try:
        return build_algorithm(algo)
    except (ImportError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _refuse_more(own: dict[str, Any], where: str) -> None:
    if len(own) > 1:
        others = ", ".join(name for name in own if name != FROZEN)
        raise ValueError(f"{where}: a frozen policy has no other settings; found {others}")


def _split(settings: str) -> list[str]:
    """Split at commas outside of brackets: hidden_sizes=[64,64] is one setting."""
    parts, depth = [""], 0
    for letter in settings:
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part]


def _changed(algorithm: AlgorithmConfig, own: dict[str, Any], where: str) -> AlgorithmConfig:
    config: Any = algorithm
    known = [field.name for field in dataclasses.fields(config) if field.init]
    for name, value in own.items():
        if name not in known:
            raise ValueError(f"{where}: unknown setting {name!r}{nearest(name, [FROZEN, HORIZON, ALGO, *known])}")
        if isinstance(value, list):
            own[name] = tuple(value)
    try:
        changed: AlgorithmConfig = dataclasses.replace(config, **own)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    return changed


def _checkpoint(source: str, where: str) -> Path:
    """The directory of RUN or RUN@CHECKPOINT."""
    run, _, which = source.partition("@")
    try:
        return find_checkpoint(run, which or "latest").resolve()
    except (LookupError, OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _frozen(pattern: str, policy: str, checkpoint: Path, where: str) -> RoleOptions:
    try:
        saved = read_policy(checkpoint, policy, or_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    return RoleOptions(pattern, policy, saved.algorithm, None, checkpoint, (saved.observation, saved.action))
