"""Networks, memories, actions and masks through the public API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import srl

ENVIRONMENTS = """
import gymnasium
import numpy as np
from gymnasium import spaces


class Recall(gymnasium.Env):
    '''The first observation determines which action is right two steps later.'''

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cue, self.t = int(self.np_random.integers(2)), 0
        return np.array([2 * self.cue - 1, 0], np.float32), {}

    def step(self, action):
        self.t += 1
        reward = float(action == self.cue) if self.t == 3 else 0.0
        return np.array([0, self.t == 2], np.float32), reward, self.t == 3, False, {}


class Everything(gymnasium.Env):
    '''Observations: images, vectors and choices. Actions: vectors, switches and masked choices; illegal ones raise.'''

    def __init__(self):
        parts = (spaces.Discrete(3), spaces.MultiBinary(2))
        self.observation_space = spaces.Dict(
            image=spaces.Box(0, 255, (8, 8, 3), np.uint8),
            speed=spaces.Box(-1, 1, (2,), np.float32),
            parts=spaces.Tuple(parts),
        )
        self.action_space = spaces.Dict(aim=spaces.Box(-2, 3, (1,), np.float32), parts=spaces.Tuple(parts))

    def _result(self):
        self.seen = self.observation_space.sample()
        self.legal = self.np_random.permutation([0, 1, 1]).astype(np.int8)
        return self.seen, {"action_mask": {"parts": {"0": self.legal, "1": np.ones(4, np.int8)}}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._result()

    def step(self, action):
        if not (self.action_space.contains(action) and self.legal[action["parts"][0]]):
            raise RuntimeError(f"illegal: {action}")
        self.t += 1
        seen, info = self._result()
        return seen, -abs(float(action["aim"][0])), False, self.t == 7, info
"""


@pytest.fixture
def environments(tmp_path: Path) -> str:
    path = tmp_path / "environments.py"
    path.write_text(ENVIRONMENTS)
    return str(path)


def trained(env: str, root: Path, steps: int, **options: Any) -> srl.Run:
    run = srl.train(env, steps=steps, root=root, scheduler="inline", lanes=16, **options)
    assert run.state == "finished", run.reason
    assert run.status.lane_failures == 0, run.status.messages
    return run


@pytest.mark.parametrize("inference", [pytest.param("inline", marks=pytest.mark.slow), "host"])
@pytest.mark.parametrize(
    "ppo",
    [
        {"memory": "gru", "towers": "separate", "memory_size": 16, "chunk": 8, "burn_in": 4},
        {"body": "impala", "box": "squashed", "std": "state", "towers": "separate"},
    ],
    ids=["memory", "impala"],
)
def test_nested_spaces_train_with_their_mask(
    environments: str, tmp_path: Path, inference: str, ppo: dict[str, object]
) -> None:
    sizes = {"horizon": 16, "batch": 256}
    run = trained(f"{environments}:Everything", tmp_path, 768, ppo={**ppo, "epochs": 1}, inference=inference, **sizes)
    assert srl.evaluate(run.path, episodes=2).mean <= 0.0


def test_a_pettingzoo_game_is_played_with_legal_moves(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo")
    options: dict[str, object] = {"ppo": {"memory": "gru", "memory_size": 16}, "recipe": "none"}
    run = trained("pettingzoo:classic.tictactoe_v3", tmp_path, 3000, **options)
    assert run.status.length_mean is not None
    # An illegal move would end the game at once: legal games have 5 to 9 moves, shared by two.
    assert run.status.length_mean >= 2.5


def test_a_loaded_policy_keeps_its_memory_until_it_is_reset(environments: str, tmp_path: Path) -> None:
    ppo = {"memory": "gru", "memory_size": 32, "epochs": 1, "num_minibatches": 1}
    policy = srl.load(trained(f"{environments}:Recall", tmp_path, 128, ppo=ppo, horizon=8, recipe="none").path)
    observations = np.random.default_rng(0).uniform(-1.0, 1.0, (200, 2)).astype(np.float32)

    def actions(*, forget: bool) -> list[int]:
        policy.reset()
        taken = []
        for observation in observations:
            taken.append(int(policy.act(observation)))
            if forget:
                policy.reset()
        return taken

    assert actions(forget=False) == actions(forget=False) != actions(forget=True)
    policy.act(observations[:2])
    with pytest.raises(ValueError, match="reset"):
        policy.act(np.zeros((3, 2), np.float32))


@pytest.mark.slow
def test_a_loaded_policy_keeps_its_memory_between_steps(environments: str, tmp_path: Path) -> None:
    run = trained(
        f"{environments}:Recall", tmp_path, 40_000, ppo={"memory": "gru", "memory_size": 32}, until_return=0.97
    )
    assert run.status.return_mean is not None
    assert run.status.return_mean > 0.9
    policy = srl.load(run.path)
    namespace: dict[str, Any] = {}
    exec(ENVIRONMENTS, namespace)
    environment: gymnasium.Env = namespace["Recall"]()
    total = 0.0
    for episode in range(20):
        observation, _ = environment.reset(seed=episode)
        policy.reset()
        ended = False
        while not ended:
            observation, reward, ended, _, _ = environment.step(policy.act(observation))
            total += float(reward)
    assert total >= 18
    cues = np.array([[1, 0], [-1, 0]], np.float32)
    policy.reset()
    policy.act(cues, first=[True, True])
    policy.act(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(policy.act(np.array([[0, 1], [0, 1]], np.float32)), [1, 0])
    with pytest.raises(ValueError, match="reset"):
        policy.act(np.zeros((3, 2), np.float32))
