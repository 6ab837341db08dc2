"""EnvPool tasks, if EnvPool is installed."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from srl.environments.adapters.envpool import EnvPoolConfig, prepared


def test_rewards_are_clipped_if_the_task_has_the_option() -> None:
    assert prepared(SimpleNamespace(reward_clip=False, stack_num=4)) == {"reward_clip": True}
    assert prepared(SimpleNamespace(frame_skip=5)) == {}


@pytest.mark.parametrize(("options", "reward"), [({}, 1.0), ({"reward_clip": False}, 10.0)])
def test_atari_rewards_are_clipped_by_default(options: dict[str, bool], reward: float) -> None:
    """A pellet of Ms. Pacman earns 10."""
    pytest.importorskip("envpool")
    lanes = EnvPoolConfig("MsPacman-v5", options).build(2)
    lanes.reset(0)
    actions = np.random.default_rng(0).integers(0, 9, (200, 2))
    earned = {float(number) for action in actions for number in lanes.step((action,))[0].reward}
    assert reward in earned
    assert options or earned <= {0.0, 1.0}
    lanes.close()
