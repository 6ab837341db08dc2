"""The episode player: shares of lanes, limits, and ends that do not count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.counting import CountingPolicy

from srl.api.lanes import Lanes, LaneSpec, TeamSpec, TimeStep
from srl.api.policy import Policy
from srl.api.spaces import Box, Discrete
from srl.environments.registry import lanes_config
from srl.workers.episode_player import EpisodePlayer


class Countdown(Lanes):
    """Lane i plays episodes of i + 1 steps with reward 1 each; every third end of lane 0 is only a lost life."""

    def __init__(self, num_copies: int, lives: bool = False) -> None:
        self.spec = LaneSpec("countdown", num_copies, (TeamSpec("agent", ("agent",), Box((1,)), Discrete(3)),))
        self._lives = lives
        self.actions: list[Any] = []

    def reset(self, seed: int) -> tuple[TimeStep, ...]:
        count = self.spec.num_copies
        self._elapsed, self._ended = np.zeros(count, int), np.zeros(count, bool)
        self._ends = 0
        return (self._time_step(np.zeros(count, np.float32), np.ones(count, bool)),)

    def step(self, actions: tuple[Any, ...]) -> tuple[TimeStep, ...]:
        self.actions.append(actions[0].copy())
        first = self._ended
        self._elapsed = np.where(first, 0, self._elapsed + 1)
        self._ended = self._elapsed == np.arange(len(first)) + 1
        time_step = self._time_step((~first).astype(np.float32), first)
        if self._lives and self._ended[0]:
            self._ends += 1
            time_step.facts = {"return": np.where(self._ends % 3 == 0, 100.0, np.nan) + np.zeros(len(first))}
        return (time_step,)

    def _time_step(self, reward: Any, first: Any) -> TimeStep:
        none = np.zeros(len(reward), bool)
        observation = self._elapsed[:, None].astype(np.float32)
        return TimeStep(observation, reward, self._ended.copy(), none, ~self._ended, first)

    def close(self) -> None: ...


class Goals(Countdown):
    """Lane 1 succeeds in all of its episodes; lane 0 does not know."""

    def step(self, actions: tuple[Any, ...]) -> tuple[TimeStep, ...]:
        (time_step,) = super().step(actions)
        time_step.facts = {"is_success": np.array([np.nan, 1.0])}
        return (time_step,)


def test_facts_of_the_counted_episodes_are_kept_without_nan() -> None:
    player = EpisodePlayer(Goals(2), {"policy": Remembering()}, {"*": "policy"})
    player.play(0, 4)
    assert player.results()["policy"].facts == {"is_success": [1.0, 1.0]}


class Remembering(Policy):
    """Counts the decisions of each lane since the start of its episode in its state, and acts by that count."""

    version = 0

    def __init__(self) -> None:
        self.greedy: list[bool] = []

    def act(self, observation: Any, state: Any, first: Any, *, greedy: bool = False) -> Any:
        self.greedy.append(greedy)
        count = np.zeros(len(first)) if state is None else state["count"]
        count = np.where(first, 0.0, count)
        assert (count == observation[:, 0]).all()  # the memory is that of this very lane
        return {"action": count.astype(np.int64) % 3, "state": {"count": count + 1}}

    def load(self, parameters: Any, version: int) -> None: ...


def test_every_lane_plays_its_share_to_the_end_and_keeps_its_memory() -> None:
    policy = Remembering()
    player = EpisodePlayer(Countdown(3), {"policy": policy}, {"*": "policy"})
    player.begin(seed=0, episodes=7)  # the first lane plays one more
    while not player.done:
        player.step()
    played = player.results()["policy"]
    assert sorted(played.returns) == sorted(played.lengths) == [1, 1, 1, 2, 2, 3, 3]
    assert played.truncated == 0
    assert all(policy.greedy)


def test_lanes_that_do_not_act_get_zeros() -> None:
    lanes = Countdown(2)
    player = EpisodePlayer(lanes, {"policy": Remembering()}, {"*": "policy"}, greedy=False)
    player.begin(0, 1)
    for _ in range(3):
        player.step()
    assert [actions.tolist() for actions in lanes.actions] == [[0, 0], [0, 1], [0, 0]]


def test_a_lost_life_does_not_count_as_an_episode() -> None:
    player = EpisodePlayer(Countdown(1, lives=True), {"policy": Remembering()}, {"*": "policy"})
    player.begin(0, 2)
    while not player.done:
        player.step()
    assert player.results()["policy"].returns == [100.0, 100.0]


def test_an_episode_is_truncated_at_the_limit_and_its_lane_continues_after_its_end() -> None:
    lanes = Countdown(3)
    player = EpisodePlayer(lanes, {"policy": Remembering()}, {"*": "policy"}, max_steps=2)
    player.play(seed=0, episodes=7)
    played = player.results()["policy"]
    assert sorted(played.returns) == sorted(played.lengths) == [1, 1, 1, 2, 2, 2, 2]
    assert played.truncated == 2, "those of three steps, not those that end at the limit by themselves"
    assert len(lanes.actions) == 6, "the second cut is two steps into the second episode of the third lane"


def test_a_truncated_game_includes_all_its_lives() -> None:
    """The game loses a life at each odd step, with a reward of 1, and continues with the next at each even step."""
    player = EpisodePlayer(Countdown(1, lives=True), {"policy": Remembering()}, {"*": "policy"}, max_steps=4)
    player.play(seed=0, episodes=1)
    assert player.results()["policy"].returns == [2.0]


def test_all_copies_are_reset_until_every_lane_has_its_share_if_no_episode_ends() -> None:
    """One agent dies at its second step, the other never does."""
    lanes = lanes_config("pettingzoo:support.games:DyingTeam", deaths=(2, 10**6)).build(2)
    player = EpisodePlayer(lanes, {"policy": CountingPolicy()}, {"*": "policy"}, max_steps=3)
    player.play(seed=0, episodes=3)
    lanes.close()
    played = player.results()["policy"]
    assert sorted(played.returns) == [1 + 2] * 3 + [101 + 102 + 103] * 3
    assert (sorted(played.lengths), played.truncated) == ([2, 2, 2, 3, 3, 3], 3)


def test_an_agent_without_a_policy_is_refused() -> None:
    with pytest.raises(ValueError, match="must match exactly one role"):
        EpisodePlayer(Countdown(1), {"policy": Remembering()}, {"seeker*": "policy"})
