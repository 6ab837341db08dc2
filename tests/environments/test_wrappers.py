"""Wrappers: one decision for several steps, without anything carried beyond an episode, and smaller images."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from support.trees import leaf

import srl
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.adapters.wrappers import SmallerImages, shrunk
from srl.environments.failures import EnvironmentBroken
from srl.environments.registry import lanes_config
from srl.experiments.graph.preparation import prepare
from srl.experiments.options.keywords import merged
from srl.experiments.options.train_options import TrainOptions

TRACER = "srl.testing.environments:Tracer"


@pytest.mark.parametrize("truncate", [False, True])
def test_rewards_are_summed_and_an_episode_may_end_within_a_decision(truncate: bool) -> None:
    lanes = lanes_config(TRACER, length=5, truncate=truncate).with_action_repeat(3).build(2)
    lanes.reset(0)
    rows = []
    for _ in range(5):
        (time_step,) = lanes.step((np.zeros(2, np.int64),))
        ended = time_step.truncated if truncate else time_step.terminated
        _, episode, t = leaf(time_step.observation)[1].tolist()
        rows.append((episode, t, float(time_step.reward[1]), bool(ended[1]), bool(time_step.acting[1])))
    lanes.close()
    assert rows == [
        (0, 3, 1 + 2 + 3, False, True),
        (0, 5, 4 + 5, True, False),
        (1, 0, 0, False, True),  # the step that resets
        (1, 3, 1 + 2 + 3, False, True),
        (1, 5, 4 + 5, True, False),
    ]


@pytest.mark.parametrize(
    "config",
    [
        lanes_config("Pendulum-v1", max_episode_steps=5),
        GymnasiumConfig(TRACER, {"length": 9}, located=True, max_episode_steps=5),
    ],
)
def test_a_time_limit_counts_steps_and_not_decisions(config: GymnasiumConfig) -> None:
    lanes = config.with_action_repeat(3).build(1)
    lanes.reset(0)
    action = np.zeros((1, 1), np.float32) if "Pendulum" in config.name else np.zeros(1, np.int64)
    assert [bool(lanes.step((action,))[0].truncated[0]) for _ in range(4)] == [False, True, False, False]
    lanes.close()


def test_environments_that_cannot_repeat_actions_are_refused() -> None:
    with pytest.raises(ValueError, match="CartPole-v1 does not run as one"):
        lanes_config("CartPole-v1").with_action_repeat(2)
    with pytest.raises(ValueError, match="action_repeat must be at least 1, found 0"):
        srl.train("Pendulum-v1", action_repeat=0)


def test_a_run_keeps_its_action_repeat(tmp_path) -> None:
    run = srl.train(TRACER, env_args={"length": 6}, action_repeat=3, scheduler="inline", steps=64, root=tmp_path)
    assert run.status.length_mean == 2
    assert run.status.return_mean == 21
    assert srl.evaluate(run.path, episodes=2).lengths == (2, 2)


class Camera(gymnasium.Env[Any, Any]):
    """Left half red, right half green; beside it a number."""

    observation_space: Any = gymnasium.spaces.Dict(
        {"camera": gymnasium.spaces.Box(0, 255, (200, 300, 3), np.uint8), "speed": gymnasium.spaces.Box(-1, 1, (1,))}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        image = np.zeros((200, 300, 3), np.uint8)
        image[:, :150, 0] = image[:, 150:, 1] = 200
        return {"camera": image, "speed": np.zeros(1, np.float32)}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.reset()[0], 0.0, False, False, {}


def test_images_are_resized_and_lose_their_colors_while_numbers_stay() -> None:
    small = SmallerImages(Camera(), 10, grayscale=True)
    observation, _ = small.reset()
    assert small.observation_space.contains(observation)
    assert observation["camera"].tolist() == [[60] * 5 + [117] * 5] * 10  # 0.299 and 0.587 of 200
    colored, _ = SmallerImages(Camera(), 10, grayscale=False).reset()
    assert colored["camera"][0, 0].tolist() == [200, 0, 0]


def test_pixels_are_means_of_those_they_replace_and_repeat_where_there_are_too_few() -> None:
    image = np.arange(12, dtype=np.uint8).reshape(4, 3)
    assert shrunk(image, 2).tolist() == [[1.5, 3.0], [7.5, 9.0]]
    assert shrunk(image[:1, :1], 2).tolist() == [[0, 0], [0, 0]]


def test_the_options_of_a_run_shrink_images_and_large_ones_get_a_hint() -> None:
    run = prepare(Camera, *merged(TrainOptions(), {"scheduler": "inline"}))
    assert "hint: images of 200 x 300 x 3 slow down" in run.summary
    assert "--image-size 84" in run.summary
    small = prepare(Camera, *merged(TrainOptions(), {"scheduler": "inline", "image_size": 40, "grayscale": True}))
    assert "hint" not in small.summary
    observation: Any = small.profile.spec.teams[0].observation
    assert observation.items["camera"].shape == (40, 40)
    with pytest.raises(EnvironmentBroken, match=r"need images in the observation"):
        prepare("Pendulum-v1", *merged(TrainOptions(), {"grayscale": True}))
    with pytest.raises(ValueError, match=r"need a plain Gymnasium environment, and CartPole-v1 does not run as one"):
        prepare("CartPole-v1", *merged(TrainOptions(), {"image_size": 40}))
