"""Roles: the policy of each agent, and errors that name the agent."""

from __future__ import annotations

import re

import pytest

from srl.api.lanes import LaneSpec, TeamSpec
from srl.api.spaces import Box, Discrete, Space
from srl.workers.role import assign_teams

SMALL, LARGE = Box((2,)), Box((5,))


def team(*agents: str, observation: Space = SMALL) -> TeamSpec:
    return TeamSpec(agents[0], agents, observation, Discrete(2))


SPEC = LaneSpec("Hide", 1, (team("hider_0", "hider_1"), team("seeker_0", observation=LARGE), team("hider_9")))


def test_every_team_goes_to_the_role_that_covers_it() -> None:
    assert assign_teams(SPEC, ("seeker*", "hider*")) == [[1], [0, 2]]
    assert assign_teams(LaneSpec("One", 3, (team("agent"),)), ("*",)) == [[0]]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (("hider*",), "agent 'seeker_0' matches no role"),
        (("hider*", "seeker*", "*_0"), "agent 'hider_0' matches the roles 'hider*', '*_0'"),
        (("hider*", "seeker*", "*"), "agent 'hider_0' matches the roles 'hider*', '*'"),
        (
            ("hider_0", "hider_[19]", "seeker*"),
            "Hide: agents hider_0, hider_1 are one team, whose lanes share their arrays and a policy, but match the "
            "roles hider_0, hider_[19]",
        ),
        (("hid*", "seekers*"), "agent 'seeker_0' matches no role; role 'seekers*' matches no agent."),
        (("hider*", "seeker*", "ghost*"), "role 'ghost*' matches no agent. Agents: hider_0, hider_1"),
    ],
)
def test_agents_without_a_matching_role_are_named(patterns: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        assign_teams(SPEC, patterns)


def test_agents_of_one_role_must_have_the_same_spaces() -> None:
    spec = LaneSpec("Mixed", 1, (team("one"), team("other", observation=LARGE)))
    message = "agents 'one' and 'other' share role '*' but not their spaces; give each its own role"
    with pytest.raises(ValueError, match=re.escape(message)):
        assign_teams(spec, ("*",))
