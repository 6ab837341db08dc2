"""Multi-agent recipes: PettingZoo, and hide-and-seek as in Baker et al. 2019 or scaled down for a laptop."""

from __future__ import annotations

from dataclasses import replace

from srl.experiments.recipes.recipe import Recipe, Setting

_MANY_GAMES = "many games at once: a policy that plays itself soon repeats a few lines and forgets the others"

_OPENINGS = Setting(
    "env.openings", 0.5, "half of the games begin with random moves: self-play forgets positions beside its main lines"
)


def _games_muzero(longest: int) -> tuple[Setting, ...]:
    return (
        _OPENINGS,
        Setting("algo.gamma", 1.0, "a win is a win, however late"),
        Setting("algo.n_step", longest, "results of games, and no values of a target network"),
        Setting("algo.num_bins", 3, "a loss, a draw and a win"),
        Setting("algo.bin_width", 0.41521, "h(1): the outer bins are a loss and a win"),
        Setting("algo.latent_size", 128, "a state is a whole board"),
        Setting("algo.hidden_sizes", (128,), "a state is a whole board"),
        Setting("algo.updates_per_decision", 0.25, "there are many positions: each is learned from 32 times"),
    )


BOARD_GAMES = Recipe(
    "board-games",
    "board games: turns, masks of legal moves, one reward at the end",
    ("classic.*", "pettingzoo.classic.*", "game:openspiel:*", "game:* in a row on *"),
    task=(
        Setting("algo.entropy_coefficient", 0.05, "keeps self-play from repeating the same few games"),
        Setting("algo.normalize_return", "none", "the reward is -1, 0 or 1"),
        Setting("algo.hidden_sizes", (128, 128), "there are many positions, but they are small"),
    ),
    ppo=(
        Setting("lanes", 128, _MANY_GAMES),
        Setting("horizon", 32, "several games per player"),
        Setting("batch", 8192, _MANY_GAMES),
        Setting("algo.epochs", 4, "passes over each batch"),
        Setting("algo.num_minibatches", 16, "gradient steps per pass"),
    ),
    alphazero=(_OPENINGS, Setting("algo.hidden_sizes", (256, 256), "there are many positions")),
    muzero=_games_muzero(50),
)

TIC_TAC_TOE = replace(
    BOARD_GAMES,
    name="tic-tac-toe",
    about="tic-tac-toe: perfect play within seconds",
    patterns=("tic-tac-toe",),
    alphazero=(_OPENINGS, Setting("algo.simulations", 16, "games are short")),
    muzero=_games_muzero(10),
)

CONNECT_FOUR = replace(
    BOARD_GAMES,
    name="connect-four",
    about="Connect Four: a strong player within minutes",
    patterns=("connect-four",),
    alphazero=(
        _OPENINGS,
        Setting("lanes", 128, "searches of many games share each call of the network"),
        Setting("algo.tower", "residual", "convolutions see threats anywhere on the board"),
        Setting("algo.search_precision", "auto", "searches take most of the time"),
        Setting("algo.foresight", 2, "a threat that is overlooked loses the game"),
        Setting("algo.replay_size", 200_000, "about 8,000 games"),
        Setting("algo.learning_starts", 10_000, "a few hundred games"),
        Setting("algo.search_value_share", 0.5, "results of games vary more than what a search finds"),
        Setting("algo.learning_rate_schedule", "linear", "lower rates made a player stronger at once"),
    ),
)

CARTPOLE_GAME = Recipe(
    "cartpole-game",
    "CartPole with its simulator: 500 within 20,000 steps",
    ("game:cartpole",),
    alphazero=(
        Setting("lanes", 16, "episodes are long"),
        Setting("horizon", 16, "new parameters after 256 steps"),
        Setting("algo.simulations", 16, "there are two actions"),
        Setting("algo.n_step", 20, "the end of an episode is far"),
        Setting("algo.gamma", 0.997, "the return is bounded by 333"),
        Setting("algo.batch_size", 256, "a short run"),
        Setting("algo.learning_starts", 1_000, "a short run"),
        Setting("algo.updates_per_decision", 0.06, "each decision is learned from 15 times"),
        Setting("algo.learning_rate", 1e-3, "values have a wide range"),
    ),
)

SPREAD = Recipe(
    "mpe-spread",
    "simple_spread: agents that cover landmarks together, with one reward",
    ("mpe.simple_spread_v*", "mpe2.simple_spread_v*"),
    task=(Setting("team_reward", True, "the agents share one task, as in its original version"),),
    ppo=(
        Setting("lanes", 64, "whole episodes of 64 worlds"),
        Setting("horizon", 26, "an episode of 25 steps and the row that ends it"),
        Setting("batch", 4992, "three agents"),
        Setting("algo.num_minibatches", 4, "more gradient steps than Yu et al., with a tenth of their copies"),
        Setting("algo.learning_rate", 5e-4, "as in Papoudakis et al. 2021"),
    ),
    qmix=(
        Setting("lanes", 8, "new parameters after 8 episodes of all agents"),
        Setting("horizon", 26, "an episode of 25 steps and the row that ends it"),
        Setting("algo.chunk", 26, "whole episodes"),
        Setting("algo.updates_per_decision", 0.02, "about three gradient steps for two episodes"),
        Setting("algo.target_update", 1, "targets follow slowly, at every gradient step"),
        Setting("algo.tau", 0.01, "share of such a step"),
    ),
)

TWO_STEP = Recipe(
    "two-step",
    "the two-step game of Rashid et al. 2018, whose values VDN cannot represent",
    ("srl.testing.probe_environments:two_step",),
    qmix=(
        Setting("lanes", 8, "games at once"),
        Setting("horizon", 6, "two episodes of two steps and the row that ends them"),
        Setting("algo.memory", "none", "the observation is the whole state"),
        Setting("algo.chunk", 3, "whole episodes"),
        Setting("algo.gamma", 1.0, "the return is the payoff"),
        Setting("algo.epsilon_final", 1.0, "all states and actions are explored equally, as in the paper"),
        Setting("algo.learning_starts", 500, "a short run"),
        Setting("algo.updates_per_decision", 0.06, "a short run"),
        Setting("algo.learning_rate", 5e-3, "a short run"),
        Setting("algo.target_update", 20, "a short run"),
    ),
)

PAPER_BATCH = 640_000
"""Agent steps: 64,000 chunks of 10."""
PAPER_CORES = 1024
"""Approximate number of cores that filled a batch of this size in the runs of the SRL paper."""

KINDS = ("agent_qpos_qvel:aa", "box_obs:ab", "ramp_obs:ar")
SIGHT = "the actor attends to the entities it sees, the critic to all that exist"


def _entities(*more: str) -> Setting:
    pairs = [kind.split(":") for kind in (*KINDS, *more)]
    named = tuple(f"{key}:mask_{mask}_obs:mask_{mask}_obs_spoof" for key, mask in pairs)
    return Setting("algo.entities", named, SIGHT)


def _network(entity_size: int, hidden: int, memory: int) -> tuple[Setting, ...]:
    return (
        Setting("algo.scans", ("lidar",), "30 directions around the agent"),
        Setting("algo.entity_size", entity_size, "size of the embedding of each entity"),
        Setting("algo.hidden_sizes", (hidden,), "layer after the pooled entities"),
        Setting("algo.activation", "relu", "as in the paper"),
        Setting("algo.memory", "lstm", "entities may be out of sight"),
        Setting("algo.memory_size", memory, "size for each of actor and critic"),
        Setting("algo.chunk", 10, "gradients flow back 10 steps, starting from the stored memory"),
        Setting("algo.normalize_observation", True, "statistics per feature of each kind of entity"),
        Setting("algo.observation_clip", 5.0, "as in the paper"),
        Setting("algo.normalize_return", "popart", "returns reach 144"),
    )


def _learning(gamma: float, epochs: int, num_minibatches: int) -> tuple[Setting, ...]:
    return (
        Setting("algo.gamma", gamma, "an episode has 80 to 480 steps"),
        Setting("algo.epochs", epochs, "passes over each batch"),
        Setting("algo.num_minibatches", num_minibatches, "gradient steps per pass"),
        Setting("algo.learning_rate", 3e-4, "as in the paper"),
        Setting("algo.learning_rate_schedule", "constant", "the opponents never stop learning"),
        Setting("algo.max_grad_norm", 5.0, "as in the paper"),
        Setting("algo.weight_decay", 1e-6, "as in the paper"),
    )


def _paper(name: str, about: str, patterns: tuple[str, ...], *kinds: str) -> Recipe:
    return Recipe(
        name,
        about,
        patterns,
        task=(_entities(*kinds), *_network(128, 256, 256)),
        ppo=(
            *_learning(0.998, 4, 1),
            Setting("lanes", 32, "worlds in a group"),
            Setting("horizon", 160, "the paper's window"),
            Setting("batch", PAPER_BATCH, "64,000 chunks of 10 steps, times --scale"),
        ),
        cores=PAPER_CORES,
    )


HIDE_AND_SEEK = (
    Recipe(
        "hide-and-seek-quadrant",
        "the quadrant on a laptop: a smaller version of the paper's network, small batches, whole episodes per block",
        ("hide-and-seek/quadrant",),
        task=(_entities(), *_network(64, 128, 128)),
        ppo=(
            *_learning(0.99, 3, 4),
            Setting("lanes", 16, "worlds in a group"),
            Setting("horizon", 80, "a whole episode"),
            Setting("batch", 10_240, "two groups of 16 worlds"),
        ),
    ),
    _paper("hide-and-seek-food", "hide-and-seek with food", ("hide-and-seek/food",), "food_obs:af"),
    _paper(
        "hide-and-seek-blueprint",
        "the transfer task with construction sites",
        ("hide-and-seek/blueprint",),
        "construction_site_obs:acs",
    ),
    _paper("hide-and-seek", "network and hyperparameters of Baker et al. 2019", ("hide-and-seek/*",)),
)

MULTI_AGENT = (*HIDE_AND_SEEK, CARTPOLE_GAME, TIC_TAC_TOE, CONNECT_FOUR, BOARD_GAMES, SPREAD, TWO_STEP)
