"""Recipes for environments of PettingZoo."""

from __future__ import annotations

from srl.experiments.recipes.recipe import Recipe, Setting

_MANY_GAMES = "many games at once: a policy that plays itself soon repeats a few lines and forgets the others"

BOARD_GAMES = Recipe(
    "board-games",
    "PettingZoo's classic games: turns, masks of legal moves, one reward at the end",
    ("classic.*", "pettingzoo.classic.*"),
    task=(
        Setting("algo.entropy_coefficient", 0.05, "keeps self-play from repeating the same few games"),
        Setting("algo.normalize_return", "none", "the reward is -1, 0 or 1"),
        Setting("algo.hidden_sizes", (128, 128), "positions are many, but small"),
    ),
    ppo=(
        Setting("lanes", 128, _MANY_GAMES),
        Setting("horizon", 32, "several games per player"),
        Setting("batch", 8192, _MANY_GAMES),
        Setting("algo.epochs", 4, "passes over each batch"),
        Setting("algo.num_minibatches", 16, "gradient steps per pass"),
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
        Setting("algo.learning_rate", 5e-4, "as Papoudakis et al. 2021"),
    ),
)

MULTI_AGENT = (BOARD_GAMES, SPREAD)
