"""Recipes: options that work well for a family of environments, each value with its reason.

`srl train` looks up its environment here, and never changes options that the user sets. Values are published ones (the
PPO paper, Huang et al.'s "37 implementation details", the tuned settings of RL Zoo), adapted to SRL's lanes;
docs/results.md lists those that were measured with SRL.
"""

from __future__ import annotations

from srl.experiments.options.sections import AUTO, NONE
from srl.experiments.recipes.multi_agent import MULTI_AGENT
from srl.experiments.recipes.recipe import Recipe, Setting


def _normalized(why: str) -> tuple[Setting, ...]:
    return_why = "rewards may have any scale; the critic learns normalized values"
    return (
        Setting("algo.normalize_observation", True, why),
        Setting("algo.normalize_return", "running", return_why),
    )


def _sizes(lanes: int, horizon: int, batch: int, why: str) -> tuple[Setting, ...]:
    return (Setting("lanes", lanes, why), Setting("horizon", horizon, why), Setting("batch", batch, why))


def _updates(epochs: int, num_minibatches: int, learning_rate: float) -> tuple[Setting, ...]:
    return (
        Setting("algo.epochs", epochs, "passes over each batch"),
        Setting("algo.num_minibatches", num_minibatches, "gradient steps per pass"),
        Setting("algo.learning_rate", learning_rate, "decays linearly to 0 by default"),
    )


_NO_ENTROPY = Setting("algo.entropy_coefficient", 0.0, "the Gaussian explores enough; a bonus keeps it too wide")
_CONTINUOUS = (*_normalized("positions, angles and speeds have different scales"), _NO_ENTROPY)

_LIVES = Setting("env.episodic_life", True, "a lost life ends an episode; reported returns are of whole games")
_BESIDE = "numbers next to the images may have any scale"
_IMAGE = (
    *_sizes(8, 128, 1024, "8 copies of 128 steps, as in the PPO paper for Atari"),
    *_updates(4, 4, 2.5e-4),
)

_MUJOCO_SIZES = _sizes(8, 128, 2048, "batches of the PPO paper; set a larger --batch on a machine with many cores")
_MUJOCO = (*_MUJOCO_SIZES, *_updates(10, 8, 6e-4))
_SMALL_BATCHES = _sizes(16, 128, 2048, "long blocks for late rewards, small batches for frequent updates")
_PATIENT = (*_SMALL_BATCHES, *_updates(4, 32, 3e-4))

_PAPER = "as in the paper"
_EFFICIENT_ZERO = (
    Setting("previous_step", True, "the observation has the frames and the action between them"),
    Setting("algo.consistency_weight", 2.0, "as EfficientZero: rewards are rare, what follows is always known"),
    Setting("algo.value_prefix", True, "as EfficientZero: when exactly a reward comes is uncertain"),
    Setting("algo.n_step", 5, "as EfficientZero"),
    Setting("algo.target_update", 200, "as EfficientZero"),
    Setting("algo.prioritized", True, "as EfficientZero"),
    Setting("algo.random_shift", 4, "as EfficientZero"),
    Setting("algo.latent_size", 256, "images have many states"),
    Setting("algo.hidden_sizes", (256,), "images have many states"),
    Setting("algo.learning_rate", 3e-4, "networks for images need a lower one"),
    Setting("algo.learning_starts", 2_000, "random play, as EfficientZero"),
    Setting("algo.updates_per_decision", 0.25, "a compromise: EfficientZero makes 1.2"),
)

_MUZERO = (
    Setting("algo.normalize_observation", True, "angles are small beside positions and speeds"),
    Setting("algo.num_bins", 41, "values to 480, in fine steps"),
    Setting("algo.bin_width", 1.0, "values to 480, in fine steps"),
    Setting("algo.gamma", 0.99, "a hundred steps ahead are enough to stay on the track"),
    Setting("algo.n_step", 10, "rewards of policies that are outdated soon"),
    Setting("algo.residual", True, "a state differs little from the one before"),
    Setting("algo.consistency_weight", 2.0, "EfficientZero's: rewards alone say little about states"),
)


def _dqn(
    learning_rate: float,
    batch_size: int,
    replay_size: int,
    learning_starts: int,
    updates: float,
    target_update: int,
    exploration: tuple[float, float],
) -> tuple[Setting, ...]:
    # Stable-Baselines3 counts steps of the environment between updates of the target network, and makes none between
    # the gradient steps of one turn.
    zoo = "tuned for this task by RL Zoo"
    return (
        Setting("algo.learning_rate", learning_rate, zoo),
        Setting("algo.batch_size", batch_size, zoo),
        Setting("algo.replay_size", replay_size, zoo),
        Setting("algo.learning_starts", learning_starts, "decisions before the first gradient step"),
        Setting("algo.updates_per_decision", updates, zoo),
        Setting("algo.target_update", target_update, zoo),
        Setting("algo.exploration_fraction", exploration[0], zoo),
        Setting("algo.epsilon_final", exploration[1], zoo),
    )


_SHORT = (
    Setting("algo.learning_rate", 1e-3, "tuned for this task by RL Zoo"),
    Setting("algo.learning_starts", 256, "training takes about 10,000 steps"),
)
_TD3 = (
    Setting("algo.learning_rate", 1e-3, "tuned for MuJoCo by RL Zoo"),
    Setting("algo.hidden_sizes", (400, 300), "the networks of RL Zoo's settings"),
)

_ZOO_GOALS = "tuned for these tasks by RL Zoo"


def _hindsight(hidden_sizes: tuple[int, ...], batch_size: int) -> tuple[Setting, ...]:
    return (
        Setting("algo.her", "future", "rewards are -1 almost everywhere; goals that were reached are worth learning"),
        Setting("algo.normalize_observation", True, "goals differ by centimeters, next to positions of more than 1 m"),
        Setting("algo.learning_rate", 1e-3, _ZOO_GOALS),
        Setting("algo.gamma", 0.95, "episodes have 50 steps"),
        Setting("algo.tau", 0.05, _ZOO_GOALS),
        Setting("algo.hidden_sizes", hidden_sizes, _ZOO_GOALS),
        Setting("algo.batch_size", batch_size, _ZOO_GOALS),
        Setting("algo.learning_starts", 1_000, "20 episodes"),
    )


_REACH, _PUSH = _hindsight((64, 64), 256), _hindsight((512, 512, 512), 2048)

RECIPES = (
    Recipe(
        "acrobot",
        "Acrobot: rewards are uninformative until the goal is first reached",
        ("Acrobot-v1",),
        task=_normalized("speeds reach 28, sines and cosines 1"),
        ppo=_PATIENT,
        dqn=_dqn(6.3e-4, 128, 50_000, 128, 1.0, 250, (0.12, 0.1)),
    ),
    Recipe(
        "pendulum",
        "Pendulum: dense costs of up to 16 per step, and a short effective horizon",
        ("Pendulum-v1",),
        task=(
            Setting("algo.gamma", 0.9, "a swing pays off within about ten steps"),
            Setting("algo.normalize_return", "running", "costs reach 16 per step"),
            _NO_ENTROPY,
        ),
        ppo=(
            *_sizes(16, 64, 1024, "many small batches: training takes about 100,000 steps"),
            *_updates(10, 16, 1e-3),
        ),
        sac=_SHORT,
        td3=_SHORT,
        muzero=(
            Setting("algo.normalize_observation", True, "speeds reach 8, sines and cosines 1"),
            Setting("algo.num_bins", 61, "values to -280, in fine steps"),
            Setting("algo.bin_width", 0.5, "values to -280, in fine steps"),
            Setting("algo.gamma", 0.95, "a swing pays off within about twenty steps"),
            Setting("algo.n_step", 3, "costs of policies that are outdated soon"),
            Setting("algo.residual", True, "a state differs little from the one before"),
            Setting("algo.consistency_weight", 2.0, "EfficientZero's: the model is learned sooner"),
            Setting("algo.updates_per_decision", 0.25, "enough for this task"),
            Setting("algo.entropy_weight", 0.1, "costs are dense: the model learns soon"),
            Setting("algo.simulations", 25, "more than one for each of 20 sampled actions"),
        ),
    ),
    Recipe(
        "mountain-car",
        "MountainCar: a reward of -1 per step until swinging first reaches the goal",
        ("MountainCar-v0",),
        task=(
            *_normalized("speeds are a hundred times smaller than positions"),
            Setting("algo.gae_lambda", 0.98, "the goal is reached a hundred steps after the decisive swing"),
        ),
        ppo=_sizes(16, 128, 2048, "long blocks: the goal is a hundred steps away"),
        dqn=(
            *_dqn(4e-3, 128, 10_000, 1_000, 0.5, 300, (0.2, 0.07)),
            Setting("algo.gamma", 0.98, "tuned for this task by RL Zoo"),
        ),
    ),
    Recipe(
        "mountain-car-continuous",
        "MountainCarContinuous: every push costs until swinging first reaches the goal",
        ("MountainCarContinuous-v0",),
        task=(
            Setting("action_repeat", 8, "longer pushes: an untrained policy reaches the goal in 80 % of its episodes"),
            *_CONTINUOUS,
        ),
        ppo=(*_sizes(16, 64, 1024, "small batches: training takes about 20,000 decisions"), *_updates(10, 32, 3e-4)),
    ),
    Recipe(
        "toy-text",
        "Gymnasium's toy text: numbered states",
        ("gymnasium.envs.toy_text.*",),
        task=(
            *_normalized("numbers may have any scale"),
            Setting("env.max_episode_steps", 200, "CliffWalking ends only at its goal, which a policy may never reach"),
        ),
        ppo=(*_SMALL_BATCHES, *_updates(4, 32, 1e-3)),
    ),
    Recipe(
        "classic-control",
        "Gymnasium's classic control: the defaults, which were tuned on CartPole",
        ("gymnasium.envs.classic_control.*",),
        dqn=(
            *_dqn(2.3e-3, 64, 100_000, 1_000, 0.5, 128, (0.16, 0.04)),
            Setting(
                "algo.learning_rate_schedule", "linear", "at a constant rate the last policy is good or bad by chance"
            ),
        ),
        muzero=_MUZERO,
        r2d2=(
            Setting("algo.chunk", 20, "a few steps show what the observation hides"),
            Setting("algo.burn_in", 10, "for the same reason"),
            Setting("algo.period", 10, "each step is in two sequences"),
            Setting("algo.updates_per_decision", 0.05, "short sequences: gradient steps are cheap"),
            Setting("algo.gamma", 0.99, "as for the other algorithms"),
        ),
    ),
    Recipe(
        "lunar-lander",
        "LunarLander: the reward for landing is hundreds of steps away",
        ("LunarLander-v*", "LunarLanderContinuous-v*"),
        task=(
            Setting("algo.gamma", 0.999, "an episode has up to 1000 steps and ends with the landing"),
            Setting("algo.gae_lambda", 0.98, "for the same reason"),
            Setting("algo.normalize_return", "running", "returns range from -500 to 300"),
        ),
        ppo=(*_sizes(16, 128, 4096, "blocks that are long enough for a landing"), *_updates(4, 64, 3e-4)),
        dqn=_dqn(6.3e-4, 128, 50_000, 128, 1.0, 250, (0.12, 0.1)),
        muzero=(
            Setting("algo.normalize_observation", True, "angles are small beside positions and speeds"),
            Setting("algo.num_bins", 41, "values to 480, in fine steps"),
            Setting("algo.bin_width", 1.0, "values to 480, in fine steps"),
            Setting("algo.gamma", 0.99, "with shaped rewards, a hundred steps ahead are enough"),
            Setting("algo.n_step", 10, "rewards of policies that are outdated soon"),
            Setting("algo.residual", True, "a state differs little from the one before"),
            Setting("algo.consistency_weight", 2.0, "EfficientZero's: the model is learned sooner"),
            Setting("algo.latent_size", 128, "eight numbers, and what follows from them"),
            Setting("algo.hidden_sizes", (128,), "as the latent state"),
            Setting("algo.learning_rate", 1e-3, "larger networks need a lower one"),
            Setting("algo.updates_per_decision", 0.25, "a landing takes hundreds of decisions"),
            Setting("algo.simulations", 25, "values of four actions, several steps ahead"),
        ),
    ),
    Recipe(
        "car-racing",
        "CarRacing: images of a track from above, continuous actions",
        ("CarRacing-v*",),
        task=(
            Setting("action_repeat", 4, "longer actions: at 50 decisions per second noise only shakes the wheel"),
            Setting("algo.normalize_return", "running", "returns reach 900, and the critic shares the image layers"),
            _NO_ENTROPY,
        ),
        ppo=(*_sizes(8, 128, 1024, "8 tracks of 128 decisions, half an episode each"), *_updates(4, 8, 2.5e-4)),
    ),
    Recipe(
        "bipedal-walker",
        "BipedalWalker: walking, with -100 for falling",
        ("BipedalWalker-v*", "BipedalWalkerHardcore-v*"),
        task=(*_CONTINUOUS, Setting("algo.gamma", 0.999, "an episode has up to 1600 steps")),
        ppo=(*_sizes(32, 128, 8192, "large batches: falls are rare and costly"), *_updates(10, 128, 3e-4)),
    ),
    Recipe(
        "swimmer",
        "Swimmer: a stroke pays off late, and no episode ends early",
        ("Swimmer-v*",),
        task=(*_CONTINUOUS, Setting("algo.gamma", 0.9999, "a stroke pays off late; with 0.99 the policy only drifts")),
        ppo=(*_sizes(8, 256, 2048, "blocks of a quarter of an episode"), *_updates(10, 32, 3e-4)),
        sac=(Setting("algo.gamma", 0.999, "a stroke pays off late"),),
        td3=(*_TD3, Setting("algo.gamma", 0.999, "a stroke pays off late")),
    ),
    Recipe(
        "ant",
        "Ant and Humanoid: many joints, whose torques cost more than standing earns",
        ("Ant-v*", "Humanoid-v*", "HumanoidStandup-v*"),
        task=_CONTINUOUS,
        ppo=(
            *_MUJOCO_SIZES,
            *_updates(10, 8, 3e-4),
            Setting("algo.initial_std", 0.4, "with 1 the noise costs Ant twice what it earns, and it learns to fall"),
        ),
        td3=_TD3,
    ),
    Recipe(
        "half-cheetah",
        "HalfCheetah: fast, well-timed torques that noise disturbs; no episode ends early",
        ("HalfCheetah-v*",),
        task=_CONTINUOUS,
        ppo=(*_MUJOCO, Setting("algo.initial_std", 0.5, "three times the return of 1 after 300,000 steps")),
        td3=_TD3,
    ),
    Recipe(
        "pusher",
        "Pusher and InvertedPendulum: action bounds of 2 and 3, which scale the noise up",
        ("Pusher-v*", "InvertedPendulum-v*"),
        task=_CONTINUOUS,
        ppo=(*_MUJOCO, Setting("algo.initial_std", 0.4, "about the noise that there would be without the bounds")),
        td3=_TD3,
    ),
    Recipe(
        "fetch-reach",
        "FetchReach of Gymnasium-Robotics: an arm moves its gripper to a goal",
        ("FetchReach-v*",),
        task=_CONTINUOUS,
        ppo=_MUJOCO,
        sac=_REACH,
        td3=_REACH,
    ),
    Recipe(
        "fetch",
        "FetchPush, FetchSlide and FetchPickAndPlace: an arm moves an object to a goal",
        ("FetchPush-v*", "FetchSlide-v*", "FetchPickAndPlace-v*"),
        task=_CONTINUOUS,
        ppo=_MUJOCO,
        sac=_PUSH,
        td3=_PUSH,
    ),
    Recipe(
        "mujoco",
        "MuJoCo: locomotion and reaching with Gaussian actions",
        ("gymnasium.envs.mujoco.*", "gymnasium_robotics.*"),
        task=_CONTINUOUS,
        ppo=_MUJOCO,
        td3=_TD3,
    ),
    Recipe(
        "atari",
        "Atari games from images",
        ("ale_py.*", "ALE/*"),
        task=(_LIVES,),
        ppo=(
            *_IMAGE,
            Setting("algo.clip", 0.1, "as in the PPO paper; half of the value for vectors"),
            Setting("algo.value_clip", 0.1, "as in the published implementation of PPO"),
        ),
        dqn=(
            *_dqn(1e-4, 32, 100_000, 20_000, 0.25, 250, (0.1, 0.01)),
            Setting("algo.update_threads", 2, "a gradient step takes much longer than the decisions before it"),
        ),
        apex=(
            Setting("algo.learning_rate", 6.25e-5, _PAPER),
            Setting("algo.target_update", 2500, _PAPER),
            Setting("algo.learning_starts", 50_000, _PAPER),
        ),
        r2d2=(
            Setting("previous_step", True, _PAPER),
            Setting("algo.learning_rate", 1e-4, _PAPER),
            Setting("algo.adam_eps", 1e-3, _PAPER),
            Setting("algo.target_update", 2500, _PAPER),
            Setting("algo.batch_size", 64, _PAPER),
            Setting("algo.memory_size", 512, _PAPER),
            Setting("algo.learning_starts", 50_000, "random play fills the memory first"),
        ),
        muzero=_EFFICIENT_ZERO,
    ),
    Recipe(
        "atari-lean",
        "visually simple games such as Pong on few cores; by name only",
        task=(_LIVES,),
        ppo=(
            Setting("algo.body", "lean", "a third of the computation of the Nature network"),
            *_sizes(8, 64, 1024, "small batches: many updates per game step, which is the most expensive part"),
            *_updates(4, 4, 1e-3),
        ),
    ),
    Recipe(
        "minigrid",
        "MiniGrid: small views and one reward at the end",
        ("minigrid.*", "minigrid"),
        ppo=(
            *_sizes(16, 128, 2048, "blocks as long as many episodes, whose only reward is at the end"),
            *_updates(4, 32, 1e-3),
        ),
    ),
    *MULTI_AGENT,
    # The last four are chosen by the spaces of the environment, not by its name.
    Recipe(
        "continuous",
        "other environments with continuous actions, also next to discrete ones",
        task=_CONTINUOUS,
        ppo=(*_SMALL_BATCHES, *_updates(10, 32, 3e-4)),
    ),
    Recipe("image", "other environments with images", task=_normalized(_BESIDE), ppo=_IMAGE),
    Recipe(
        "continuous-image",
        "other environments with images and continuous actions",
        task=(*_normalized(_BESIDE), _NO_ENTROPY),
        ppo=_IMAGE,
    ),
    Recipe("default", "other environments", task=_normalized("numbers may have any scale"), ppo=_PATIENT),
)
NAMES = (AUTO, NONE, *(recipe.name for recipe in RECIPES))
