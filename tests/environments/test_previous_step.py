"""Previous actions and rewards in observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import srl
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete
from srl.environments.adapters.previous_step import PreviousStepConfig
from srl.environments.conversion import previous_action, previous_action_space
from srl.environments.registry import lanes_config
from srl.testing.probe_environments import Explored


def lanes_of(length: int) -> Any:
    return PreviousStepConfig(lanes_config(Explored, length=length)).build(2)


def previous(time_step: Any) -> tuple[list[int], list[float]]:
    seen = time_step.observation
    return seen["previous_action"].tolist(), seen["previous_reward"].tolist()


def test_observations_have_the_last_action_counted_from_1_and_its_reward() -> None:
    lanes = lanes_of(length=2)
    assert lanes.spec.teams[0].observation.items["previous_action"] == Discrete(3)
    (start,) = lanes.reset(seed=3)
    assert previous(start) == ([0, 0], [0.0, 0.0])
    (second,) = lanes.step((np.array([0, 1]),))
    assert previous(second) == ([1, 2], second.reward.tolist())
    (last,) = lanes.step((np.array([1, 1]),))
    assert last.truncated.all()
    assert previous(last) == ([2, 2], last.reward.tolist())
    assert sorted(second.reward.tolist() + last.reward.tolist())[-1] == 1.0, "some action was right"
    (first,) = lanes.step((np.array([1, 0]),))
    assert first.first.all()
    assert previous(first) == ([0, 0], [0.0, 0.0]), "nothing is known of the previous episode"


def test_saved_lanes_continue_with_the_same_previous_step() -> None:
    def played(lanes: Any, actions: list[list[int]]) -> list[Any]:
        return [previous(lanes.step((np.array(action),))[0]) for action in actions]

    lanes = PreviousStepConfig(lanes_config("CartPole-v1")).build(2)
    lanes.reset(seed=0)
    played(lanes, [[0, 1]])
    restored: Any = PreviousStepConfig(lanes_config("CartPole-v1")).build(2)
    restored.restore(lanes.state())
    assert restored._actions[0].tolist() == [1, 2]
    assert played(restored, [[1, 1], [0, 1]]) == played(lanes, [[1, 1], [0, 1]])


def test_previous_actions_of_all_spaces_are_observations() -> None:
    box = Box((2,), "float32", -1.0, 2.0)
    space = Dict({"move": box, "turn": MultiDiscrete((2, 3))})
    assert previous_action_space(space) == Dict({"move": box, "turn": MultiDiscrete((3, 4))})
    found: Any = previous_action(space, {"move": np.array([[-5.0, 5.0]]), "turn": np.array([[1, 2]])})
    assert found["move"].tolist() == [[-1.0, 2.0]], "as the environment gets it"
    assert found["turn"].tolist() == [[2, 3]]


class Named(gymnasium.Env[Any, int]):
    observation_space = gymnasium.spaces.Dict({"previous_reward": gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)})
    action_space = gymnasium.spaces.Discrete(2)


def test_a_key_that_is_taken_is_an_error() -> None:
    with pytest.raises(ValueError, match="already has a key 'previous_reward'"):
        PreviousStepConfig(lanes_config(Named)).build(1)


class _Tuples(Explored):
    def __init__(self) -> None:
        super().__init__()
        one = self.observation_space
        self.observation_space = gymnasium.spaces.Tuple((one, one))

    def observe(self) -> Any:
        return (super().observe(), super().observe())


def test_a_tuple_becomes_one_part_of_the_observation() -> None:
    lanes: Any = PreviousStepConfig(lanes_config(_Tuples)).build(2)
    (start,) = lanes.reset(seed=0)
    assert start.observation["observation"]["1"].shape == (2, 1)
    assert sorted(lanes.spec.teams[0].observation.items) == ["observation", "previous_action", "previous_reward"]


@pytest.mark.parametrize("algo", ["ppo", "r2d2"])
def test_policies_with_a_memory_train_with_previous_steps_and_act_when_loaded(algo: str, tmp_path: Path) -> None:
    sizes = {"chunk": 4, "learning_starts": 32} if algo == "r2d2" else {"memory": "gru", "chunk": 4}
    more: dict[str, Any] = {algo: {**sizes, **({"burn_in": 0, "period": 4} if algo == "r2d2" else {})}}
    run = srl.train(
        Explored, algo=algo, steps=256, scheduler="inline", previous_step=True, root=tmp_path, lanes=4, horizon=8,
        batch=32, **more,
    )  # fmt: skip
    assert srl.evaluate(run.path, episodes=4).mean >= 0.0
    policy = srl.load(run.path)
    seen: list[Any] = []
    inner = policy.policy.act

    def act(tree: Any, *rest: Any, **named: Any) -> Any:
        seen.append(tree)
        return inner(tree, *rest, **named)

    policy.policy.act = act  # type: ignore[assignment, method-assign]
    one = np.ones(1, np.float32)
    action = policy.act(one)
    policy.act(one, reward=0.5)
    assert seen[0]["previous_action"].tolist() == [0]
    assert (seen[1]["previous_action"].tolist(), seen[1]["previous_reward"].tolist()) == ([action + 1], [0.5])
    policy.reset()
    batch = np.ones((2, 1), np.float32)
    actions = policy.act(batch)
    policy.act(batch, reward=np.array([0.5, 0.25]), first=np.array([False, True]))
    assert seen[3]["previous_action"].tolist() == [actions[0] + 1, 0]
    assert seen[3]["previous_reward"].tolist() == [0.5, 0.0]
