"""Data-parallel trainers over gloo: equal to each other, and to one trainer with the whole batch."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from support import rank_process
from support.namespaces import hosts
from support.trajectories import lanes_of, random_trajectory

from srl.algorithms.ppo.config import PPOConfig
from srl.api.spaces import Box, Discrete
from srl.api.trainer import TrainerGroup, Trajectory
from srl.base.tree import Array

OBSERVATION, ACTION = Box((4,)), Discrete(3)
# One minibatch, so that it has the same samples with one trainer and with two.
CONFIG = PPOConfig(
    epochs=3,
    num_minibatches=1,
    learning_rate=1e-2,
    normalize_observation=True,
    normalize_return="popart",
    normalize_advantage="minibatch",
    target_kl=1.0,
)


RANK = rank_process.__file__


def run_two(
    tmp_path: Path, config: PPOConfig, batches: list[list[Trajectory]], places: Sequence[Sequence[str]] = ((), ())
) -> tuple[list[list[bool]], list[dict[str, Array]]]:
    """What each rank skipped, and its state at the end. `places` are put before their commands, to run them there."""
    processes = []
    with ExitStack() as stack:
        for rank in range(2):
            work = (rank, f"file://{tmp_path}/meet", config, OBSERVATION, ACTION, batches[rank])
            (tmp_path / f"work{rank}").write_bytes(pickle.dumps(work))
            stdin = stack.enter_context((tmp_path / f"work{rank}").open("rb"))
            stdout = stack.enter_context((tmp_path / f"end{rank}").open("wb"))
            process = stack.enter_context(
                subprocess.Popen([*places[rank], sys.executable, RANK], stdin=stdin, stdout=stdout)
            )
            stack.callback(process.kill)
            processes.append(process)
        assert [process.wait(timeout=100.0) for process in processes] == [0, 0]
    results = [pickle.loads((tmp_path / f"end{rank}").read_bytes()) for rank in range(2)]
    return [skipped for skipped, _ in results], [state for _, state in results]


@pytest.fixture(scope="module")
def whole() -> Trajectory:
    trainer = CONFIG.build_trainer(OBSERVATION, ACTION, 0)
    return random_trajectory(CONFIG, OBSERVATION, ACTION, trainer, rows=17, lanes=24, seed=3)


def test_two_ranks_learn_as_one_with_the_whole_batch(tmp_path: Path, whole: Trajectory) -> None:
    # Unequal shares, so that a mean of the ranks' means would be wrong.
    shares = [[lanes_of(whole, slice(0, 7))] * 3, [lanes_of(whole, slice(7, 24))] * 3]
    skipped, states = run_two(tmp_path, CONFIG, shares)
    assert skipped == [[False] * 3] * 2
    for name in states[0]:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name
    alone = CONFIG.build_trainer(OBSERVATION, ACTION, 0)
    start = alone.parameters().copy()
    for _ in range(3):
        alone.step(whole, 0.0)
    assert np.abs(alone.parameters() - start).max() > 1e-2
    np.testing.assert_allclose(states[0]["parameters"], alone.parameters(), atol=1e-5)
    # The statistics cover the data of all ranks.
    seen = np.tile(np.asarray(whole.observation, np.float64)[:-1][whole.acting[:-1]], (3, 1))
    _, mean, squares = states[0]["observation_moments"]
    np.testing.assert_allclose(mean, seen.mean(0), atol=1e-12)
    np.testing.assert_allclose(squares, ((seen - seen.mean(0)) ** 2).sum(0), rtol=1e-9)
    np.testing.assert_allclose(states[0]["return_moments"], alone.state()["return_moments"], rtol=1e-5)


@pytest.mark.slow
def test_two_ranks_stay_bit_equal_over_500_updates_and_within_1e_5_of_one(tmp_path: Path) -> None:
    stay_equal(tmp_path, ((), ()))


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("nsenter") is None, reason="namespaces need root")
def test_two_ranks_on_two_hosts_stay_bit_equal(tmp_path: Path) -> None:
    with hosts(2) as two:
        stay_equal(tmp_path, [two.enter(rank) for rank in range(2)])


def stay_equal(tmp_path: Path, places: Sequence[Sequence[str]]) -> None:
    config = PPOConfig(epochs=1, num_minibatches=1, normalize_observation=True)
    alone = config.build_trainer(OBSERVATION, ACTION, 0)
    start = alone.parameters().copy()
    kinds = [random_trajectory(config, OBSERVATION, ACTION, alone, rows=17, lanes=24, seed=seed) for seed in range(10)]
    left, right = ([lanes_of(kind, lanes) for kind in kinds] * 50 for lanes in (slice(0, 7), slice(7, 24)))
    skipped, states = run_two(tmp_path, config, [left, right], places)
    assert skipped == [[False] * 500] * 2
    for name in states[0]:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name
    for batch in kinds * 50:
        alone.step(batch, 0.0)
    assert np.abs(alone.parameters() - start).max() > 0.05
    difference = np.abs(states[0]["parameters"] - alone.parameters()).max()
    print(f"largest difference from one trainer with the whole batch: {difference:.1e}")
    assert difference <= 1e-5


def test_ranks_skip_together_and_continue_with_few_rows(tmp_path: Path, whole: Trajectory) -> None:
    config = PPOConfig(epochs=2, num_minibatches=4)
    left, right = lanes_of(whole, slice(0, 12)), lanes_of(whole, slice(12, 24))
    poisoned = lanes_of(whole, slice(0, 12))
    poisoned.observation[0, 0] = np.nan  # type: ignore[index]
    few = lanes_of(whole, slice(0, 12))
    few.acting[:] = False
    few.acting[0, :2] = True
    skipped, states = run_two(tmp_path, config, [[poisoned, left, few], [right, right, right]])
    assert skipped == [[True, False, False]] * 2
    assert states[0]["num_steps"] == 2 * 2 * 4
    for name in states[0]:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name
    assert np.isfinite(states[0]["parameters"]).all()


def test_a_group_of_one_needs_no_rendezvous(whole: Trajectory) -> None:
    trainer, other = (CONFIG.build_trainer(OBSERVATION, ACTION, 0) for _ in range(2))
    trainer.join(TrainerGroup(0, 1, ""))
    trainer.step(whole, 0.0)
    other.step(whole, 0.0)
    assert trainer.parameters().tobytes() == other.parameters().tobytes()
