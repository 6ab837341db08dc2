"""Recipes for hide-and-seek: the network and the numbers of Baker et al. 2019, and a smaller pair for a laptop."""

from __future__ import annotations

from srl.experiments.recipes.recipe import Recipe, Setting

PAPER_BATCH = 640_000
"""Agent steps: 64,000 chunks of 10."""
PAPER_CORES = 1024
"""About so many fed one batch of that size in the first SRL's runs."""

KINDS = ("agent_qpos_qvel:aa", "box_obs:ab", "ramp_obs:ar")
SIGHT = "the actor attends to what it sees, the critic to what is there"


def _entities(*more: str) -> Setting:
    pairs = [kind.split(":") for kind in (*KINDS, *more)]
    named = tuple(f"{key}:mask_{mask}_obs:mask_{mask}_obs_spoof" for key, mask in pairs)
    return Setting("algo.entities", named, SIGHT)


def _network(entity_size: int, hidden: int, memory: int) -> tuple[Setting, ...]:
    return (
        Setting("algo.scans", ("lidar",), "30 directions all around"),
        Setting("algo.entity_size", entity_size, "numbers for each entity"),
        Setting("algo.hidden_sizes", (hidden,), "behind the pooled entities"),
        Setting("algo.activation", "relu", "as in the paper"),
        Setting("algo.memory", "lstm", "what went out of sight"),
        Setting("algo.memory_size", memory, "of actor and critic each"),
        Setting("algo.chunk", 10, "gradients go 10 steps back, from the stored memory"),
        Setting("algo.normalize_observation", True, "each feature of each kind of entity"),
        Setting("algo.observation_clip", 5.0, "as in the paper"),
        Setting("algo.normalize_return", "popart", "returns reach 144"),
    )


def _learning(gamma: float, epochs: int, num_minibatches: int) -> tuple[Setting, ...]:
    return (
        Setting("algo.gamma", gamma, "an episode has 80 to 480 steps"),
        Setting("algo.epochs", epochs, "each chunk is learned from so often"),
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
        "the quadrant on a laptop: a smaller network of the paper's form, small batches, whole episodes in a block",
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
    _paper("hide-and-seek", "the network and the numbers of Baker et al. 2019", ("hide-and-seek/*",)),
)
