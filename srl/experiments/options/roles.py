"""How a user names roles: which agents play by which policy, and what is different about one of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LaneSpec, TeamSpec
from srl.api.spaces import Space
from srl.base.errors import nearest
from srl.experiments.options.arguments import parse_pairs
from srl.experiments.options.named import algorithm_of, anchored_name
from srl.experiments.options.train_options import ALGORITHMS, TrainOptions
from srl.results.load import find_checkpoint, read_policy

FROZEN, HORIZON, ALGO = "frozen", "horizon", "algo"


@dataclass(frozen=True)
class RoleOptions:
    agents: str
    policy: str
    algorithm: AlgorithmConfig
    horizon: int | None = None
    """Steps in a block; None: the run's."""
    frozen: Path | None = None
    """The checkpoint whose policy plays here and does not learn."""
    trained_on: tuple[Space, ...] = ()
    """Observation and action of a frozen policy."""


def role_patterns(spec: LaneSpec, roles: tuple[str, ...]) -> dict[str, str]:
    """Pattern -> policy. Without a word from the user, agents with the same spaces share a policy."""
    if roles:
        pairs = [role.partition(",")[0].partition("=") for role in roles]
        for role, (pattern, separator, policy) in zip(roles, pairs, strict=True):
            if not separator or not pattern or not policy:
                raise ValueError(
                    f"a role is written PATTERN=POLICY, e.g. 'seeker*=seekers', with ',NAME=VALUE' behind it for "
                    f"settings of its own; found {role!r}"
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
    """Each role with its own settings: 'seeker*=seekers,horizon=40,gamma=0.9' or 'hider*=hiders,frozen=RUN'."""
    patterns = role_patterns(spec, options.roles)
    settings = {role.partition("=")[0]: role.partition(",")[2] for role in options.roles}
    roles = tuple(_role(pattern, policy, settings.get(pattern, ""), options) for pattern, policy in patterns.items())
    if all(role.frozen for role in roles):
        raise ValueError(f"all roles are frozen, so nothing would learn: {', '.join(options.roles)}")
    return roles


def with_checkpoints(roles: tuple[str, ...]) -> tuple[str, ...]:
    """The same roles, frozen policies named by the whole path of their checkpoints (`latest` may be another later), and
    algorithms of one's own by that of their files."""
    anchored = []
    for role in roles:
        named, _, settings = role.partition(",")
        own = parse_pairs(_split(settings))
        if (source := own.get(FROZEN)) is not None:
            _refuse_more(own, f"role {named}")
            role = f"{named},{FROZEN}={_checkpoint(str(source), f'role {named}')}"
        elif (algo := own.get(ALGO)) is not None:
            others = [part for part in _split(settings) if part.partition("=")[0] != ALGO]
            role = ",".join((named, f"{ALGO}={anchored_name(str(algo))}", *others))
        anchored.append(role)
    return tuple(anchored)


def _role(pattern: str, policy: str, settings: str, options: TrainOptions) -> RoleOptions:
    where = f"role {pattern}={policy}"
    own = parse_pairs(_split(settings))
    if (frozen := own.get(FROZEN)) is not None:
        _refuse_more(own, where)
        return _frozen(pattern, policy, _checkpoint(str(frozen), where), where)
    horizon = own.pop(HORIZON, None)
    if horizon is not None and (not isinstance(horizon, int) or horizon < 1):
        raise ValueError(f"{where}: horizon must be a whole number of at least 1, found {horizon!r}")
    algo = own.pop(ALGO, None)
    algorithm = algorithm_of(options) if algo is None else _algorithm(str(algo), options, where)
    return RoleOptions(pattern, policy, _changed(algorithm, own, where), horizon)


def _algorithm(algo: str, options: TrainOptions, where: str) -> AlgorithmConfig:
    """A role's own: one of ours with the run's options for it, or one of the user's as it is."""
    if algo not in ALGORITHMS and ":" not in algo:
        raise ValueError(
            f"{where}: no algorithm {algo!r}{nearest(algo, ALGORITHMS)}; one of your own is written path/file.py:Config"
        )
    try:
        return algorithm_of(dataclasses.replace(options, algo=algo, algo_args={}))
    except (ImportError, TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error


def _refuse_more(own: dict[str, Any], where: str) -> None:
    if len(own) > 1:
        others = ", ".join(name for name in own if name != FROZEN)
        raise ValueError(f"{where}: a frozen policy has no other settings; found {others}")


def _split(settings: str) -> list[str]:
    """At the commas that are not within brackets: hidden_sizes=[64,64] is one setting."""
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
            raise ValueError(f"{where}: no setting {name!r}{nearest(name, [FROZEN, HORIZON, ALGO, *known])}")
        if isinstance(value, list):
            own[name] = tuple(value)
    try:
        changed: AlgorithmConfig = dataclasses.replace(config, **own)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
    return changed


def _checkpoint(source: str, where: str) -> Path:
    """The directory that RUN or RUN@CHECKPOINT means."""
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
