import gymnasium
import numpy as np
import pytest
from support.trees import leaf

from srl.api.spaces import array_spec
from srl.base.tree import ArraySpec

pytest.importorskip("ale_py")

from srl.api.spaces import Box, Discrete
from srl.environments.adapters.atari import FIRE, AtariConfig, FireFirst
from srl.environments.registry import lanes_config


@pytest.mark.parametrize(
    ("name", "sticky"),
    [("ALE/Pong-v5", 0.25), ("Pong-v5", 0.25), ("PongNoFrameskip-v4", 0.0), ("ale_py:ALE/Pong-v5", 0.25)],
)
def test_every_id_of_a_game_has_the_standard_preprocessing(name, sticky):
    config = lanes_config(name)
    assert isinstance(config, AtariConfig)
    assert (config.game, config.repeat_action_probability, config.frameskip) == ("pong", sticky, 4)


def test_images_are_stacked_and_actions_are_those_of_the_game():
    lanes = lanes_config("ALE/Pong-v5").build(2)
    team = lanes.spec.teams[0]
    assert team.observation == Box((4, 84, 84), "uint8", 0.0, 255.0)
    assert team.action == Discrete(6)
    (time_step,) = lanes.reset(0)
    assert leaf(time_step.observation).shape == (2, 4, 84, 84)
    earlier = leaf(time_step.observation).copy()
    (time_step,) = lanes.step((np.zeros(2, np.int64),))
    np.testing.assert_array_equal(leaf(time_step.observation)[:, 2], earlier[:, 3])  # the newest frame is last
    lanes.close()


def test_an_unknown_option_is_refused_with_the_nearest_one():
    with pytest.raises(ValueError, match="no option 'frame_skip'; did you mean 'frameskip'"):
        lanes_config("ALE/Pong-v5", frame_skip=4)


def test_ram_observations_use_the_plain_environment():
    lanes = lanes_config("ALE/Pong-v5", obs_type="ram").build(1)
    assert array_spec(lanes.spec.teams[0].observation) == ArraySpec((128,), "uint8")
    lanes.close()


def play(episodes: int, **options):
    """Play lane 0 of Breakout with sticky actions off until some episodes ended."""
    lanes = lanes_config("ALE/Breakout-v5", repeat_action_probability=0.0, **options).build(2)
    lanes.reset(1)
    random = np.random.default_rng(0)
    summed, ends = 0.0, []
    for _ in range(3000):
        (time_step,) = lanes.step((random.integers(0, 4, 2),))
        assert (time_step.reward[~time_step.acting & time_step.first] == 0).all()
        summed += float(time_step.reward[0])
        if not time_step.acting[0]:
            ends.append((summed, float(time_step.facts["return"][0]), int(time_step.facts["length"][0])))
            summed = 0.0
            if len(ends) == episodes:
                break
    lanes.close()
    return ends


def test_clipped_rewards_come_with_the_true_score():
    clipped, true = play(2), play(2, reward_clipping=False)
    assert [score for _, score, _ in clipped] == [score for summed, score, _ in true]
    assert all(summed == score for summed, score, _ in true)
    assert all(summed <= score for summed, score, _ in clipped)


def test_a_lost_life_ends_an_episode_but_not_the_game():
    ends = play(10, episodic_life=True)
    scores = [score for _, score, _ in ends]
    assert [bool(np.isnan(score)) for score in scores] == [True, True, True, True, False] * 2  # five lives a game
    for game in (ends[:5], ends[5:]):
        assert game[-1][1] >= sum(summed for summed, _, _ in game)
        lengths = [length for _, _, length in game]
        assert lengths == sorted(lengths)


def test_episodic_life_does_not_change_a_game_without_lives():
    def played(**options):
        lanes = lanes_config("PongNoFrameskip-v4", max_num_frames_per_episode=100, **options).build(2)
        time_steps = [lanes.reset(3)[0], *(lanes.step((np.array([i % 6, 2]),))[0] for i in range(40))]
        lanes.close()
        return time_steps

    plain, lives = played(), played(episodic_life=True)
    assert any(time_step.truncated.any() for time_step in plain)
    for one, other in zip(plain, lives, strict=True):
        np.testing.assert_array_equal(one.observation, other.observation)
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(one.acting, other.acting)


def test_a_recording_presses_fire_like_the_training_did():
    """A policy for which training pressed fire after a lost life never learned to press it."""

    class Lives(gymnasium.Env):
        def __init__(self):
            self.pressed, self.lives = [], 3

        def reset(self, *, seed=None, options=None):
            return 0, {"lives": 3}

        def step(self, action):
            self.pressed.append(action)
            self.lives -= action == 3
            return 0, 0.0, False, False, {"lives": self.lives}

    for every_life, second in ((True, FIRE), (False, 2)):
        game = FireFirst(Lives(), every_life)
        game.reset()
        for action in (3, 2, 2):
            game.step(action)
        assert game.env.pressed == [FIRE, 3, second, 2]


def test_truncation_at_the_frame_limit():
    lanes = lanes_config("ALE/Pong-v5", max_num_frames_per_episode=100).build(2)
    lanes.reset(0)
    for _ in range(40):
        (time_step,) = lanes.step((np.zeros(2, np.int64),))
        if time_step.truncated.any():
            break
    assert time_step.truncated.any()
    assert not time_step.terminated.any()
    lanes.close()
