"""Sequences from replay: as by a slow reference, joint steps, stored states, priorities, exact resume, clear errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.reference import ReferenceMemory, Source, empty_block, spec_of

from srl.api.dataflow import Priorities, Replay, Sequences
from srl.base.shared_memory import KeptFile
from srl.base.tree import ArraySpec, leaves
from srl.replay.memory import ReplayMemory, bytes_needed, check_units
from srl.replay.storage import Arena

STATE = ArraySpec((3,), "float32")


def flow(unit: Sequences, capacity: int, batch: int = 4, **options: Any) -> Replay:
    return Replay(unit, batch, capacity, **options)


def row(step: int, horizon: int, lanes: int = 1, **steps: Any) -> dict[str, np.ndarray]:
    """Return a block whose observations are the numbers of the steps, from `step` on, plus 1000 for each lane."""
    arrays = empty_block(spec_of(horizon, lanes, state=STATE))
    for lane in range(lanes):
        for t in range(horizon + 1):
            arrays["observation"][t, lane] = arrays["state"][t, lane] = step + t + 1000 * lane
            arrays["acting"][t, lane], arrays["reward"][t, lane] = True, step + t
    for name, values in steps.items():
        arrays[name][: len(values), 0] = values
    return arrays


def drawn_by_start(memory: ReplayMemory, num_draws: int = 40) -> dict[int, Any]:
    """Return (batch, column) copies by the first observation: number of the first step."""
    found = {}
    for _ in range(num_draws):
        batch: Any = memory.draw(1, 0.0).batch
        for i in range(batch.weight.shape[1]):
            values: dict[str, Any] = {name: np.array(getattr(batch, name)[0, :, i]) for name in FIELDS}
            values["observation"] = batch.observation[0, :, i, 0].copy()
            values["state"] = None if batch.state is None else batch.state[0, i].copy()
            found[int(values["observation"][0])] = values
    return found


FIELDS = ("reward", "terminated", "truncated", "acting", "first", "valid")


def test_a_sequence_continues_from_block_to_block():
    memory = ReplayMemory(flow(Sequences(3, 2), 100), spec_of(2, 1, state=STATE), 0)
    for step in range(0, 8, 2):
        memory.insert(row(step, 2), "a", step)
    found = drawn_by_start(memory)
    assert set(found) == set(range(6)), "2 rows of burn-in and one more follow each start"
    assert found[1]["observation"].tolist() == [1, 2, 3, 4, 5, 6]
    assert found[1]["reward"].tolist() == [1, 2, 3, 4, 5, 6]
    assert found[1]["valid"].all()
    assert found[1]["acting"].all()
    assert found[1]["state"].tolist() == [1, 1, 1]
    assert not found[3]["truncated"].any()
    assert found[3]["observation"].tolist() == [3, 4, 5, 6, 7, 8], "row T bootstraps the last one"
    assert found[3]["acting"].all()


def test_rows_after_the_newest_one_repeat_it_and_are_invalid():
    memory = ReplayMemory(flow(Sequences(3, 2), 100), spec_of(2, 1, state=STATE), 0)
    for step in range(0, 8, 2):
        memory.insert(row(step, 2), "a", step)
    newest = drawn_by_start(memory)[5]
    assert newest["observation"].tolist() == [5, 6, 7, 8, 8, 8]
    assert newest["valid"].tolist() == [1, 1, 1, 1, 0, 0]
    assert newest["acting"].tolist() == [1, 1, 1, 0, 0, 0], "no reward is known for step 8"
    assert newest["truncated"].tolist() == [0, 0, 1, 0, 0, 0]
    assert newest["reward"].tolist() == [5, 6, 7, 0, 0, 0]


def test_a_start_waits_until_its_burn_in_and_one_more_row_are_remembered():
    memory = ReplayMemory(flow(Sequences(1, 3), 100), spec_of(2, 1, state=STATE), 0)
    counts = []
    for step in range(0, 8, 2):
        memory.insert(row(step, 2), "a", step)
        counts.append(memory.num_drawable)
    assert counts == [0, 1, 3, 5]
    memory.insert(row(8, 2), "b", 8)
    assert memory.num_drawable == 5, "another track does not continue it"


def test_sequences_start_every_period_steps_of_their_track():
    memory = ReplayMemory(flow(Sequences(2, period=3), 100), spec_of(4, 1, state=STATE), 0)
    for step in range(0, 16, 4):
        memory.insert(row(step, 4), "a", step)
    assert set(drawn_by_start(memory)) == {0, 3, 6, 9, 12, 15}
    for start, values in drawn_by_start(memory).items():
        assert values["state"].tolist() == [start] * 3


def test_a_period_longer_than_a_block_skips_blocks():
    memory = ReplayMemory(flow(Sequences(4, period=5), 100), spec_of(2, 1, state=STATE), 0)
    for step in range(0, 16, 2):
        memory.insert(row(step, 2), "a", step)
    found = drawn_by_start(memory)
    assert set(found) == {0, 5, 10, 15}
    assert [values["state"][0] for _, values in sorted(found.items())] == [0, 5, 10, 15]


def test_no_sequence_crosses_a_gap_or_the_seam_of_the_ring():
    memory = ReplayMemory(flow(Sequences(4), 8), spec_of(2, 1, state=STATE), 0)
    for step in (0, 2, 6, 8, 10):  # step 4 is lost; the first block is replaced
        memory.insert(row(step, 2), "a", step)
    found = drawn_by_start(memory)
    assert set(found) == {2, 3, 6, 7, 8, 9, 10, 11}
    assert found[3]["observation"].tolist() == [3, 4, 4, 4, 4]
    assert found[11]["observation"].tolist() == [11, 12, 12, 12, 12]
    assert found[8]["valid"].all()


def test_an_episode_that_was_cut_between_two_blocks_is_truncated():
    memory = ReplayMemory(flow(Sequences(3), 100), spec_of(2, 1, state=STATE), 0)
    memory.insert(row(0, 2), "a", 0)
    failed = row(2, 2, acting=[False, True], truncated=[True], first=[False, True], reward=[0.0])
    memory.insert(failed, "a", 2)
    sequence = drawn_by_start(memory)[0]
    assert sequence["truncated"].tolist() == [0, 1, 1, 0]
    assert sequence["acting"].tolist() == [1, 1, 0, 1]
    assert sequence["first"].tolist() == [0, 0, 0, 1]


def test_the_agents_of_a_copy_are_drawn_together():
    memory = ReplayMemory(flow(Sequences(2, num_agents=2), 100), spec_of(2, 6, state=STATE), 0)
    for step in range(0, 6, 2):
        memory.insert(row(step, 2, lanes=6), "a", step)
    assert memory.num_drawable == 6 * 3
    batch: Any = memory.draw(5, 0.0).batch
    assert batch.observation.shape == (5, 3, 8, 2)
    assert batch.weight.shape == (5, 4)
    assert batch.state.shape == (5, 8, 3)
    for own, other in (
        (batch.observation[:, :, 0::2, 0], batch.observation[:, :, 1::2, 0]),
        (
            batch.state[:, 0::2, 0],
            batch.state[:, 1::2, 0],
        ),
    ):
        assert (other - own == 3000).all(), "lane = agent * copies + copy: 3 copies"


@settings(max_examples=80, deadline=None)
@given(
    horizon=st.integers(1, 7),
    copies=st.integers(1, 3),
    num_agents=st.integers(1, 3),
    length=st.integers(1, 9),
    burn_in=st.integers(0, 9),
    period=st.integers(1, 9),
    spare_slots=st.integers(0, 4),
    rates=st.sampled_from([(0.0, 0.0), (0.1, 0.05), (0.4, 0.0), (1.0, 0.0), (0.1, 0.3)]),
    prioritized=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_sequences_equal_those_of_a_slow_reference(
    horizon, copies, num_agents, length, burn_in, period, spare_slots, rates, prioritized, seed
):
    rng = np.random.default_rng(seed)
    unit = Sequences(length, burn_in, period, num_agents)
    spec = spec_of(horizon, copies * num_agents, state=STATE)
    num_slots = -(-(unit.rows + period) // horizon) + spare_slots
    priorities = Priorities(epsilon=0.1) if prioritized else None
    memory = ReplayMemory(flow(unit, num_slots * horizon * spec.lanes, priorities=priorities), spec, 0)
    reference = ReferenceMemory(spec, num_slots, 1, 0.9)
    sources = [Source(spec, rng, 1_000_000 * (1 + i), *rates) for i in range(2)]
    for _ in range(int(rng.integers(1, 3 * num_slots))):
        number = int(rng.integers(2))
        arrays, step = sources[number].block()
        if rng.random() < 0.85:  # otherwise the block is lost
            memory.insert(arrays, ("actor", number), step)
            reference.insert(arrays, ("actor", number), step)
        if memory.num_drawable and rng.random() < 0.5:
            drawn = memory.draw(2, 0.0)
            memory.feedback(drawn, rng.random(drawn.index.shape))
    expected = reference.sequences(unit)
    assert memory.num_drawable == len(expected)
    for _ in range(10 if expected else 0):
        batch: Any = memory.draw(2, 0.0).batch
        for k in range(2):
            for i in range(4):
                agents = expected[float(batch.observation[k, 0, i * num_agents, 0])]
                for agent, rows in enumerate(agents):
                    _compare(batch, k, i * num_agents + agent, rows)


def _compare(batch: Any, k: int, column: int, rows: list[dict]) -> None:
    assert batch.state[k, column].tolist() == rows[0]["state"].tolist()
    for t, values in enumerate(rows):
        assert batch.observation[k, t, column].tolist() == values["observation"].tolist()
        assert batch.decision["action"][k, t, column] == values["decision/action"]
        for name in FIELDS:
            assert getattr(batch, name)[k, t, column] == values[name], (name, t)


def test_all_starts_are_drawn_equally_often():
    memory = ReplayMemory(flow(Sequences(3, 2, 2), 40, batch=1000), spec_of(5, 1, state=STATE), 0)
    for step in range(0, 60, 5):
        memory.insert(row(step, 5), "a", step)
    starts = np.concatenate([memory.draw(1, 0.0).batch.observation[0, 0, :, 0].copy() for _ in range(50)])  # type: ignore
    numbers, counts = np.unique(starts.astype(int), return_counts=True)
    assert numbers.tolist() == list(range(20, 58, 2))
    expected = 50_000 / len(numbers)
    assert float(((counts - expected) ** 2 / expected).sum()) < 42.3  # 18 degrees of freedom, p = 0.001


def test_prioritized_sequences_are_drawn_by_their_last_priority():
    unit = Sequences(3, 2, 2)
    memory = ReplayMemory(flow(unit, 40, 500, priorities=Priorities(1.0, epsilon=0.0)), spec_of(5, 1, state=STATE), 0)
    for step in range(0, 40, 5):
        memory.insert(row(step, 5), "a", step)
    for _ in range(10):
        drawn: Any = memory.draw(1, 0.0)
        memory.feedback(drawn, drawn.batch.observation[:, 0, :, 0] + 1)
    batch: Any = memory.draw(1, 0.0).batch
    starts, counts = np.unique(batch.observation[0, 0, :, 0].astype(int), return_counts=True)
    priorities = np.arange(0, 38, 2) + 1
    assert set(starts) <= set(range(0, 38, 2))
    expected = {2 * i: 500 * p / priorities.sum() for i, p in enumerate(priorities)}
    for start, count in zip(starts, counts, strict=True):
        assert abs(count - expected[start]) <= 2, "draws are stratified"
    values = batch.observation[0, 0, :, 0] + 1
    np.testing.assert_allclose(batch.weight[0], (values.min() / values) ** 0.4, rtol=1e-5)


@pytest.mark.parametrize("priorities", [None, Priorities()])
def test_a_restored_memory_continues_exactly(priorities):
    rng = np.random.default_rng(0)
    spec = spec_of(3, 4, state=STATE)
    dataflow = flow(Sequences(4, 2, 2, num_agents=2), 96, priorities=priorities, keeps_new=True)
    memory, source = ReplayMemory(dataflow, spec, 0), Source(spec, rng, 0, 0.2)
    for _ in range(11):
        arrays, step = source.block()
        memory.insert(arrays, ("actor", 0), step)
        if memory.num_drawable:
            drawn = memory.draw(2, 0.3)
            memory.feedback(drawn, rng.random(drawn.index.shape))
    memory.insert(*(source.block()[0], ("actor", 0), source.first_step - 3))
    restored = ReplayMemory(dataflow, spec, 99)
    restored.restore({name: values.copy() for name, values in memory.state().items()})
    assert restored.num_drawable == memory.num_drawable
    for _ in range(6):
        one, other = memory.draw(2, 0.5).batch, restored.draw(2, 0.5).batch
        for (path, left), (_, right) in zip(leaves(vars(one)), leaves(vars(other)), strict=True):
            assert np.array_equal(left, right), path
        arrays, step = source.block()
        for each in (memory, restored):
            each.insert(arrays, ("actor", 0), step)


@pytest.mark.parametrize("priorities", [None, Priorities()])
def test_a_recovered_memory_continues_exactly(priorities):
    rng, kept = np.random.default_rng(0), KeptFile.create("test")
    spec = spec_of(3, 4, state=STATE)
    dataflow = flow(Sequences(4, 2, 2, num_agents=2), 96, priorities=priorities)
    memories = [ReplayMemory(dataflow, spec, 7), ReplayMemory(dataflow, spec, 7, arena=Arena(kept.window(0)))]
    source = Source(spec, rng, 0, 0.2)
    for number in range(14):
        arrays, step = source.block()
        if number % 3 == 2:
            memories[1] = ReplayMemory(dataflow, spec, 99, arena=Arena(kept.window(0)))
            assert memories[1].recovered
        for each in memories:
            each.insert(arrays, ("actor", 0), step)
        assert memories[0].num_drawable == memories[1].num_drawable
        if memories[0].num_drawable:
            drawn = [each.draw(2, 0.5) for each in memories]
            errors = rng.random(drawn[0].index.shape)
            for each, own in zip(memories, drawn, strict=True):
                each.feedback(own, errors)
            for (path, left), (_, right) in zip(*(leaves(vars(own.batch)) for own in drawn), strict=True):
                assert path == "num_decisions" or np.array_equal(left, right), path
    kept.close()


def test_states_are_kept_only_where_sequences_may_start():
    large = ArraySpec((1024,), "float32")
    plain, recurrent = spec_of(40, 2), spec_of(40, 2, state=large)
    for period, starts in ((40, 1), (10, 4), (80, 1), (1, 40)):
        dataflow = flow(Sequences(20, period=period), 800)
        extra = bytes_needed(dataflow, recurrent) - bytes_needed(dataflow, plain)
        assert extra == 10 * 2 * starts * 4096
        assert bytes_needed(dataflow, recurrent) == ReplayMemory(dataflow, recurrent, 0).nbytes


def test_a_policy_without_memory_has_no_state():
    memory = ReplayMemory(flow(Sequences(2), 100), spec_of(2, 1), 0)
    arrays = row(0, 2)
    del arrays["state"]
    memory.insert(arrays, "a", 0)
    assert memory.draw(1, 0.0).batch.state is None  # type: ignore[union-attr]


def test_a_whole_episode_is_a_sequence_as_long_as_the_longest_one():
    memory = ReplayMemory(flow(Sequences(6), 100, batch=32), spec_of(4, 1, state=STATE), 0)
    ends: dict[str, Any] = {"terminated": [0, 0, 1, 0], "acting": [1, 1, 1, 0], "first": [1, 0, 0, 0]}
    memory.insert(row(0, 4, **ends), "a", 0)
    memory.insert(row(4, 4, first=[1]), "a", 4)
    episode = drawn_by_start(memory)[0]
    assert episode["first"].tolist() == [1, 0, 0, 0, 1, 0, 0]
    assert np.cumsum(episode["first"]).tolist() == [1, 1, 1, 1, 2, 2, 2], "rows of the first episode have 1"


def test_what_cannot_be_drawn_is_refused():
    spec = spec_of(4, 6)
    with pytest.raises(ValueError, match="at least 72 decisions, 3 blocks of 4 steps x 6 lanes; found 48"):
        check_units(flow(Sequences(10, period=2), 48), spec)
    with pytest.raises(ValueError, match="at least 144 decisions"):
        check_units(flow(Sequences(10, period=2), 72), spec, num_tracks=2)
    check_units(flow(Sequences(10, period=2), 72), spec)
    with pytest.raises(ValueError, match="4 agents together need blocks with the lanes of all of them"):
        check_units(flow(Sequences(2, num_agents=4), 1000), spec)
    with pytest.raises(ValueError, match=r"2 trainers.*--horizon 10 or more .*, found 4"):
        check_units(flow(Sequences(10), 1000), spec, num_shards=2)
    for wrong in ({"length": 0}, {"burn_in": -1}, {"period": 0}, {"num_agents": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Sequences(**{"length": 1, **wrong})
