"""Recipes: the options that a family of environments learns well with, each value with its reason.

`srl train` looks its environment up here. What the user gave is never touched; the run's config.json holds what came
out. Values are the published ones of the field (the PPO paper, Huang et al.'s "37 implementation details", the tuned
settings of RL Zoo), fitted to SRL's lanes; docs/results.md says which of them have been measured here.
"""

from __future__ import annotations

from srl.experiments.options.sections import AUTO, NONE
from srl.experiments.recipes.hide_and_seek import HIDE_AND_SEEK
from srl.experiments.recipes.multi_agent import MULTI_AGENT
from srl.experiments.recipes.recipe import Recipe, Setting


def _normalized(why: str) -> tuple[Setting, ...]:
    return (
        Setting("algo.normalize_observation", True, why),
        Setting("algo.normalize_return", "running", "rewards of any size: the critic learns values of deviation 1"),
    )


def _sizes(lanes: int, horizon: int, batch: int, why: str) -> tuple[Setting, ...]:
    return (Setting("lanes", lanes, why), Setting("horizon", horizon, why), Setting("batch", batch, why))


def _noise(initial_std: float, why: str) -> Setting:
    return Setting("algo.initial_std", initial_std, why)


def _updates(epochs: int, num_minibatches: int, learning_rate: float) -> tuple[Setting, ...]:
    return (
        Setting("algo.epochs", epochs, "passes over each batch"),
        Setting("algo.num_minibatches", num_minibatches, "gradient steps per pass"),
        Setting("algo.learning_rate", learning_rate, "falls linearly to 0 by default"),
    )


_NO_ENTROPY = Setting("algo.entropy_coefficient", 0.0, "the Gaussian's own width explores; a bonus keeps it too wide")
_CONTINUOUS = (*_normalized("positions, angles and speeds of very different size"), _NO_ENTROPY)

_LIVES = Setting("env.episodic_life", True, "a lost life is an end to avoid; returns stay those of whole games")
_BESIDE = "numbers beside the pictures, of any size"
_IMAGE = (
    *_sizes(8, 128, 1024, "8 copies of 128 steps, as the PPO paper has them for Atari"),
    *_updates(4, 4, 2.5e-4),
)

_MUJOCO_SIZES = _sizes(8, 128, 2048, "the PPO paper's batches; a machine with many cores wants a larger --batch")
_MUJOCO = (*_MUJOCO_SIZES, *_updates(10, 8, 6e-4))
_SMALL_BATCHES = _sizes(16, 128, 2048, "long pieces, for rewards that come late; small batches, to use them soon")
_PATIENT = (*_SMALL_BATCHES, *_updates(4, 32, 3e-4))

RECIPES = (
    Recipe(
        "acrobot",
        "Acrobot: few rewards to tell actions apart until the goal is first reached",
        ("Acrobot-v1",),
        task=_normalized("speeds are up to 28, sines and cosines up to 1"),
        ppo=_PATIENT,
    ),
    Recipe(
        "pendulum",
        "Pendulum: dense costs of up to 16 a step, and what matters is near",
        ("Pendulum-v1",),
        task=(
            Setting("algo.gamma", 0.9, "a swing pays off within some ten steps"),
            Setting("algo.normalize_return", "running", "costs of up to 16 a step"),
            _NO_ENTROPY,
        ),
        ppo=(
            *_sizes(16, 64, 1024, "many small batches: it is learned in 100 thousand steps or so"),
            *_updates(10, 16, 1e-3),
        ),
    ),
    Recipe(
        "mountain-car",
        "MountainCar: nothing but -1 a step until the goal is first reached, by swinging",
        ("MountainCar-v0",),
        task=(
            *_normalized("speeds are a hundredth of the positions"),
            Setting("algo.gae_lambda", 0.98, "the goal is a hundred steps behind the swing that reached it"),
        ),
        ppo=_sizes(16, 128, 2048, "long pieces: the goal is a hundred steps away"),
    ),
    Recipe(
        "mountain-car-continuous",
        "MountainCarContinuous: every push costs, until the goal is first reached, by swinging",
        ("MountainCarContinuous-v0",),
        task=(
            Setting("action_repeat", 8, "pushes that last: a fresh policy reaches the goal in 80 % of its episodes"),
            *_CONTINUOUS,
        ),
        ppo=(*_sizes(16, 64, 1024, "small batches: it is learned in 20 thousand decisions"), *_updates(10, 32, 3e-4)),
    ),
    Recipe(
        "toy-text",
        "Gymnasium's toy texts: a table of states, each its own number",
        ("gymnasium.envs.toy_text.*",),
        task=(
            *_normalized("numbers of any size"),
            Setting(
                "env.max_episode_steps", 200, "CliffWalking has no end but the goal: what never gets there begins anew"
            ),
        ),
        ppo=(*_SMALL_BATCHES, *_updates(4, 32, 1e-3)),
    ),
    Recipe(
        "classic-control",
        "Gymnasium's classic control: what CartPole, on which the defaults were tuned, does best with",
        ("gymnasium.envs.classic_control.*",),
    ),
    Recipe(
        "lunar-lander",
        "LunarLander: the reward for landing is hundreds of steps away",
        ("LunarLander-v*", "LunarLanderContinuous-v*"),
        task=(
            Setting("algo.gamma", 0.999, "an episode has up to 1000 steps, and landing is at its end"),
            Setting("algo.gae_lambda", 0.98, "for the same reason"),
            Setting("algo.normalize_return", "running", "returns go from -500 to 300"),
        ),
        ppo=(*_sizes(16, 128, 4096, "pieces long enough for a landing"), *_updates(4, 64, 3e-4)),
    ),
    Recipe(
        "car-racing",
        "CarRacing: a track from above, steered by real numbers",
        ("CarRacing-v*",),
        task=(
            Setting("action_repeat", 4, "pushes that last: at 50 decisions a second noise only shakes the wheel"),
            Setting("algo.normalize_return", "running", "returns of up to 900, which the picture's layers share"),
            _NO_ENTROPY,
        ),
        ppo=(*_sizes(8, 128, 1024, "8 tracks of 128 decisions, half an episode each"), *_updates(4, 8, 2.5e-4)),
    ),
    Recipe(
        "bipedal-walker",
        "BipedalWalker: walking, with -100 for falling",
        ("BipedalWalker-v*", "BipedalWalkerHardcore-v*"),
        task=(*_CONTINUOUS, Setting("algo.gamma", 0.999, "an episode has up to 1600 steps")),
        ppo=(*_sizes(32, 128, 8192, "falls are rare and costly: large batches"), *_updates(10, 128, 3e-4)),
    ),
    Recipe(
        "swimmer",
        "Swimmer: a stroke pays off long after it was begun, and nothing ends an episode early",
        ("Swimmer-v*",),
        task=(*_CONTINUOUS, Setting("algo.gamma", 0.9999, "with 0.99 it learns to drift: a stroke is slow to pay off")),
        ppo=(*_sizes(8, 256, 2048, "pieces of a quarter of an episode"), *_updates(10, 32, 3e-4)),
    ),
    Recipe(
        "ant",
        "Ant and Humanoid: many joints, whose pushes cost more than standing earns",
        ("Ant-v*", "Humanoid-v*", "HumanoidStandup-v*"),
        task=_CONTINUOUS,
        ppo=(
            *_MUJOCO_SIZES,
            *_updates(10, 8, 3e-4),
            _noise(0.4, "with 1 Ant pays twice for its noise what it earns, and learns to fall"),
        ),
    ),
    Recipe(
        "half-cheetah",
        "HalfCheetah: fast pushes in time, which much noise drowns; nothing ends an episode",
        ("HalfCheetah-v*",),
        task=_CONTINUOUS,
        ppo=(*_MUJOCO, _noise(0.5, "three times the return of 1 after 300 thousand steps")),
    ),
    Recipe(
        "pusher",
        "Pusher and InvertedPendulum: bounds of 2 and 3, in units of which noise is large",
        ("Pusher-v*", "InvertedPendulum-v*"),
        task=_CONTINUOUS,
        ppo=(*_MUJOCO, _noise(0.4, "about what it would be without the bounds")),
    ),
    Recipe(
        "mujoco",
        "MuJoCo: locomotion and reaching with Gaussian actions",
        ("gymnasium.envs.mujoco.*", "gymnasium_robotics.*"),
        task=_CONTINUOUS,
        ppo=_MUJOCO,
    ),
    Recipe(
        "atari",
        "Atari games as pictures",
        ("ale_py.*", "ALE/*"),
        task=(_LIVES,),
        ppo=(
            *_sizes(8, 128, 1024, "8 games of 128 steps, as in the PPO paper"),
            *_updates(4, 4, 2.5e-4),
            Setting("algo.clip", 0.1, "as in the PPO paper: half of what vectors bear"),
            Setting("algo.value_clip", 0.1, "as in its published implementation"),
        ),
    ),
    Recipe(
        "atari-lean",
        "games that are simple to see, such as Pong, on few cores: by name only",
        task=(_LIVES,),
        ppo=(
            Setting("algo.body", "lean", "a third of the work of Nature's network"),
            *_sizes(8, 64, 1024, "small batches: many updates for each step of the game, which costs most"),
            *_updates(4, 4, 1e-3),
        ),
    ),
    Recipe(
        "minigrid",
        "MiniGrid: small views, one reward at the end",
        ("minigrid.*", "minigrid"),
        ppo=(
            *_sizes(16, 128, 2048, "pieces as long as many episodes, as the only reward is at their end"),
            *_updates(4, 32, 1e-3),
        ),
    ),
    *HIDE_AND_SEEK,
    *MULTI_AGENT,
    # The last four are taken by what the environment is, not by its name.
    Recipe(
        "continuous",
        "unknown environment with real-valued actions",
        task=_CONTINUOUS,
        ppo=(*_SMALL_BATCHES, *_updates(10, 32, 3e-4)),
    ),
    Recipe("image", "unknown environment with pictures", task=_normalized(_BESIDE), ppo=_IMAGE),
    Recipe(
        "continuous-image",
        "unknown environment with pictures and real-valued actions",
        task=(*_normalized(_BESIDE), _NO_ENTROPY),
        ppo=_IMAGE,
    ),
    Recipe("default", "unknown environment", task=_normalized("numbers of any size"), ppo=_PATIENT),
)
NAMES = (AUTO, NONE, *(recipe.name for recipe in RECIPES))
