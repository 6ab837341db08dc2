"""Errors to plant in search, for `python benchmarks/mutations.py --only muzero alphazero reanalysis`.

Each is a name, a file, an expression and what replaces it, and the tests that must notice.
"""

from __future__ import annotations

TESTS = "tests/algorithms/test_"
LOSSES = (f"{TESTS}muzero_losses.py",)
MUZERO = (*LOSSES, f"{TESTS}muzero.py", f"{TESTS}muzero_targets.py")
GAMES = (f"{TESTS}muzero_games.py",)
ALPHAZERO_TESTS = (f"{TESTS}alphazero.py",)
REANALYSIS = ("tests/workers/test_reanalyze.py", "tests/replay/test_targets.py")

TRAINER, TARGETS = "srl/algorithms/muzero/trainer.py", "srl/algorithms/muzero/targets.py"
CONFIG, POLICY, NETWORK = (f"srl/algorithms/muzero/{name}.py" for name in ("config", "policy", "network"))
ZERO = "srl/algorithms/alphazero/trainer.py"

SEARCH_MUTATIONS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    ("muzero: losses of unrolled steps are not scaled by 1/K", TRAINER, "1.0 / steps", "1.0", LOSSES),
    ("muzero: value_weight ignored", TRAINER, "config.value_weight * losses", "losses", LOSSES),
    ("muzero: values after a truncation are learned", TRAINER, "value_loss * batch.has_value", "value_loss", LOSSES),
    (
        "muzero: rewards after a truncation are learned",
        TRAINER,
        "reward_loss * batch.has_reward",
        "reward_loss",
        LOSSES,
    ),
    ("muzero: policies after an end are learned", TRAINER, "policy_loss * batch.has_policy", "policy_loss", LOSSES),
    (
        "muzero: consistency beyond an end",
        TRAINER,
        "(similarity * batch.has_policy[1:] * weight)",
        "(similarity * weight)",
        LOSSES,
    ),
    (
        "muzero: consistency with a gradient to the goal",
        TRAINER,
        "        with torch.no_grad():\n            later",
        "        if True:\n            later",
        LOSSES,
    ),
    ("muzero: consistency with the observation before", TRAINER, "part[num_windows:]", "part[:-num_windows]", LOSSES),
    (
        "muzero: target network never updated",
        TRAINER,
        "config.target_update == 0",
        "config.target_update == -1",
        LOSSES,
    ),
    ("muzero: whole gradient through the dynamics", TRAINER, "latent, 0.5)", "latent, 1.0)", MUZERO),
    ("muzero: temperature ignored", POLICY, "result.visits, self._temperature", "result.visits, 1.0", LOSSES),
    ("muzero: greedy in training", POLICY, "elif not greedy and not self._uses_gumbel", "elif False", LOSSES),
    ("muzero: temperature schedule reversed", CONFIG, "if progress < 0.5 or", "if progress >= 0.5 or", LOSSES),
    (
        "muzero: temperature is not learned by policies",
        TRAINER,
        ".data.fill_(config",
        ".data.clone().fill_(config",
        LOSSES,
    ),
    ("muzero: no discount in the search", NETWORK, "            config.gamma,\n", "            1.0,\n", LOSSES),
    (
        "muzero: dirichlet_alpha not passed",
        CONFIG,
        "            dirichlet_alpha=self.dirichlet_alpha,\n",
        "",
        LOSSES,
    ),
    (
        "muzero: dirichlet_fraction not passed",
        CONFIG,
        "            dirichlet_fraction=self.dirichlet_fraction,\n",
        "",
        LOSSES,
    ),
    (
        "muzero: reanalysis without the rows to bootstrap from",
        CONFIG,
        '(self.n_step if self.bootstrap == "search" else 0)',
        "0",
        LOSSES,
    ),
    ("muzero: reward predicted one place late", TRAINER, "bin_loss(reward[1:]", "bin_loss(reward[:-1]", LOSSES),
    # The end of an episode stops a sum twice: by itself, and because no lane acts in the row after it.
    ("muzero: bootstrap after a termination", TARGETS, "discount = 0.0\n", "discount *= 1.0\n", MUZERO),
    ("muzero: rewards of player 0 for player 1", TARGETS, "reward=cut.reward * own[:-1]", "reward=cut.reward", GAMES),
    ("muzero: sums of player 0 for player 1", TARGETS, "total=cut.total * own", "total=cut.total", GAMES),
    ("muzero: bootstrap for the player to move then", TARGETS, "cut.discount * own * later", "cut.discount", GAMES),
    ("muzero: sign of the first ply in all places", TARGETS, "sign[: len(cut.total)]", "sign[:1]", GAMES),
    (
        "muzero: no turns in the search",
        NETWORK,
        "-config.gamma if has_two_players",
        "config.gamma if has_two_players",
        GAMES,
    ),
    (
        "muzero: places after a truncation are absorbing",
        TARGETS,
        "absorbing = terminated[k, lane]",
        "absorbing = True",
        MUZERO,
    ),
    (
        "reanalysis: targets of unpublished versions accepted",
        "srl/workers/replay/shard.py",
        "if version <= self._reanalyzer.version:",
        "if True:",
        REANALYSIS,
    ),
    (
        "alphazero: root value of the other player",
        ZERO,
        "self._targets(batch), batch.root_value,",
        "self._targets(batch), batch.root_value * (1 - 2 * batch.observation[TO_PLAY]),",
        ALPHAZERO_TESTS,
    ),
    (
        "alphazero: illegal actions in the loss",
        ZERO,
        "losses(network.masked(logits, batch.observation)",
        "losses((logits)",
        ALPHAZERO_TESTS,
    ),
    (
        "alphazero: no weight decay",
        ZERO,
        "        flat.gradients.add_(flat.trainable, alpha=config.weight_decay)\n",
        "",
        ALPHAZERO_TESTS,
    ),
    ("alphazero: results with the sign of player 0", ZERO, "return sign * (reward", "return (reward", ALPHAZERO_TESTS),
    (
        "alphazero: a bootstrap value with the sign of the mover",
        ZERO,
        "discount * next_sign * next_value",
        "discount * sign * next_value",
        ALPHAZERO_TESTS,
    ),
)
