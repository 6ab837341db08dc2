"""Sources of batches: both give the same batches, and no thread is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.stages import SPEC, Stage, fill
from support.waiting import until

from srl.api.streams import Batch, BatchSource, OpenBlock, PostedBlock
from srl.api.worker import Context
from srl.streams.push import PushStream
from srl.workers.trainer import batches
from srl.workers.trainer.batches import BatchMemory, DirectBatches, PrefetchedBatches, TrajectoryMaker, lags_of

Kind = type[DirectBatches] | type[PrefetchedBatches]


def source_of(kind: Kind, stream: PushStream, stage: Stage, version: int, published: Callable[[], int]) -> Any:
    context = stage.world.context("trainers")

    def direct(own: Context) -> DirectBatches:
        return DirectBatches(stream, own, version, published, TrajectoryMaker(stream, kind.NUM_BATCHES))

    return direct(context) if kind is DirectBatches else PrefetchedBatches(direct, context, version, published)


def taken(source: BatchSource, produce: Any) -> Batch:
    return until(source.poll, produce)


def run(stage: Stage, kind: Kind, max_lag: int | None) -> list[dict[str, Any]]:
    """Return copies of six batches of two blocks, numbered in the order of their admission."""
    stream = stage.stream(batch_blocks=2, max_lag=max_lag)
    published = 3
    source = source_of(kind, stream, stage, 3, lambda: published)
    producer = stage.producer(stream, num_open=2)
    number = 0

    def produce() -> None:
        nonlocal number
        producer.poll()
        while (opened := producer.open()) is not None:
            fill(opened, number, 3 + number // 2)
            number += 1
            producer.post(opened)

    try:
        found = []
        for update in range(3, 9):
            batch = taken(source, produce)
            assert batch.update == update
            trajectory = batch.data
            found.append(
                {
                    "observation": np.array(trajectory.observation),
                    "reward": trajectory.reward.copy(),
                    "value": np.array(trajectory.decision["value"]),
                    "version": trajectory.version.copy(),
                }
            )
            published = update + 1
            source.give_back(batch)
        assert source.status().consumed >= (12 if kind is DirectBatches else 0)
        return found
    finally:
        source.close()


@pytest.mark.parametrize("max_lag", [0, 1])
def test_both_sources_return_the_same_batches(host: Stage, max_lag: int) -> None:
    direct = run(host, DirectBatches, max_lag)
    host.world.names.clear()
    prefetched = run(host, PrefetchedBatches, max_lag)
    for number, (one, other) in enumerate(zip(direct, prefetched, strict=True)):
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])
        # Blocks stand side by side, in the order of their admission: [T+1, 2 blocks x 2 lanes].
        np.testing.assert_array_equal(one["reward"], [[2 * number] * 2 + [2 * number + 1] * 2] * 3)
        assert one["observation"].shape == (3, 4, 3)


def test_a_prefetched_batch_is_not_overwritten_while_it_is_in_use(host: Stage) -> None:
    stream = host.stream(batch_blocks=1, max_lag=None)
    source = source_of(PrefetchedBatches, stream, host, 0, lambda: 0)
    producer = host.producer(stream)
    number = 0

    def produce() -> None:
        nonlocal number
        producer.poll()
        if (opened := producer.open()) is not None:
            fill(opened, number)
            number += 1
            producer.post(opened)

    try:
        held = taken(source, produce)
        assert held.data.reward.max() == 0
        until(lambda: number >= 4, produce)  # the thread gathers the next one, and then has to wait
        second = taken(source, produce)
        until(lambda: source.status().filled == 1.0, produce)
        assert source.poll() is None
        assert (held.data.reward.max(), second.data.reward.max()) == (0, 1)
        source.give_back(held)
        third = taken(source, produce)
        assert (second.data.reward.max(), third.data.reward.max()) == (1, 2)
    finally:
        source.close()


def test_poll_raises_an_error_of_the_thread(host: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: BatchMemory, blocks: Any) -> Any:
        raise ArithmeticError("no such block")

    monkeypatch.setattr(BatchMemory, "gather", broken)
    stream = host.stream()
    source = source_of(PrefetchedBatches, stream, host, 0, lambda: 0)
    producer = host.producer(stream)

    def produce() -> None:
        producer.poll()
        if (opened := producer.open()) is not None:
            producer.post(opened)
        source.poll()

    with pytest.raises(RuntimeError, match="gathering a batch failed: no such block") as raised:
        until(lambda: False, produce)
    assert isinstance(raised.value.__cause__, ArithmeticError)
    source.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "prefetch"]


def test_closing_ends_the_thread_at_once(host: Stage) -> None:
    source = source_of(PrefetchedBatches, host.stream(), host, 0, lambda: 0)
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "prefetch")
    source.close()
    assert not thread.is_alive()


def test_a_batch_is_gathered_with_every_key(inproc: Stage) -> None:
    batch, memory = BatchMemory(SPEC, 2), inproc.memory(2)
    for block in memory.blocks:
        for array in block.arrays.values():
            array[...] = 1 + block.index
    trajectory = batch.gather([PostedBlock("actors/0", n, n, 0, memory.blocks[n]) for n in (1, 0)])
    assert trajectory.reward.tolist() == [[2, 2, 1, 1]] * 3
    assert np.asarray(trajectory.decision["action"]).tolist() == [[2, 2, 1, 1]] * 3
    assert np.asarray(trajectory.observation).shape == (3, 4, 3)
    assert trajectory.num_decisions == 8


def test_a_complete_batch_does_not_wait_for_a_producer_that_hangs(host: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "IDLE_SECONDS", 3600.0)
    stream = host.stream(batch_blocks=2, max_lag=1)
    published = 0
    source = source_of(PrefetchedBatches, stream, host, 0, lambda: published)
    producer = host.producer(stream, num_open=3)

    def opened() -> OpenBlock:
        return until(producer.open, producer.poll)

    def send(number: int, version: int) -> None:
        block = opened()
        fill(block, number, version)
        producer.post(block)

    try:
        send(0, 0)
        send(1, 0)
        first = taken(source, producer.poll)
        late = opened()  # admitted for update 1, and too old for update 2
        send(3, 0)
        published = 1
        source.give_back(first)
        send(4, 1)
        assert late.alive
        assert taken(source, lambda: None).update == 1  # without another message to the thread
    finally:
        source.close()


@pytest.mark.parametrize("kind", [DirectBatches, PrefetchedBatches])
def test_blocks_are_admitted_for_a_version_once_it_is_durable(host: Stage, kind: Kind) -> None:
    stream = host.stream(batch_blocks=1, max_lag=0)
    durable = 0
    source = source_of(kind, stream, host, 0, lambda: durable)
    producer = host.producer(stream)

    def produce() -> None:
        producer.poll()
        if (opened := producer.open()) is not None:
            fill(opened, 0, opened.min_version)
            producer.post(opened)

    try:
        source.give_back(taken(source, produce))
        for _ in range(50):
            produce()
            assert source.poll() is None
        durable = 1
        assert taken(source, produce).update == 1
    finally:
        source.close()


@pytest.mark.parametrize(("acting", "expected"), [([1, 1, 1, 1], [5, 4, 3, 2]), ([1, 0, 1, 1], [5, 3, 2])])
def test_lags_are_those_of_the_rows_in_which_a_lane_acted(acting: list[int], expected: list[int]) -> None:
    """Two steps of two lanes; the last row is for bootstrapping."""
    version = np.array([[0, 1], [2, 3], [9, 9]], np.int32)
    rows = np.array([*acting, 1, 1], bool).reshape(3, 2)
    lags = lags_of(5, version, rows)
    assert lags.tolist() == expected
    batch = Batch(5, None, lags)
    assert batch.lag_totals == (sum(expected), len(expected), 5)


def test_a_batch_without_new_decisions_has_no_lags() -> None:
    assert Batch(1, None, np.zeros(0, np.int64)).lag_totals == (0, 0, 0)
