"""The replay memory: transitions as by a slow reference, recycled blocks, exact resume, cost in bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.reference import ReferenceMemory, Source, empty_block, spec_of

from srl.api.dataflow import Priorities, Replay, Transitions
from srl.base.shared_memory import KeptFile
from srl.base.state import NotResumable
from srl.base.tree import ArraySpec, leaves
from srl.replay.memory import ReplayMemory, bytes_needed
from srl.replay.storage import Arena


def flow(capacity: int, n_step: int = 1, gamma: float = 0.5, batch: int = 8, **options) -> Replay:
    return Replay(Transitions(n_step, gamma), batch, capacity, **options)


def chain_of(rewards: list[float], horizon: int, ends: dict[int, str] | None = None):
    """Yield the blocks of one lane, row after row: rewards, and `terminated` or `truncated` by step. The observation of
    a step is its number."""
    spec = spec_of(horizon, 1)
    for begin in range(0, len(rewards), horizon):
        arrays = empty_block(spec)
        for row in range(spec.rows):
            step = begin + row
            arrays["observation"][row] = step
            arrays["decision/action"][row] = step
            arrays["acting"][row] = (step - 1) not in (ends or {})
            arrays["first"][row] = step == 0 or (step - 2) in (ends or {})
            if row < horizon:
                arrays["reward"][row] = rewards[step]
                for kind in [ends[step]] if ends and step in ends else []:
                    arrays[kind][row] = True
        yield arrays, begin


def batch_of(memory: ReplayMemory, num_steps: int) -> Any:
    return memory.draw(num_steps, 0.0).batch


def all_drawn(memory: ReplayMemory, num_draws: int = 60) -> dict[float, tuple]:
    """Return all transitions found in some draws, by the first number of the observation."""
    found = {}
    for _ in range(num_draws):
        batch = batch_of(memory, 2)
        for k in range(2):
            for i in range(batch.reward.shape[1]):
                found[float(batch.observation[k, i, 0])] = (
                    batch.observation[k, i].copy(),
                    batch.decision["action"][k, i],
                    float(batch.reward[k, i]),
                    float(batch.discount[k, i]),
                    batch.next_observation[k, i].copy(),
                )
    return found


def by_step(memory: ReplayMemory) -> dict[float, tuple[float, float, float]]:
    """Return reward, discount and next observation, by observation."""
    return {key: (r, d, float(o[0])) for key, (_, _, r, d, o) in all_drawn(memory).items()}


def test_a_transition_sums_n_rewards_and_bootstraps_after_them():
    memory = ReplayMemory(flow(100, n_step=3), spec_of(4, 1), 0)
    for arrays, step in chain_of([1, 2, 4, 8, 16, 32, 64, 128], 4):
        assert memory.insert(arrays, "a", step) == 4
    found = by_step(memory)
    assert found[0] == (1 + 1 + 1, 0.125, 3)
    assert found[3] == (8 + 8 + 8, 0.125, 6), "it continues in the next block"
    assert found[6] == (64 + 64, 0.25, 8), "the newest row bootstraps after fewer steps"
    assert found[7] == (128, 0.5, 8)
    assert set(found) == set(range(8))


def test_a_termination_does_not_bootstrap_and_a_truncation_does():
    for kind, discount in (("terminated", 0.0), ("truncated", 0.25)):
        memory = ReplayMemory(flow(100, n_step=3), spec_of(4, 1), 0)
        for arrays, step in chain_of([1, 2, 4, 0, 16, 32, 64, 128], 4, {2: kind}):
            memory.insert(arrays, "a", step)
        found = by_step(memory)
        assert 3 not in found, "the last observation of an episode has no decision"
        assert found[1] == (2 + 2, discount, 3)
        assert found[4] == (16 + 16 + 16, 0.125, 7)


def test_both_ends_at_once_count_as_a_termination():
    memory = ReplayMemory(flow(100), spec_of(2, 1), 0)
    arrays, step = next(chain_of([1, 2], 2, {0: "terminated"}))
    arrays["truncated"][0] = True
    memory.insert(arrays, "a", step)
    assert by_step(memory) == {0: (1, 0, 1)}


def test_no_transition_crosses_a_gap():
    memory = ReplayMemory(flow(100, n_step=3), spec_of(2, 1), 0)
    blocks = list(chain_of([1, 2, 4, 8, 16, 32], 2))
    memory.insert(blocks[0][0], "a", 0)
    memory.insert(blocks[2][0], "a", 4)  # steps 2 and 3 are lost
    memory.insert(blocks[1][0], "b", 2)  # of other lanes
    found = by_step(memory)
    assert found[0] == (1 + 1, 0.25, 2)
    assert found[1] == (2, 0.5, 2)
    assert found[2] == (4 + 4, 0.25, 4)


@pytest.mark.parametrize("row", [1, 2])
def test_a_transition_ends_where_an_episode_begins_that_no_end_precedes(row: int):
    memory = ReplayMemory(flow(100, n_step=3), spec_of(2, 1), 0)
    for arrays, step in chain_of([1, 2, 4, 8], 2):
        if step <= row < step + 2:
            arrays["first"][row - step] = True
        memory.insert(arrays, "a", step)
    found = by_step(memory)
    assert found[row - 1] == (2.0 ** (row - 1), 0.5, row)
    assert found[row][0] > 2.0**row, "the new episode goes on"


def test_a_transition_ends_where_the_environment_failed_between_two_blocks():
    memory = ReplayMemory(flow(100, n_step=3), spec_of(2, 1), 0)
    (one, _), (two, _) = chain_of([1, 2, 4, 8], 2)
    two["acting"][0], two["truncated"][0], two["reward"][0], two["first"][1] = False, True, 0, True
    memory.insert(one, "a", 0)
    memory.insert(two, "a", 2)
    assert by_step(memory) == {0: (1 + 1, 0.25, 2), 1: (2, 0.5, 2), 3: (8, 0.5, 4)}


@settings(max_examples=60, deadline=None)
@given(
    horizon=st.integers(1, 7),
    lanes=st.integers(1, 3),
    n_step=st.integers(1, 9),
    num_slots=st.integers(1, 6),
    end_rate=st.sampled_from([0.0, 0.1, 0.4, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_transitions_equal_those_of_a_slow_reference(horizon, lanes, n_step, num_slots, end_rate, seed):
    rng = np.random.default_rng(seed)
    spec = spec_of(horizon, lanes)
    memory = ReplayMemory(flow(num_slots * horizon * lanes, n_step, gamma=0.9), spec, 0)
    reference = ReferenceMemory(spec, num_slots, n_step, 0.9)
    sources = [Source(spec, rng, 1_000_000 * (1 + i), end_rate) for i in range(2)]
    for _ in range(int(rng.integers(1, 14))):
        number = int(rng.integers(2))
        arrays, step = sources[number].block()
        if rng.random() < 0.8:  # otherwise the block is lost
            count = memory.insert(arrays, ("actor", number), step)
            reference.insert(arrays, ("actor", number), step)
            assert count == np.count_nonzero(arrays["acting"][:-1])
    expected = reference.transitions()
    assert memory.size == len(expected)
    if not expected:
        return
    found = all_drawn(memory, 20)
    assert set(found) <= set(expected)
    for key, values in found.items():
        for one, other in zip(values, expected[key], strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


def test_all_decisions_are_drawn_equally_often():
    memory = ReplayMemory(flow(40, batch=1000), spec_of(4, 1), 0)
    for arrays, step in chain_of([1.0] * 40, 4, {5: "terminated", 20: "truncated"}):
        memory.insert(arrays, "a", step)
    assert memory.size == 38
    steps = np.concatenate([batch_of(memory, 1).observation[0, :, 0].copy() for _ in range(100)])
    counts = np.bincount(steps.astype(int), minlength=40)
    assert counts[6] == counts[21] == 0
    expected = 100_000 / 38
    chi_square = float(((np.delete(counts, [6, 21]) - expected) ** 2 / expected).sum())
    assert chi_square < 69.3  # 37 degrees of freedom, p = 0.001


def test_a_draw_without_steps_is_an_empty_batch():
    memory = ReplayMemory(flow(100), spec_of(4, 2), 0)
    batch = batch_of(memory, 0)
    assert batch.num_steps == 0
    assert batch.observation.shape == (0, 8, 2)
    with pytest.raises(ValueError, match="empty"):
        memory.draw(1, 0.0)


def test_a_batch_counts_the_decisions_since_the_last_one():
    memory = ReplayMemory(flow(100), spec_of(4, 1), 0)
    blocks = list(chain_of([1.0] * 8, 4))
    memory.insert(blocks[0][0], "a", 0)
    assert batch_of(memory, 1).num_decisions == 4
    memory.insert(blocks[1][0], "a", 4)
    memory.insert(blocks[1][0], "b", 4)
    assert batch_of(memory, 0).num_decisions == 8
    assert batch_of(memory, 1).num_decisions == 0
    assert memory.collected == 12


def test_a_batch_stays_valid_during_the_next_draw():
    memory = ReplayMemory(flow(100), spec_of(4, 1), 0)
    memory.insert(next(chain_of([1.0] * 4, 4))[0], "a", 0)
    one = batch_of(memory, 2)
    before = one.observation.copy()
    memory.draw(3, 0.0)
    assert (one.observation == before).all()


@pytest.mark.parametrize("priorities", [None, Priorities()])
def test_a_restored_memory_continues_exactly(priorities):
    rng = np.random.default_rng(0)
    spec = spec_of(3, 2)
    dataflow = flow(24, n_step=3, priorities=priorities)
    memory = ReplayMemory(dataflow, spec, 0)
    source = Source(spec, rng, 0, 0.2)
    for _ in range(6):
        memory.insert(*source.block()[:1], ("actor", 0), source.first_step - 3)
        drawn = memory.draw(2, 0.3)
        memory.feedback(drawn, rng.random(drawn.index.shape))
    state = {name: values.copy() for name, values in memory.state().items()}
    restored = ReplayMemory(dataflow, spec, 99)
    restored.restore(state)
    for _ in range(6):
        arrays, step = source.block()
        priorities = rng.random((2, 8))
        results = []
        for one in (memory, restored):
            one.insert(arrays, ("actor", 0), step)
            drawn = one.draw(2, 0.5)
            results.append(drawn.batch)
            one.feedback(drawn, priorities)
        for (path, left), (_, right) in zip(*(leaves(vars(batch)) for batch in results), strict=True):
            assert np.array_equal(left, right), path
    assert restored.size == memory.size
    assert restored.collected == memory.collected


def test_a_memory_of_another_size_is_not_restored():
    memory = ReplayMemory(flow(8), spec_of(4, 1), 0)
    memory.insert(next(chain_of([1.0] * 4, 4))[0], "a", 0)
    with pytest.raises(NotResumable, match="2 blocks"):
        ReplayMemory(flow(16), spec_of(4, 1), 0).restore(memory.state())


def test_nested_observations_and_decisions_keep_their_form():
    observation = {"camera": ArraySpec((2, 3), "uint8"), "speed": ArraySpec((), "float64")}
    spec = spec_of(2, 1, observation, log_prob=ArraySpec((), "float32"))
    memory = ReplayMemory(flow(4), spec, 0)
    arrays = empty_block(spec)
    arrays["acting"][...] = True
    arrays["observation/speed"][:, 0] = [1, 2, 3]
    arrays["observation/camera"][:, 0] = np.arange(18).reshape(3, 2, 3)
    arrays["decision/log_prob"][:, 0] = [-1, -2, -3]
    memory.insert(arrays, "a", 0)
    batch = batch_of(memory, 1)
    for i, speed in enumerate(batch.observation["speed"][0]):
        row = int(speed) - 1
        assert batch.decision["log_prob"][0, i] == -speed
        assert batch.next_observation["speed"][0, i] == speed + 1
        assert (batch.observation["camera"][0, i] == arrays["observation/camera"][row, 0]).all()
        assert (batch.next_observation["camera"][0, i] == arrays["observation/camera"][row + 1, 0]).all()


def test_recurrent_states_are_not_stored_for_transitions():
    plain, recurrent = spec_of(4, 1), spec_of(4, 1, state={"h": ArraySpec((64,), "float32")})
    assert bytes_needed(flow(100), plain) == bytes_needed(flow(100), recurrent)


def test_the_bytes_needed_are_known_before_anything_is_allocated():
    spec = spec_of(128, 8, ArraySpec((17,), "float32"))
    dataflow = flow(1_000_000)
    assert bytes_needed(dataflow, spec) == 977 * 8 * 129 * (17 * 4 + 8 + 4 + 1)
    assert bytes_needed(dataflow, spec) == ReplayMemory(dataflow, spec, 0).nbytes
    assert bytes_needed(dataflow, spec, num_shards=2) == 489 * 8 * 129 * 81


def test_blocks_can_be_in_files(tmp_path):
    file = KeptFile.create("test", tmp_path / "replay")
    memory = ReplayMemory(flow(100, n_step=2), spec_of(4, 1), 0, arena=Arena(file.window(0)))
    for arrays, step in chain_of([1, 2, 4, 8, 16, 32, 64, 128], 4):
        memory.insert(arrays, "a", step)
    assert by_step(memory)[3] == (8 + 8, 0.25, 5)
    assert list((tmp_path / "replay").iterdir()) == [], "the files have no names, so that none are left behind"
    file.close()


def test_a_batch_that_cannot_be_shared_is_refused():
    with pytest.raises(ValueError, match="multiple of the 3 trainers"):
        ReplayMemory(flow(100, batch=8), spec_of(4, 1), 0, num_shards=3)


def test_a_batch_has_the_observations_of_new_decisions_if_they_are_kept():
    spec = spec_of(4, 1)
    memory = ReplayMemory(flow(8, keeps_new=True), spec, 0)
    blocks = list(chain_of([1.0] * 12, 4, {5: "terminated"}))
    seen = []
    for arrays, step in blocks:
        memory.insert(arrays, "a", step)
        if step:
            seen.append(batch_of(memory, 0).new[:, 0].tolist())
    assert seen == [[0, 1, 2, 3, 4, 5, 7], [8, 9, 10, 11]], "no decision was made in row 6"
    assert batch_of(memory, 1).new.shape == (0, 2)
    assert batch_of(ReplayMemory(flow(8), spec, 0), 0).new is None
