"""Batches from replay in a trainer: the ratio of gradient steps to decisions, the warm-up, and exact continuation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support.stages import SPEC, Stage

from srl.api.dataflow import Replay, Transitions
from srl.api.streams import Batch, PostedBlock
from srl.base.meter import Counter
from srl.base.shared_memory import KeptFile
from srl.base.state import State
from srl.streams.push import PushStream
from srl.workers.trainer.replayed import ReplayMaker

DECISIONS = SPEC.horizon * SPEC.lanes  # in a block


class Experience:
    """Blocks of one track, numbered by their rewards, in which every lane acts all the time."""

    def __init__(self, stage: Stage) -> None:
        self._memory = stage.memory(1)
        self._number = 0

    def blocks(self, count: int, acting: bool = True, incarnation: int = 0) -> Sequence[PostedBlock]:
        """Return a block `count` times; each is used before the next one is made."""
        found = []
        for _ in range(count):
            (block,) = self._memory.blocks
            for path, array in block.arrays.items():
                array[...] = self._number if path == "reward" else 0
            block.arrays["acting"][...] = acting
            first_step = self._number * SPEC.horizon
            identity = "actors/0", self._number, self._number, 0, block
            found.append(PostedBlock(*identity, incarnation, first_step=first_step))
            self._number += 1
        return found


def maker(flow: Replay, consumers: int = 1) -> ReplayMaker:
    stream = PushStream("policy", SPEC, batch_blocks=1, consumers=consumers)
    return ReplayMaker(flow, stream, target_steps=1000, num_batches=1, seed=3)


def made(one: ReplayMaker, blocks: Sequence[PostedBlock], update: int = 0) -> Batch:
    batch = one.make(update, blocks)
    one.give_back(batch)
    return batch


@pytest.mark.parametrize("ratio", [1.0, 0.25, 0.3, 2.5])
def test_gradient_steps_keep_their_ratio_to_decisions(inproc: Stage, ratio: float) -> None:
    one, experience = maker(Replay(Transitions(), 2, 100, updates_per_decision=ratio)), Experience(inproc)
    steps = [made(one, experience.blocks(1)).data.num_steps for _ in range(40)]
    assert sum(steps) == int(40 * DECISIONS * ratio + 1e-6)
    assert max(steps) - min(steps) <= 1


def test_decisions_of_the_warm_up_are_counted_but_not_learned_from(inproc: Stage) -> None:
    one, experience = maker(Replay(Transitions(), 2, 100, warmup=3 * DECISIONS)), Experience(inproc)
    batches = [made(one, experience.blocks(1)) for _ in range(5)]
    assert [batch.data.num_steps for batch in batches] == [0, 0, DECISIONS, DECISIONS, DECISIONS]
    assert [batch.data.num_decisions for batch in batches] == [DECISIONS] * 5
    assert [batch.gauges[Counter.REPLAY_WARMUP] for batch in batches] == [2 * DECISIONS, DECISIONS, 0, 0, 0]
    assert batches[-1].gauges[Counter.REPLAY_STEPS] == batches[-1].gauges[Counter.REPLAY_DECISIONS] == 3 * DECISIONS


def test_rows_without_a_decision_require_no_gradient_steps(inproc: Stage) -> None:
    one, experience = maker(Replay(Transitions(), 2, 100)), Experience(inproc)
    made(one, experience.blocks(1))
    batch = made(one, experience.blocks(1, acting=False))
    assert (batch.data.num_steps, batch.data.num_decisions, len(batch.lags)) == (0, 0, 0)


@pytest.mark.parametrize("incarnation", [0, 1])
def test_no_transition_crosses_from_a_killed_actor_to_its_replacement(inproc: Stage, incarnation: int) -> None:
    """Blocks have two rows, and their numbers as rewards: 3 steps from the last row of block 1 on earn 1 + 2 + 2."""
    flow = Replay(Transitions(n_step=3, gamma=1.0), 16, 100, updates_per_decision=4.0)
    one, experience = maker(flow), Experience(inproc)
    for number in range(3):
        batch = made(one, experience.blocks(1, incarnation=incarnation if number == 2 else 0))
    assert set(batch.data.reward.ravel().tolist()) == ({1, 2, 4} if incarnation else {1, 2, 4, 5})


def test_all_ranks_make_the_same_number_of_gradient_steps(inproc: Stage) -> None:
    flow = Replay(Transitions(), 2, 100, warmup=2 * DECISIONS, updates_per_decision=0.5)
    busy, idle = maker(flow, consumers=2), maker(flow, consumers=2)
    steps = []
    for number in range(6):
        blocks = Experience(inproc).blocks(1)
        other = Experience(inproc).blocks(1, acting=number < 1)
        steps.append([made(busy, blocks).data.num_steps, made(idle, other).data.num_steps])
    assert all(one == two for one, two in steps[1:]), steps
    assert sum(one for one, _ in steps) > 0


def test_a_restored_maker_continues_exactly(inproc: Stage) -> None:
    flow = Replay(Transitions(n_step=2), 4, 30, updates_per_decision=0.3)
    one, experience = maker(flow), Experience(inproc)
    for _ in range(15):
        made(one, experience.blocks(1))
    saved: State = {name: np.array(value) for name, value in one.state().items()}
    other = maker(flow)
    other.restore(saved)
    for _ in range(5):
        blocks = experience.blocks(1)
        first, second = made(one, blocks).data, made(other, blocks).data
        assert first.num_steps == second.num_steps
        np.testing.assert_array_equal(first.reward, second.reward)
        np.testing.assert_array_equal(first.discount, second.discount)


@pytest.fixture
def kept() -> Iterator[KeptFile]:
    file = KeptFile.create("test")
    yield file
    file.close()


def maker_in(kept: KeptFile, flow: Replay, shard: int = 0, consumers: int = 1, lowest: Any = int) -> ReplayMaker:
    stream = PushStream("policy", SPEC, batch_blocks=1, consumers=consumers)
    return ReplayMaker(flow, stream, 1000, 2, 3, kept.window(shard), lowest)


def test_a_killed_maker_is_continued_without_a_warm_up_and_makes_up_for_lost_steps(
    inproc: Stage, kept: KeptFile
) -> None:
    flow = Replay(Transitions(), 2, 100, warmup=3 * DECISIONS, updates_per_decision=0.5)
    experience = Experience(inproc)
    one = maker_in(kept, flow)
    learned = sum(made(one, experience.blocks(1)).data.num_steps for _ in range(7))
    lost = one.make(7, experience.blocks(1))  # never given back
    assert lost.data.num_steps
    other = maker_in(kept, flow)
    batches = [made(other, experience.blocks(1)) for _ in range(4)]
    assert batches[0].gauges[Counter.REPLAY_WARMUP] == 0
    assert batches[0].gauges[Counter.REPLAY_SIZE] == 9 * DECISIONS
    learned += sum(batch.data.num_steps for batch in batches)
    assert learned == int((12 - 2) * DECISIONS * 0.5)


def test_another_ratio_does_not_make_up_for_the_past(inproc: Stage, kept: KeptFile) -> None:
    experience = Experience(inproc)
    for ratio in (0.1, 2.0, 0.5):
        one = maker_in(kept, Replay(Transitions(), 2, 100, updates_per_decision=ratio))
        assert [made(one, experience.blocks(1)).data.num_steps for _ in range(8)][-1] <= DECISIONS * ratio + 1
        last = made(one, experience.blocks(1))
        assert last.gauges[Counter.REPLAY_STEPS] == int(last.gauges[Counter.REPLAY_DECISIONS] * ratio + 1e-6)


def test_ranks_agree_after_one_has_lost_its_memory(inproc: Stage, kept: KeptFile) -> None:
    flow = Replay(Transitions(), 2, 100, warmup=4 * DECISIONS, updates_per_decision=0.5)
    before = [maker_in(kept, flow, shard, consumers=2) for shard in range(2)]
    for _ in range(5):
        for one in before:
            made(one, Experience(inproc).blocks(1))
    kept.window(1).clear()
    counts = iter([0, 0, 0])  # of the rank that lost its memory
    full = maker_in(kept, flow, 0, consumers=2, lowest=lambda count: min(count, next(counts)))
    empty = maker_in(kept, flow, 1, consumers=2)
    steps = [[made(one, Experience(inproc).blocks(1)).data.num_steps for one in (full, empty)] for _ in range(4)]
    assert all(one == two for one, two in steps), steps
    assert (steps[0], sum(steps[3]) > 0) == ([0, 0], True)


def test_feedback_reaches_the_memory(inproc: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    one, found = maker(Replay(Transitions(), 2, 100)), list[Any]()
    monkeypatch.setattr(one._memory, "feedback", lambda drawn, priorities: found.append((drawn, priorities)))
    batch = one.make(0, Experience(inproc).blocks(1))
    assert one.num_free == 0
    batch.priorities = np.ones((DECISIONS, 2), np.float32)
    one.give_back(batch)
    assert one.num_free == 1
    assert found == [(batch.drawn, batch.priorities)]
