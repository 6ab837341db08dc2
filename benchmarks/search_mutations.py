"""Errors to plant in search, for `python benchmarks/mutations.py --only search: muzero: alphazero: reanalysis:`.

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
ZERO, ZERO_POLICY = "srl/algorithms/alphazero/trainer.py", "srl/algorithms/alphazero/policy.py"

KERNELS, NOISE, COMPILED = (f"srl/search/{name}.py" for name in ("kernels", "noise", "mlp_kernels"))
TREES = ("tests/search/test_tree_search.py",)
DRAWS, SAMPLES = ("tests/search/test_samples.py",), "srl/search/samples.py"
SAMPLED, SUMS = (f"{TESTS}muzero_sampled.py",), (f"{TESTS}muzero_prefix.py",)
PREFIX = "srl/algorithms/muzero/prefix.py"
MODELS = ("tests/search/test_mlp.py",)
SIMULATORS = ("tests/environments/test_games.py",)

# What went wrong in public implementations of the search itself.
TREE_MUTATIONS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "search: no change of sign for the other player",
        KERNELS,
        "nodes.discount[lane, node] * gain",
        "abs(nodes.discount[lane, node]) * gain",
        TREES,
    ),
    ("search: sign of the mean of the siblings", KERNELS, "mean += q\n", "mean -= q\n", TREES),
    (
        "search: reward one ply late",
        KERNELS,
        "gain = nodes.reward[lane, node] +",
        "gain = nodes.reward[lane, parent] +",
        TREES,
    ),
    (
        "search: q of another lane's parent",
        KERNELS,
        "q = nodes.q[lane, parent, edge]\n",
        "q = nodes.q[0, parent, edge]\n",
        TREES,
    ),
    ("search: state of another lane", KERNELS, "node * len(picks.row) + lane", "node * len(picks.row)", TREES),
    (
        "search: limits of the first lane for all",
        KERNELS,
        "low, high = nodes.limits[lane, 0], nodes.limits[lane, 1]\n    mean",
        "low, high = nodes.limits[0, 0], nodes.limits[0, 1]\n    mean",
        TREES,
    ),
    (
        "search: limits of the search before",
        KERNELS,
        "nodes.limits[lane, 0], nodes.limits[lane, 1] = HIGHEST, -HIGHEST",
        "nodes.parent[lane, 0] = NONE",
        TREES,
    ),
    ("search: PUCT without a guard for min = max", KERNELS, "max(high - low, floor)", "(high - low)", TREES),
    ("search: Gumbel without a guard for min = max", KERNELS, "max(high - low, MIN_SPAN_NODE)", "(high - low)", TREES),
    (
        "search: q of unvisited actions is 0",
        KERNELS,
        "if visits > 0 else mixed\n        scores",
        "if visits > 0 else np.float32(0)\n        scores",
        TREES,
    ),
    (
        "search: the network's value for unvisited actions, without the q of the others",
        KERNELS,
        "np.float32(count) * (weighted / mass)",
        "np.float32(count) * nodes.value[lane, node]",
        TREES,
    ),
    # Illegal actions are kept out twice: by their priors, and by a test where they are chosen. So the mask has to go.
    (
        "search: masks ignored",
        KERNELS,
        "(len(legal) == 0 or legal[a]) and logits[a] > -np.float32(np.inf)",
        "logits[a] > -np.float32(np.inf)",
        TREES,
    ),
    (
        "search: halving begins with as many actions whatever is legal",
        KERNELS,
        "min(num_legal, rules.halving.shape[0] - 1)",
        "rules.halving.shape[0] - 1",
        TREES,
    ),
    (
        "search: noise in the policy",
        KERNELS,
        "            score = nodes.gumbel[lane, a] + scores[a]\n",
        "            scores[a] += nodes.gumbel[lane, a]\n            score = scores[a]\n",
        TREES,
    ),
    ("search: frozen noise", NOISE, "rng += rng.dtype.type(1)", "rng += rng.dtype.type(0)", TREES),
    ("search: noise of the first lane for all", NOISE, "state[0] = seeds[i]", "state[0] = seeds[0]", TREES),
    (
        "search: the share of the noise and of the prior swapped",
        NOISE,
        "(1 - fraction) * priors[lanes[i], a] + fraction * noise[a]",
        "fraction * priors[lanes[i], a] + (1 - fraction) * noise[a]",
        TREES,
    ),
    ("search: h not inverted", COMPILED, "np.sign(mean) * (root * root - 1)", "mean", MODELS),
    ("search: the compiled model looks at another action", COMPILED, "actions[row] * num_outputs", "0", MODELS),
)

SEARCH_MUTATIONS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    *TREE_MUTATIONS,
    ("muzero: importance weights ignored", TRAINER, "scale * batch.weight * count", "scale * count", LOSSES),
    (
        "muzero: errors of the last place as priorities",
        TRAINER,
        "(found - values[0]).abs() * batch.has_value[0]",
        "(found - values[-1]).abs() * batch.has_value[-1]",
        MUZERO,
    ),
    (
        "muzero: bootstrap from the network that learns",
        TRAINER,
        "target = self.learner.targets[NETWORK]",
        "target = self._network",
        MUZERO,
    ),
    (
        "muzero: noise in evaluation",
        POLICY,
        "noise=not greedy), noise=not greedy)",
        "noise=not greedy), noise=True)",
        MUZERO,
    ),
    (
        "reanalysis: with noise",
        POLICY,
        "self._decide(observation, seeds, noise=False)",
        "self._decide(observation, seeds, noise=True)",
        REANALYSIS,
    ),
    (
        "muzero: no mask in the search",
        POLICY,
        "legal: Array | None = None if allowed is None else fetch(allowed).numpy()",
        "legal: Array | None = None",
        MUZERO,
    ),
    (
        "muzero: samples keep a prior without correction",
        SAMPLES,
        "(np.float32(1) - sampler.temperature) * square",
        "np.float32(0) * square",
        DRAWS,
    ),
    (
        "muzero: the first sample whatever the tree's action is",
        COMPILED,
        "kept[1 + edge * sampler.size + j]",
        "kept[1 + j]",
        DRAWS,
    ),
    ("muzero: all nodes have one seed", COMPILED, "child_seed(kept[0], edge)", "kept[0]", DRAWS),
    (
        "muzero: weights of samples without the actions",
        POLICY,
        "(result.policy[..., None], sampled)",
        "(result.policy[..., None], 0 * sampled)",
        SAMPLED,
    ),
    ("muzero: prefix not reset in a search", PREFIX, "depth.remainder(HORIZON) != 0", "depth != 0", SUMS),
    ("muzero: the sum instead of its difference", PREFIX, "new_total - total * kept", "new_total", SUMS),
    ("muzero: prefix not reset in training", PREFIX, "None if k % HORIZON == 0", "None if k == 0", SUMS),
    (
        "alphazero: noise in evaluation",
        ZERO_POLICY,
        "rng = None if greedy else self._random\n        return self.decision(moves, search.run("
        "self.root(moves), self.follow, rng, moves.legal, not greedy), greedy)",
        "return self.decision(moves, search.run("
        "self.root(moves), self.follow, self._random, moves.legal, True), greedy)",
        ALPHAZERO_TESTS,
    ),
    (
        "alphazero: the same sign whoever moves next",
        ZERO_POLICY,
        "np.float32(-self._config.gamma)",
        "np.float32(self._config.gamma)",
        ALPHAZERO_TESTS,
    ),
    ("alphazero: no mask inside of the tree", ZERO_POLICY, "value, logits, legal)", "value, logits)", ALPHAZERO_TESTS),
    (
        "alphazero: what foresight knows is not used",
        ZERO_POLICY,
        "np.where(np.isnan(known), value, known)",
        "value",
        ALPHAZERO_TESTS,
    ),
    (
        "alphazero: foresight sees a loss that is not forced",
        "srl/environments/games/board_kernels.py",
        "num_lost == num_legal",
        "num_lost > 0",
        SIMULATORS,
    ),
    (
        "alphazero: foresight blames draws",
        "srl/api/simulator.py",
        "bad[rows[answered], action] = replies.value >= spec.highest",
        "bad[rows[answered], action] = True",
        SIMULATORS,
    ),
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
    ("muzero: no discount in the search", NETWORK, "else config.gamma,\n", "else 1.0,\n", LOSSES),
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
    (
        "muzero: reward predicted one place late",
        TRAINER,
        "(latents[1:], reward[1:])",
        "(latents[:-1], reward[:-1])",
        LOSSES,
    ),
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
