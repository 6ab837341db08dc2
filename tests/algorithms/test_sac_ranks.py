"""Data-parallel trainers that learn from replay: equal to each other, and to one trainer with the whole batch."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import rank_process
from support.transitions import random_transitions

from srl.algorithms.sac.config import DDPGConfig, ReplayActorCriticConfig, SACConfig
from srl.api.dataflow import TransitionBatch
from srl.api.spaces import Box
from srl.base.tree import Array

SEEN, REACH = Box((3,)), Box((2,), low=(-1.0, 0.0), high=(1.0, 4.0))


def run_two(
    tmp_path: Path, config: ReplayActorCriticConfig, batches: list[list[TransitionBatch]]
) -> tuple[list[list[bool]], list[dict[str, Array]]]:
    """Return what each rank skipped, and its state at the end."""
    processes = []
    with ExitStack() as stack:
        for rank in range(2):
            work = (rank, f"file://{tmp_path}/meet", config, SEEN, REACH, batches[rank])
            (tmp_path / f"work{rank}").write_bytes(pickle.dumps(work))
            stdin = stack.enter_context((tmp_path / f"work{rank}").open("rb"))
            stdout = stack.enter_context((tmp_path / f"end{rank}").open("wb"))
            command = [sys.executable, rank_process.__file__]
            process = stack.enter_context(subprocess.Popen(command, stdin=stdin, stdout=stdout))
            stack.callback(process.kill)
            processes.append(process)
        assert [process.wait(timeout=100.0) for process in processes] == [0, 0]
    results = [pickle.loads((tmp_path / f"end{rank}").read_bytes()) for rank in range(2)]
    return [skipped for skipped, _ in results], [state for _, state in results]


def half(batch: TransitionBatch, rank: int) -> TransitionBatch:
    """Return the half that a rank draws, whose importance weights it divides by its own maximum."""

    def rows(array: Array) -> Array:
        return array[:, 8 * rank : 8 * rank + 8]

    parts = {name: rows(array) for name, array in vars(batch).items() if isinstance(array, np.ndarray)}
    action = rows(np.asarray(batch.decision["action"]))
    largest = parts["weight"].max(axis=1)
    parts["weight"] = parts["weight"] / largest[:, None]
    scaled = 7.0 * largest.astype(np.float64)  # only the ratio of the ranks matters
    return replace(batch, **parts, decision={"action": action}, num_decisions=16, largest_weight=scaled)


@pytest.mark.parametrize("config", [pytest.param(SACConfig, marks=pytest.mark.slow), DDPGConfig])
def test_two_ranks_learn_the_same_and_as_one(tmp_path: Path, config: type[ReplayActorCriticConfig]) -> None:
    own = config(hidden_sizes=(8, 7), batch_size=16, learning_rate=0.01, max_grad_norm=1.0, device="cpu")
    batches = [random_transitions(SEEN, REACH, 2, 16, seed) for seed in range(3)]
    batches[0].weight[:, :8] *= 0.1  # rank 0 drew units with high priorities only
    batches[1].reward[0, 0] = np.nan  # only rank 0 sees it; both skip the update
    skipped, states = run_two(tmp_path, own, [[half(batch, rank) for batch in batches] for rank in range(2)])
    assert skipped == [[False, True, False]] * 2
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name], err_msg=name)
    if config is DDPGConfig:  # without random numbers, one trainer with both halves makes the same steps
        alone = own.build_trainer(SEEN, REACH, seed=0)
        for batch in batches:
            alone.step(replace(batch, weight=batch.weight / batch.weight.max(axis=1, keepdims=True)), 0.0)
        for name, array in alone.state().items():
            np.testing.assert_allclose(array, states[0][name], rtol=1e-3, atol=1e-5, err_msg=name)
