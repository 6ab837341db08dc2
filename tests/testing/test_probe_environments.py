"""Behavior of the probe environments, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from srl.testing import probe_environments as probes
from srl.testing.probe_cases import CASES, KnownValue


def play(environment: Any, *actions: int, seed: int | None = 0) -> list[tuple[list[float], float, bool, bool]]:
    """Return observation, reward, terminated and truncated of each step; the reset is the first."""
    observation, _ = environment.reset(seed=seed)
    story = [(observation.tolist(), 0.0, False, False)]
    for action in actions:
        observation, reward, terminated, truncated, _ = environment.step(action)
        story.append((observation.tolist(), reward, terminated, truncated))
    return story


def test_rewards_are_as_documented() -> None:
    assert play(probes.ConstantReward(), 0)[-1] == ([1.0], 1.0, True, False)
    (seen, *_), (_, reward, ended, _) = play(probes.SeenReward(), 0)
    assert ([reward], ended) == (seen, True)
    assert play(probes.DelayedReward(), 0, 0) == [
        ([-1.0], 0.0, False, False),
        ([1.0], 0.0, False, False),
        ([1.0], 1.0, True, False),
    ]
    assert [play(probes.ChosenReward(), action)[-1][1] for action in (0, 1)] == [-1.0, 1.0]


def test_only_the_first_action_is_rewarded() -> None:
    cue = play(probes.CreditedReward())[0][0][0]
    right = int(cue > 0)
    assert [row[1] for row in play(probes.CreditedReward(), right, 0)] == [0.0, 0.0, 1.0]
    assert [row[1] for row in play(probes.CreditedReward(), 1 - right, 1)] == [0.0, 0.0, -1.0]


def test_endless_is_truncated_or_terminated() -> None:
    assert play(probes.Endless(length=2), 0, 0)[-1] == ([1.0], 0.2, False, True)
    assert play(probes.Endless(length=2, terminates=True), 0, 0)[-1] == ([1.0], 0.2, True, False)


def test_the_cue_to_remember_is_hidden_at_the_end() -> None:
    story = play(probes.Remembered(), 0, 0, 0)
    cue = story[0][0][0]
    assert abs(cue) == 1.0
    assert [row[0] for row in story[1:3]] == [[0.0, 0.0], [0.0, 1.0]]
    right = int(cue > 0)
    assert play(probes.Remembered(), 0, 0, right)[-1][1:3] == (1.0, True)
    assert play(probes.Remembered(), 0, 0, 1 - right)[-1][1:3] == (0.0, True)


def test_the_leak_rewards_the_cue_of_the_previous_episode() -> None:
    environment = probes.Leaking()
    shown = play(environment, 0)[1][0][0]
    observation, _ = environment.reset()
    assert observation.tolist() == [0.0]
    assert environment.step(int(shown > 0))[1] == 1.0
    assert environment.step(0)[2]


def test_the_masked_action_is_the_worst() -> None:
    environment = probes.Masked()
    observation, _ = environment.reset(seed=0)
    assert observation["action_mask"].tolist() == [1, 1, 0]
    assert [environment.step(action)[1] for action in range(3)] == [0.0, 1.0, -1.0]


def test_each_agent_is_rewarded_for_its_own_action() -> None:
    pytest.importorskip("pettingzoo")
    game = probes.turn_bonus()
    game.reset(seed=0)
    earned = {"agent_0": 0.0, "agent_1": 0.0}
    for agent in game.agent_iter():
        _, reward, terminated, _, _ = game.last()
        earned[agent] += reward
        game.step(None if terminated else int(agent == "agent_0"))
    assert earned == {"agent_0": 2.0, "agent_1": 0.0}


def test_values_are_discounted_sums() -> None:
    assert KnownValue("", (0.0,), (0.0, 1.0)).value(0.9) == pytest.approx(0.9)
    assert KnownValue("", (0.0,), (1.0, 1.0)).value(0.5) == 1.5
    assert KnownValue("", (0.0,), (0.2,), forever=True).value(0.9) == pytest.approx(2.0)
    assert KnownValue("", (0.0,), (3.0, 1.0), forever=True).value(0.5) == pytest.approx(3.0 + 1.0)
    assert len({case.name for case in CASES}) == len(CASES)
