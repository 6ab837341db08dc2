"""One decision for several steps: rewards are summed, and nothing is carried beyond the end of an episode."""

from __future__ import annotations

import numpy as np
import pytest
from support.trees import leaf

import srl
from srl.environments.adapters.gymnasium import GymnasiumConfig
from srl.environments.registry import lanes_config

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
