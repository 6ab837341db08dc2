"""Errors to plant in replay and off-policy algorithms, for `python benchmarks/mutations.py --only replay dqn sac`.

Each is a name, a file, an expression and what replaces it, and the tests that must notice.
"""

from __future__ import annotations

TESTS = "tests/algorithms/test_"
MEMORY = ("tests/replay/test_memory.py",)
SEQUENCE_UNITS = ("tests/replay/test_sequence_units.py",)
PRIORITIES = ("tests/replay/test_priorities.py", "tests/replay/test_sum_tree.py")
HINDSIGHT = ("tests/replay/test_hindsight.py",)
RATIO = ("tests/workers/test_replayed.py", "tests/workers/test_sampled.py")
DQN = (f"{TESTS}dqn_trainer.py", f"{TESTS}dqn_returns.py", f"{TESTS}dqn_policy.py")
SAC = (f"{TESTS}sac_losses.py", f"{TESTS}sac_trainer.py")
R2D2 = (f"{TESTS}r2d2_returns.py", f"{TESTS}r2d2_trainer.py")
QMIX = (f"{TESTS}qmix_mixing.py", f"{TESTS}qmix_losses.py", f"{TESTS}qmix_trainer.py")
OFFLINE = (f"{TESTS}offline.py", f"{TESTS}cql.py")

KERNELS, RING, UNITS = "srl/replay/kernels.py", "srl/replay/ring.py", "srl/replay/priorities.py"
RETURNS, TRAINER = "srl/algorithms/dqn/returns.py", "srl/algorithms/dqn/trainer.py"
SAC_LOSSES, SAC_TRAINER = "srl/algorithms/sac/losses.py", "srl/algorithms/sac/trainer.py"
OFFPOLICY_LEARNER, OFFPOLICY_TRAINER = "srl/algorithms/offpolicy/learner.py", "srl/algorithms/offpolicy/trainer.py"
MIXING, QMIX_LOSSES = "srl/algorithms/qmix/mixing.py", "srl/algorithms/qmix/losses.py"
R2D2_RETURNS, R2D2_TRAINER = "srl/algorithms/r2d2/returns.py", "srl/algorithms/r2d2/trainer.py"

REPLAY_MUTATIONS: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "replay: n-step returns bootstrap after a termination",
        KERNELS,
        "            if ended & TERMINATED:\n                discount = 0.0\n            if ended or step",
        "            if ended or step",
        MEMORY,
    ),
    (
        "replay: n-step returns do not bootstrap after a truncation",
        KERNELS,
        "            if ended & TERMINATED:\n                discount = 0.0\n            if ended or step",
        "            if ended:\n                discount = 0.0\n            if ended or step",
        MEMORY,
    ),
    # An end of an episode stops the sum twice: by itself, and because no lane acts in the row after it.
    (
        "replay: n-step returns go on after an environment failed",
        KERNELS,
        "RUNNING = ACTING | FIRST",
        "RUNNING = ACTING",
        MEMORY,
    ),
    (
        "replay: blocks are chained over the gap that a killed actor left",
        RING,
        "if before != NONE and self.first_step[before] + self.spec.horizon == self.first_step[slot]:",
        "if before != NONE:",
        MEMORY,
    ),
    (
        "replay: a block that is replaced stays in its chain",
        RING,
        "                back[links[slot]] = NONE\n",
        "",
        MEMORY + SEQUENCE_UNITS,
    ),
    (
        "replay: a replacement actor continues the track of the killed one",
        "srl/workers/trainer/replayed.py",
        "track = (posted.producer, posted.incarnation, posted.track)",
        "track = (posted.producer, posted.track)",
        RATIO,
    ),
    (
        "replay: rows without a decision are drawn",
        KERNELS,
        "            if flags[strip, row] & ACTING:\n                break\n        units[i] = strip * num_rows + row",
        "            break\n        units[i] = strip * num_rows + row",
        MEMORY,
    ),
    (
        "replay: discount of n steps is gamma",
        KERNELS,
        "            total += discount * rewards[strip, row]\n            discount *= gamma\n            ended",
        "            total += discount * rewards[strip, row]\n            discount = gamma\n            ended",
        MEMORY,
    ),
    (
        "replay: lanes are exchanged where blocks meet",
        KERNELS,
        "                next_strip = after * lanes + strip % lanes\n"
        "                if flags[next_strip, 0] & RUNNING != ACTING:\n"
        "                    break\n                strip, row = next_strip, 0\n            elif flags[strip, row]",
        "                next_strip = after * lanes + (strip + 1) % lanes\n"
        "                if flags[next_strip, 0] & RUNNING"
        " != ACTING:\n                    break\n                strip, row = next_strip, 0\n"
        "            elif flags[strip, row]",
        MEMORY,
    ),
    (
        "replay: warm-up is made up for",
        "srl/workers/trainer/replayed.py",
        "            return 0\n        counts[DECISIONS] += num_decisions",
        "            counts[DECISIONS] += num_decisions\n            return 0\n"
        "        counts[DECISIONS] += num_decisions",
        RATIO,
    ),
    (
        "replay: rounding of the ratio is lost",
        "srl/workers/trainer/replayed.py",
        "steps = int(int(counts[DECISIONS]) * self._flow.updates_per_decision + ROUNDING) - self._num_steps",
        "steps = int(num_decisions * self._flow.updates_per_decision + ROUNDING)",
        RATIO,
    ),
    (
        "replay: shares of shards are rounded down",
        "srl/workers/trainer/sampled.py",
        "np.floor(ends + (update * GOLDEN) % 1.0)",
        "np.floor(ends)",
        RATIO,
    ),
    (
        "priorities: weights without exponent",
        UNITS,
        "weights[i] = (lowest / values[i]) ** beta",
        "weights[i] = lowest / values[i]",
        PRIORITIES,
    ),
    ("priorities: weights inverted", UNITS, "(lowest / values[i]) ** beta", "(values[i] / lowest) ** beta", PRIORITIES),
    (
        "priorities: weights over several shards without their shares",
        "srl/workers/trainer/sampled.py",
        "part.astype(np.float64) * (part.shape[1] / batch)",
        "part.astype(np.float64)",
        RATIO,
    ),
    (
        "priorities: no alpha",
        UNITS,
        "(abs(priorities[i]) + epsilon) ** alpha",
        "abs(priorities[i]) + epsilon",
        PRIORITIES,
    ),
    (
        "priorities: feedback to a unit that was replaced",
        UNITS,
        "if is_current[i] and np.isfinite(priorities[i]):",
        "if np.isfinite(priorities[i]):",
        PRIORITIES,
    ),
    (
        "priorities: draws by one child too far",
        "srl/replay/sum_tree.py",
        "                if rest >= running:",
        "                if rest >= running - sums[begin + k]:",
        PRIORITIES,
    ),
    # As above, an end stops the walk twice.
    (
        "hindsight: goals of other episodes",
        KERNELS,
        "        ended = flags[strip, row] & (TERMINATED | TRUNCATED)\n        row += 1\n        step += 1\n"
        "        if ended or step == num_steps:\n            break\n        if row == num_rows:\n"
        "            after = following[strip // lanes]\n            if after < 0:\n                break\n"
        "            next_strip = after * lanes + strip % lanes\n"
        "            if flags[next_strip, 0] & RUNNING != ACTING:\n                break\n"
        "            strip, row = next_strip, 0\n        elif flags[strip, row] & RUNNING != ACTING:\n"
        "            break\n    return strip, row, step",
        "        row += 1\n        step += 1\n"
        "        if step == num_steps:\n            break\n        if row == num_rows:\n"
        "            after = following[strip // lanes]\n            if after < 0:\n                break\n"
        "            strip, row = after * lanes + strip % lanes, 0\n    return strip, row, step",
        HINDSIGHT,
    ),
    (
        "hindsight: reward of the recorded goal",
        "srl/replay/hindsight.py",
        "reward, terminated = self._evaluated(achieved, wanted, after.shape)",
        "reward, terminated = self._evaluated(achieved, from_leaves(self._take(after.ravel())), after.shape)",
        HINDSIGHT,
    ),
    (
        "hindsight: next observation keeps its goal",
        "srl/replay/hindsight.py",
        "for rows in (buffers.here, buffers.there):",
        "for rows in (buffers.here,):",
        HINDSIGHT,
    ),
    (
        "hindsight: share of goals",
        "srl/api/dataflow.py",
        "return self.ratio / (1.0 + self.ratio)",
        "return 1.0 / self.ratio",
        HINDSIGHT,
    ),
    (
        "target network: copied at each step",
        TRAINER,
        "if self.num_steps % config.target_update == 0:",
        "if True:",
        DQN,
    ),
    (
        "target network: never copied",
        OFFPOLICY_LEARNER,
        "            target[: len(source)].copy_(source)\n        else:",
        "            pass\n        else:",
        DQN + SAC,
    ),
    (
        "target network: moves by 1 - tau",
        OFFPOLICY_LEARNER,
        "target[: len(source)].lerp_(source, tau)",
        "target[: len(source)].lerp_(source, 1.0 - tau)",
        DQN + SAC,
    ),
    (
        "learner: networks are not rolled back",
        OFFPOLICY_TRAINER,
        "        except NotFiniteError:\n            learner.roll_back()\n            self.counters[1] = before",
        "        except NotFiniteError:\n            self.counters[1] = before",
        DQN + SAC,
    ),
    (
        "dqn: chooses and evaluates with the target network",
        TRAINER,
        "targets = None if double else",
        "targets = None if False else",
        DQN,
    ),
    (
        "dqn: weights do not scale gradients",
        TRAINER,
        "pick(batch.weight)[:, None, None] / batch.reward.shape[1]",
        "torch.ones_like(pick(batch.weight))[:, None, None] / batch.reward.shape[1]",
        DQN,
    ),
    (
        "dqn: forbidden choices are bootstrapped from",
        TRAINER,
        "values = values.masked_fill(~rows.allowed, -torch.inf)",
        "pass",
        DQN,
    ),
    (
        "dqn: reward outside of the projection",
        RETURNS,
        "distance.neg_().add_(1.0).clamp_(min=0.0)",
        "distance.neg_().add_(1.0)",
        DQN,
    ),
    ("dqn: quantile levels inverted", RETURNS, "(difference < 0.0).float()", "(difference > 0.0).float()", DQN),
    (
        "dqn: mean advantage is kept",
        "srl/algorithms/dqn/network.py",
        "torch.eye(self.num_choices) - means",
        "torch.eye(self.num_choices)",
        DQN,
    ),
    (
        "dqn: lanes do not differ",
        "srl/algorithms/dqn/policy.py",
        "1.0 + self._spread * position[:, None]",
        "1.0 + self._spread * 0.0 * position[:, None]",
        DQN,
    ),
    ("sac: no Jacobian of tanh", SAC_LOSSES, "(gaussian - log_slope(raw)).sum(1)", "gaussian.sum(1)", SAC),
    (
        "sac: sign of the entropy in the target",
        SAC_LOSSES,
        "values.amin(0) - temperature * log_prob",
        "values.amin(0) + temperature * log_prob",
        SAC,
    ),
    (
        "sac: highest critic",
        SAC_LOSSES,
        "return values.amin(0) - temperature",
        "return values.amax(0) - temperature",
        SAC,
    ),
    (
        "sac: sign of the temperature's loss",
        SAC_LOSSES,
        "(entropy.mean() - target_entropy)",
        "(target_entropy - entropy.mean())",
        SAC,
    ),
    ("sac: target noise is not clipped", SAC_LOSSES, "(noise * std).clamp(-limit, limit)", "noise * std", SAC),
    (
        "sac: actions reach critics in their own units",
        SAC_TRAINER,
        "batch._replace(action=self.scaling.to_unit(batch.action.reshape(len(batch.action), -1)))",
        "batch._replace(action=batch.action.reshape(len(batch.action), -1))",
        SAC,
    ),
    (
        "sac: the actor's loss moves the critics",
        SAC_TRAINER,
        "self.critics.requires_grad_(False)",
        "self.critics.requires_grad_(True)",
        SAC,
    ),
    (
        "sac: critics without target networks",
        SAC_TRAINER,
        "        if not self.actor_has_target:\n            learner.follow(CRITIC, config.tau)",
        "        if not self.actor_has_target:\n            learner.follow(CRITIC, 1.0)",
        SAC,
    ),
    ("td3: no delay", SAC_TRAINER, "if self.num_steps % config.policy_delay == 0:", "if True:", SAC),
    (
        "r2d2: returns are not compressed",
        R2D2_TRAINER,
        "return rescale(total) if network.rescaled else total",
        "return total",
        R2D2,
    ),
    (
        "r2d2: gradients flow through the burn-in",
        "srl/algorithms/r2d2/network.py",
        "torch.no_grad()",
        "torch.enable_grad()",
        R2D2,
    ),
    (
        "r2d2: sums enter the next episode",
        R2D2_RETURNS,
        "continues[1:-1] = learned[1:] & ~first[1:-1] & ~(terminated | truncated)[:-2]",
        "continues[1:-1] = learned[1:]",
        R2D2,
    ),
    (
        "r2d2: termination bootstraps",
        R2D2_RETURNS,
        "np.where(terminated[end, lanes], np.float32(0.0), np.float32(gamma))",
        "np.float32(gamma)",
        R2D2,
    ),
    ("qmix: weights may be negative", MIXING, "self.first_weight(features).abs()", "self.first_weight(features)", QMIX),
    (
        "qmix: weights of the last layer may be negative",
        MIXING,
        "self.last_weight(features).abs()",
        "self.last_weight(features)",
        QMIX,
    ),
    (
        "qmix: padding is learned from",
        QMIX_LOSSES,
        "steps.acting[:-1].any(-1) & (steps.valid[1:].all(-1) | ended)",
        "torch.ones_like(ended)",
        QMIX,
    ),
    (
        "qmix: truncation does not bootstrap",
        QMIX_LOSSES,
        "steps.acting[1:] | (steps.truncated[:-1] & ~steps.terminated[:-1] & steps.acting[:-1])",
        "steps.acting[1:] & ~steps.truncated[:-1]",
        QMIX,
    ),
    (
        "iql: expectile of the other side",
        "srl/algorithms/offline/losses.py",
        "(difference < 0.0).to",
        "(difference > 0.0).to",
        OFFLINE,
    ),
    (
        "iql: sign of the advantage",
        "srl/algorithms/offline/losses.py",
        "(beta * advantage).exp()",
        "(-beta * advantage).exp()",
        OFFLINE,
    ),
    (
        "cql: recorded actions are lowered",
        "srl/algorithms/offline/losses.py",
        "values.logsumexp(2) - taken",
        "values.logsumexp(2) + taken",
        OFFLINE,
    ),
    (
        "cql: densities of sampled actions are ignored",
        "srl/algorithms/offline/losses.py",
        "(values - log_density).logsumexp(2)",
        "values.logsumexp(2)",
        OFFLINE,
    ),
    (
        "shift: observation and next one together",
        "srl/algorithms/offpolicy/random_shift.py",
        "offsets = random.integers(-pixels, pixels, (*drawn, 2), dtype=np.int64, endpoint=True)",
        "offsets = np.random.default_rng(0).integers(-pixels, pixels, (*drawn, 2), dtype=np.int64, endpoint=True)",
        (f"{TESTS}random_shift.py",),
    ),
    (
        "sequences: do not stop at a gap",
        KERNELS,
        "                    if after < 0:\n                        ends |= TRUNCATED * (t < num_times - 2)\n",
        "                    if after < 0:\n                        ends |= 0\n",
        SEQUENCE_UNITS,
    ),
    (
        "sequences: state of the next start",
        KERNELS,
        "states[step, column] = (slot * lanes + lane) * starts + start",
        "states[step, column] = (slot * lanes + lane) * starts + (start + 1) % starts",
        SEQUENCE_UNITS,
    ),
)
