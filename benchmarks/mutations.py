"""Share of planted numeric errors that the tests find: `python benchmarks/mutations.py`.

Each mutation is a classic silent bug of RL code: the wrong row, sign, bound, mask or seed. It replaces one expression
in a copy of the tree, where the tests of that part then run until the first failure. A mutation that passes all tests
survives, which means that a test is missing; the exit code is then 1. `--only gae clip` runs those whose name contains
one of the words.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from replay_mutations import REPLAY_MUTATIONS
from search_mutations import SEARCH_MUTATIONS

ROOT = Path(__file__).resolve().parent.parent
RETURNS = ("tests/algorithms/test_returns.py",)
LOSS = ("tests/algorithms/test_ppo_loss.py", "tests/algorithms/test_gradients.py")
BATCH = (
    "tests/algorithms/test_ppo_batch.py",
    "tests/algorithms/test_ppo_trainer.py",
    "tests/algorithms/test_sequences.py",
)
STATISTICS = ("tests/algorithms/test_moments.py", "tests/algorithms/test_normalizers.py")
DISTRIBUTIONS = ("tests/networks/test_distributions.py",)
MEMORY = ("tests/networks/test_gru_lstm.py", "tests/algorithms/test_sequences.py")
RECORDER = ("tests/workers", "tests/system/test_unrecorded.py")


@dataclass(frozen=True)
class Mutation:
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


GAE, VTRACE = "srl/algorithms/returns/gae.py", "srl/algorithms/returns/vtrace.py"
PPO_LOSS, PPO_BATCH = "srl/algorithms/ppo/loss.py", "srl/algorithms/ppo/batch.py"
ESTIMATES, SEQUENCES = "srl/algorithms/ppo/estimates.py", "srl/algorithms/ppo/sequences.py"
PPO_TRAINER, LEARNER = "srl/algorithms/ppo/trainer.py", "srl/algorithms/training/learner.py"
MOMENTS, NORMALIZERS = "srl/algorithms/training/moments.py", "srl/algorithms/training/normalizers.py"
GAUSSIAN, SQUASHED = "srl/networks/distributions/gaussian.py", "srl/networks/distributions/squashed_gaussian.py"
CATEGORICAL, SCALING = "srl/networks/distributions/categorical.py", "srl/networks/distributions/action_scaling.py"
ALIGNED, ADMISSION, SEEDING = "srl/workers/actor/aligned_recorder.py", "srl/streams/admission.py", "srl/base/seeding.py"

MUTATIONS = (
    Mutation(
        "gae: end read one row late",
        GAE,
        "np.where(ends.terminated[:-1], 0.0",
        "np.where(ends.terminated[1:], 0.0",
        RETURNS,
    ),
    Mutation(
        "gae: truncation as termination",
        GAE,
        "np.where(ends.terminated[:-1], 0.0",
        "np.where((ends.terminated | ends.truncated)[:-1], 0.0",
        RETURNS,
    ),
    Mutation(
        "gae: termination as truncation", GAE, "np.where(ends.terminated[:-1], 0.0, value[1:])", "value[1:]", RETURNS
    ),
    # A lane never acts in the row after an end, so that each of the conditions alone would be enough.
    Mutation(
        "gae: sum across an end",
        GAE,
        "acting[:-2] & ~(terminated | truncated)[:-2] & acting[1:-1]",
        "np.ones_like(acting[:-2])",
        RETURNS,
    ),
    Mutation("gae: value of the same row", GAE, "0.0, value[1:])", "0.0, value[:-1])", RETURNS),
    Mutation(
        "gae: lambda without gamma", GAE, "gamma * gae_lambda * ends.carries()", "gae_lambda * ends.carries()", RETURNS
    ),
    Mutation("gae: reward of the next row", GAE, "reward[:-1] + gamma", "reward[1:] + gamma", RETURNS),
    Mutation("gae: sums in the wrong direction", GAE, "range(len(sums) - 2, -1, -1)", "range(len(sums) - 1)", RETURNS),
    Mutation("vtrace: bounds exchanged", VTRACE, "np.minimum(rho_clip, ratio)", "np.minimum(c_clip, ratio)", RETURNS),
    Mutation(
        "vtrace: ratio inverted",
        VTRACE,
        "np.exp(np.where(acting[:-1], log_ratio[:-1], 0.0)",
        "np.exp(-np.where(acting[:-1], log_ratio[:-1], 0.0)",
        RETURNS,
    ),
    Mutation("vtrace: c not clipped", VTRACE, "carry * np.minimum(c_clip, ratio[:-1])", "carry * ratio[:-1]", RETURNS),
    Mutation("vtrace: delta not weighted", VTRACE, "accumulate(rho * delta,", "accumulate(delta.copy(),", RETURNS),
    Mutation("clip: wrong side", PPO_LOSS, "moves = surrogate <= clipped", "moves = surrogate >= clipped", LOSS),
    Mutation(
        "clip: no lower bound", PPO_LOSS, "ratio.clamp_(1.0 - coefficients.clip, 1.0", "ratio.clamp_(0.0, 1.0", LOSS
    ),
    Mutation(
        "clip: ratio inverted",
        PPO_LOSS,
        "log_ratio = evaluation.log_prob - minibatch.log_prob",
        "log_ratio = minibatch.log_prob - evaluation.log_prob",
        LOSS,
    ),
    Mutation(
        "loss: sign of the entropy", PPO_LOSS, "-coefficients.entropy * weight", "coefficients.entropy * weight", LOSS
    ),
    Mutation("loss: sign of the policy gradient", PPO_LOSS, ".mul_(-weight)", ".mul_(weight)", LOSS),
    Mutation(
        "loss: sign of the value error",
        PPO_LOSS,
        "error = value - minibatch.target\n    value_gradient",
        "error = minibatch.target - value\n    value_gradient",
        LOSS,
    ),
    Mutation(
        "loss: value clipping by the smaller error",
        PPO_LOSS,
        "clipped.abs() > error.abs()",
        "clipped.abs() < error.abs()",
        LOSS,
    ),
    Mutation(
        "loss: dual clip for positive advantages",
        PPO_LOSS,
        "torch.where(advantage < 0.0,",
        "torch.where(advantage > 0.0,",
        LOSS,
    ),
    Mutation(
        "loss: KL without its exponential",
        PPO_LOSS,
        "gradient.sub_(log_ratio.expm1(),",
        "gradient.sub_(log_ratio,",
        LOSS,
    ),
    Mutation(
        "advantages: normalized over all rows",
        PPO_BATCH,
        "rows = np.flatnonzero(batch.acting[:-1])",
        "rows = np.arange(batch.acting[:-1].size)",
        BATCH,
    ),
    Mutation(
        "advantages: not centered",
        PPO_BATCH,
        "(numbers.astype(np.float64) - mean) /",
        "numbers.astype(np.float64) /",
        BATCH,
    ),
    Mutation(
        "batch: observations of the next row",
        PPO_BATCH,
        "move(merge(array[:-1]), device), batch.observation)",
        "move(merge(array[1:]), device), batch.observation)",
        BATCH,
    ),
    Mutation(
        "batch: actions of the next row",
        PPO_BATCH,
        'batch.decision["action"])[:-1])',
        'batch.decision["action"])[1:])',
        BATCH,
    ),
    Mutation(
        "batch: actions not shuffled along",
        PPO_BATCH,
        "action = self._action.index_select(1, order).t()",
        "action = self._action.t()",
        BATCH,
    ),
    Mutation(
        "batch: last minibatch dropped",
        PPO_BATCH,
        "for i in range(parts + 1)]",
        "for i in range(parts)] + [len(rows) * (parts - 1) // parts]",
        BATCH,
    ),
    Mutation(
        "estimates: targets without values",
        ESTIMATES,
        "return Estimates(decided_log_prob[:-1], value[:-1], advantage, advantage + value[:-1])",
        "return Estimates(decided_log_prob[:-1], value[:-1], advantage, advantage)",
        BATCH,
    ),
    Mutation(
        "sequences: memory of the next row", SEQUENCES, "state_of(batch)[begins]", "state_of(batch)[begins + 1]", MEMORY
    ),
    Mutation(
        "sequences: memory not reset",
        SEQUENCES,
        "move(self._first[rows, lanes], self._device)",
        "move(np.zeros_like(self._first[rows, lanes]), self._device)",
        MEMORY,
    ),
    Mutation("sequences: burn-in learned from", SEQUENCES, "(rows >= self._start[chosen]) & ", "", MEMORY),
    Mutation(
        "trainer: normalizers before the update",
        PPO_TRAINER,
        "samples = self._samples(batch)\n",
        "seen = normalizers.observations; seen and seen.fold(batch, learner.ranks); samples = self._samples(batch)\n",
        BATCH + STATISTICS,
    ),
    Mutation(
        "trainer: bad update kept",
        PPO_TRAINER,
        "except NotFiniteError:\n            self._learner.roll_back()",
        "except NotFiniteError:\n            pass",
        BATCH,
    ),
    Mutation(
        "trainer: same shuffle in every update",
        PPO_TRAINER,
        "counter=[0, 0, 0, self._counters[1]]",
        "counter=[0, 0, 0, 0]",
        BATCH,
    ),
    Mutation(
        "learner: gradient not clipped",
        LEARNER,
        "if norm > self._config.max_grad_norm:",
        "if norm > math.inf:",
        (*BATCH, "tests/algorithms/test_learner.py"),
    ),
    Mutation(
        "learner: optimizer not restored",
        LEARNER,
        "for name, tensor in self._tensors.items():\n            tensor.copy_(move",
        "for name, tensor in [('parameters', self.flat.values)]:\n            tensor.copy_(move",
        (*BATCH, "tests/algorithms/test_learner.py"),
    ),
    Mutation(
        "moments: variance without the shift of the mean",
        MOMENTS,
        " + offset**2 * (count * number / total)",
        "",
        STATISTICS,
    ),
    Mutation("moments: batches counted twice", MOMENTS, "count[...] = kept", "count[...] = kept + number", STATISTICS),
    Mutation(
        "normalizers: observations of rows without a decision",
        NORMALIZERS,
        "parts[path][:-1][acting]",
        "parts[path][:-1]",
        STATISTICS,
    ),
    Mutation(
        "normalizers: head not rescaled",
        NORMALIZERS,
        "weight.mul_(before_deviation / deviation)",
        "weight.mul_(1.0)",
        STATISTICS,
    ),
    Mutation(
        "gaussian: no constant",
        GAUSSIAN,
        "constant = HALF_LOG_TWO_PI * scaled.shape[0] + self._log_volume",
        "constant = self._log_volume",
        DISTRIBUTIONS,
    ),
    Mutation(
        "gaussian: no Jacobian of the scaling",
        GAUSSIAN,
        "constant = HALF_LOG_TWO_PI * scaled.shape[0] + self._log_volume",
        "constant = HALF_LOG_TWO_PI * scaled.shape[0]",
        DISTRIBUTIONS,
    ),
    Mutation(
        "gaussian: gradient of the deviation",
        GAUSSIAN,
        "(weighted * scaled).sub_(log_prob)",
        "(weighted * scaled)",
        DISTRIBUTIONS + LOSS,
    ),
    Mutation(
        "squashed: no Jacobian of tanh",
        SQUASHED,
        "return log_slope(raw).sum(1).add_(self.scaling.log_volume)",
        "return raw.mul(0.0).sum(1).add_(self.scaling.log_volume)",
        DISTRIBUTIONS,
    ),
    Mutation(
        "squashed: scaled twice",
        SQUASHED,
        "return self.scaling.to_native(raw.tanh())",
        "return self.scaling.to_native(self.scaling.to_native(raw.tanh()))",
        DISTRIBUTIONS,
    ),
    Mutation(
        "categorical: sign of the entropy's gradient",
        CATEGORICAL,
        "torch.mul(surprise, entropy)",
        "torch.mul(surprise, -entropy)",
        DISTRIBUTIONS + LOSS,
    ),
    Mutation(
        "categorical: mask inverted",
        CATEGORICAL,
        "masked_fill(~allowed, FORBIDDEN)",
        "masked_fill(allowed, FORBIDDEN)",
        DISTRIBUTIONS,
    ),
    Mutation(
        "scaling: halves not divided",
        SCALING,
        "return (native - center).div_(half)",
        "return native - center",
        DISTRIBUTIONS,
    ),
    Mutation(
        "recorder: reward of the next row",
        ALIGNED,
        "reward[row] = time_step.reward\n        terminated[row]",
        "reward[row + 1] = time_step.reward\n        terminated[row]",
        RECORDER,
    ),
    Mutation(
        "recorder: start of an episode one row early",
        ALIGNED,
        "first[row] = time_step.first\n        observation[row]",
        "first[row - 1] = time_step.first\n        observation[row]",
        RECORDER,
    ),
    Mutation(
        "recorder: memory of the row before",
        ALIGNED,
        "arrays[before][row + 1] = arrays[after][row]",
        "arrays[before][row + 1] = arrays[before][row]",
        RECORDER,
    ),
    Mutation("recorder: stale decision reused", ALIGNED, ">= max(0, opened.min_version)", ">= 0", RECORDER),
    Mutation(
        "admission: lag counted in blocks",
        ADMISSION,
        "update = position // self.batch_blocks",
        "update = position",
        ("tests/streams/test_admission.py",),
    ),
    Mutation(
        "admission: one more version of lag",
        ADMISSION,
        "update - oldest_version > self.max_lag",
        "update - oldest_version > self.max_lag + 1",
        ("tests/streams",),
    ),
    Mutation(
        "seeds: equal in all workers",
        SEEDING,
        "for part in path))",
        "for part in path[:1]))",
        ("tests/base/test_seeding.py",),
    ),
    *(Mutation(*each) for each in (*REPLAY_MUTATIONS, *SEARCH_MUTATIONS)),
)


def killed(mutation: Mutation, tree: Path) -> bool:
    """Return whether the tests of a mutated part fail."""
    path = tree / mutation.file
    text = path.read_text()
    if mutation.old not in text:
        sys.exit(f"{mutation.name}: {mutation.file} has no {mutation.old!r}; update MUTATIONS")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(text.replace(mutation.old, mutation.new))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", *mutation.tests]
    # Numba does not notice that a function of another file has changed, so compiled files get a cache of their own.
    cache = tree / (mutation.name if "njit" in text else "numba")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    path.write_text(text)
    os.utime(path, ns=times)  # what was compiled from this file is valid again
    if done.returncode > 1:  # 1: a test failed; less than 0: compiled code crashed
        sys.exit(f"{mutation.name}: the tests did not run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words, one of which the name must contain")
    words = parser.parse_args().only
    chosen = [mutation for mutation in MUTATIONS if not words or any(word in mutation.name for word in words)]
    survivors = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for part in ("srl", "tests"):
            shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", tree)
        for mutation in chosen:
            start = time.monotonic()
            found = killed(mutation, tree)
            survivors += [] if found else [mutation.name]
            print(
                f"{'found' if found else 'SURVIVED':8} {time.monotonic() - start:5.1f} s  {mutation.name}", flush=True
            )
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} found")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main())
