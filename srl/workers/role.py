"""A role: the policy, algorithm and streams of the agents whose names match a pattern."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from srl.api.algorithm import AlgorithmConfig
from srl.api.lanes import LaneSpec
from srl.api.spaces import Space
from srl.api.streams import StreamEnd
from srl.streams.push import PushStream
from srl.streams.request import RequestStream


@dataclass(frozen=True)
class Role:
    """Policy, algorithm and streams of the agents whose names match the pattern `agents`."""

    policy: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    samples: PushStream
    inference: RequestStream | None = None  # stream to the policy workers; None: the policy runs inside the actor
    agents: str = "*"
    aligned: bool = True
    frozen: bool = False  # whether the policy does not learn; if so, its lanes are not recorded

    def ends(self) -> list[StreamEnd]:
        """Return the stream endpoints that an actor with this role holds."""
        samples = [] if self.frozen else [self.samples.end("source")]
        if self.inference is not None:
            return [*samples, self.inference.end("source")]
        name = self.policy
        inline = [StreamEnd(name, "request", "source", "inline"), StreamEnd(name, "request", "target", "inline")]
        return [*samples, *inline, StreamEnd(name, "parameters", "target")]


def assign_teams(spec: LaneSpec, patterns: tuple[str, ...]) -> list[list[int]]:
    """Return the teams that match each pattern. Raises ValueError unless every agent matches exactly one."""
    agents = [agent for team in spec.teams for agent in team.agents]
    matches = {agent: [pattern for pattern in patterns if fnmatchcase(agent, pattern)] for agent in agents}
    unmatched = [pattern for pattern in patterns if not any(pattern in found for found in matches.values())]
    problems = [
        f"agent {agent!r} matches {'the roles ' + ', '.join(map(repr, found)) if found else 'no role'}"
        for agent, found in matches.items()
        if len(found) != 1
    ]
    problems += [f"role {pattern!r} matches no agent" for pattern in unmatched]
    if problems:
        raise ValueError(
            f"{spec.environment}: every agent must match exactly one role, and every role an agent: "
            f"{'; '.join(problems)}. Agents: {', '.join(agents)}. Roles: {', '.join(patterns)}"
        )
    teams: list[list[int]] = [[] for _ in patterns]
    for index, team in enumerate(spec.teams):
        (role, *others) = sorted({patterns.index(matches[agent][0]) for agent in team.agents})
        if others:
            raise ValueError(
                f"{spec.environment}: agents {', '.join(team.agents)} are one team, whose lanes share their arrays and "
                f"a policy, but match the roles {', '.join(patterns[p] for p in (role, *others))}"
            )
        teams[role].append(index)
    for pattern, members in zip(patterns, teams, strict=True):
        first = spec.teams[members[0]]
        for other in (spec.teams[m] for m in members[1:]):
            if (other.observation, other.action) != (first.observation, first.action):
                raise ValueError(
                    f"{spec.environment}: agents {first.agents[0]!r} and {other.agents[0]!r} share role {pattern!r} "
                    f"but not their spaces; give each its own role"
                )
    return teams
