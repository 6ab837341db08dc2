"""The contract of broadcasts, over every transport: several groups of consumers of one push stream."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.stages import Stage, fill, opened_by, send_block, settle, taken_by
from support.waiting import until

from srl.api.streams import PostedBlock
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer
from srl.streams.push_producer import Producer


def met(producer: Producer, *consumers: Consumer) -> None:
    """Wait until all consumers have joined."""
    until(
        lambda: sum(link.terms is not None for link in producer._links.values()) == len(consumers),
        producer.poll,
        *(consumer.poll for consumer in consumers),
    )


def with_tap(
    stage: Stage, num_open: int = 1, tap: dict[str, Any] | None = None, **options: Any
) -> tuple[PushStream, Producer, Consumer, Consumer]:
    """Return a stream, a producer, a trainer and a logger with a tap, all connected."""
    stream = stage.stream(route="broadcast", **options)
    producer, trainer = stage.producer(stream, num_open=num_open), stage.consumer(stream)
    logger = stage.consumer(stream.tap(**(tap or {})), group="loggers")
    met(producer, trainer, logger)
    return stream, producer, trainer, logger


def numbers(blocks: list[PostedBlock]) -> list[float]:
    return [float(posted.block.arrays["reward"][0, 0]) for posted in blocks]


def used_by(consumer: Consumer, update: int, *producers: Producer) -> list[float]:
    """Take and release the next blocks of a consumer, and return their numbers."""
    taken = taken_by(consumer, update, *producers)
    found = numbers(taken)
    consumer.release(taken)
    return found


def arrived(consumer: Consumer, count: int, *producers: Producer) -> None:
    until(lambda: consumer.status().posted == count, consumer.poll, *(producer.poll for producer in producers))


def test_every_group_gets_every_block(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage, batch_blocks=2)
    seen: list[float] = []
    for update in range(4):
        for number in (2 * update, 2 * update + 1):
            send_block(producer, trainer, number, update, logger)
            seen += used_by(logger, 0, producer)
        assert used_by(trainer, update, producer) == [2 * update, 2 * update + 1]
    assert seen == list(range(8))


def test_on_a_host_all_consumers_see_the_same_memory(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage)
    send_block(producer, trainer, 1, 0, logger)
    (mine,), (theirs,) = taken_by(trainer, 0, producer), taken_by(logger, 0, producer)
    producer.memory.blocks[mine.block.index].arrays["reward"][...] = 42
    for posted in (mine, theirs):
        assert (posted.block.arrays["reward"] == 42).all() == (not stage.remote)


def test_the_workers_of_a_group_share_its_blocks(stage: Stage) -> None:
    stream = stage.stream(route="broadcast", consumers=2, max_lag=0, capacity=8)
    producer = stage.producer(stream)
    trainers = [stage.consumer(stream, index) for index in range(2)]
    logger = stage.consumer(stream.tap(batch_blocks=4), group="loggers")
    met(producer, *trainers, logger)
    for update in range(2):
        for number in (2 * update, 2 * update + 1):
            opened = opened_by(producer, *trainers, logger)
            fill(opened, number, update)
            producer.post(opened)
        shares = [taken_by(trainer, update, producer) for trainer in trainers]
        assert sorted(numbers(shares[0] + shares[1])) == [2 * update, 2 * update + 1]
        for trainer, share in zip(trainers, shares, strict=True):
            trainer.release(share)
            trainer.advance(update + 1)
    assert numbers(taken_by(logger, 0, producer)) == [0, 1, 2, 3]


def test_a_block_is_free_when_all_consumers_have_released_it(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage, capacity=2)
    for number in range(4):  # one that is open, one for the trainer, two for the tap
        send_block(producer, trainer, number, 0, logger)
    for consumer in (trainer, logger):
        arrived(consumer, 4, producer)
    for number in range(4):
        trainer.release(taken_by(trainer, number, producer))
    settle(producer, trainer, logger)
    assert producer.open() is None  # the logger has all of them
    for number in range(3):
        assert used_by(logger, 0, producer) == [number]
        send_block(producer, trainer, 10 + number, 0, logger)
    assert len(producer._free) == 0


def test_a_tap_that_drops_keeps_the_newest(stage: Stage) -> None:
    rules = {"capacity": 2, "full": "drop_oldest"}
    _, producer, trainer, logger = with_tap(stage, capacity=3, tap=rules)
    for number in range(10):
        send_block(producer, trainer, number, 0, logger)
        arrived(logger, number + 1, producer)
        trainer.release(taken_by(trainer, number, producer))
    assert numbers(taken_by(logger, 0, producer)) == [8]
    assert numbers(taken_by(logger, 0, producer)) == [9]
    assert logger.status().dropped == 8


def test_producers_do_not_wait_for_a_tap_that_drops_even_if_it_hangs(stage: Stage) -> None:
    rules = {"capacity": 1, "full": "drop_oldest"}
    _, producer, trainer, logger = with_tap(stage, 4, capacity=2, batch_blocks=2, max_lag=0, tap=rules)
    until(lambda: len(producer._links["push/samples/loggers/0"].grants) > 3, producer.poll, logger.poll)
    for update in range(6):
        for number in range(2):
            send_block(producer, trainer, number, update)  # the logger does not poll
        trainer.release(taken_by(trainer, update, producer))
        trainer.advance(update + 1)
    link = producer._links["push/samples/loggers/0"]
    assert len(link.posted) == 2  # what it may keep; it has admitted more
    until(lambda: logger.take(0), logger.poll, producer.poll)  # it wakes up and goes on


def test_without_lag_a_batch_is_made_by_each_version_whatever_a_tap_does(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage, batch_blocks=2, max_lag=0, capacity=4, tap={"batch_blocks": 3})
    seen: list[float] = []
    for version in range(6):
        for _ in range(2):
            opened = opened_by(producer, trainer, logger)
            assert opened.min_version == version
            fill(opened, version, version)
            producer.post(opened)
        settle(producer, trainer, logger)
        assert producer.open() is None  # the tap admits more, the trainer does not
        taken = taken_by(trainer, version, producer)
        assert [posted.oldest_version for posted in taken] == [version] * 2
        trainer.release(taken)
        trainer.advance(version + 1)
        arrived(logger, 2 * version + 2, producer)
        if (three := logger.take(0)) is not None:
            seen += numbers(three)
            logger.release(three)
    assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_the_strictest_bound_holds(stage: Stage) -> None:
    """Two groups learn from the same blocks, each with its own bound; one is ahead of the other."""
    _, producer, first, second = with_tap(stage, max_lag=0, tap={"max_lag": 1})
    send_block(producer, first, 0, 0, second)
    first.release(taken_by(first, 0, producer))
    second.release(taken_by(second, 0, producer))
    settle(producer, first, second)
    assert producer.open() is None
    second.advance(1)
    settle(producer, first, second)
    assert producer.open() is None  # the second would admit one
    first.advance(1)
    assert opened_by(producer, first, second).min_version == 1


def test_a_late_consumer_gets_the_blocks_that_are_started_after_it_joined(stage: Stage) -> None:
    stream = stage.stream(route="broadcast")
    producer, trainer = stage.producer(stream, num_open=2), stage.consumer(stream)
    send_block(producer, trainer, 0)
    begun = opened_by(producer, trainer)
    logger = stage.consumer(stream.tap(), group="loggers")
    met(producer, trainer, logger)
    fill(begun, 1)
    producer.post(begun)
    for number in range(2):
        assert used_by(trainer, number, producer) == [number]
    send_block(producer, trainer, 2, 0, logger)
    assert numbers(taken_by(logger, 0, producer)) == [2]
    assert numbers(taken_by(trainer, 2, producer)) == [2]


def test_producers_do_not_wait_for_a_consumer_that_has_not_sent_its_terms(stage: Stage) -> None:
    stream = stage.stream(route="broadcast")
    producer, trainer = stage.producer(stream), stage.consumer(stream)
    logger = stage.consumer(stream.tap(), group="loggers")  # starts, and does not poll yet
    for number in range(5):
        send_block(producer, trainer, number)
        trainer.release(taken_by(trainer, number, producer))
    assert logger.status().posted == 0


@pytest.mark.parametrize("dies", ["trainer", "logger"])
def test_the_blocks_of_a_dead_consumer_are_free_and_the_others_continue(stage: Stage, dies: str) -> None:
    stream, producer, trainer, logger = with_tap(stage, num_open=2, capacity=2)
    dying, staying = (trainer, logger) if dies == "trainer" else (logger, trainer)
    send_block(producer, trainer, 0, 0, logger)
    arrived(dying, 1, producer)
    staying.release(taken_by(staying, 0, producer))
    opened = opened_by(producer, trainer, logger)
    dying.close()
    until(lambda: len(producer._links) == 1, producer.poll, staying.poll)
    assert opened.alive
    assert len(opened.tickets) == 1
    assert producer.num_lost == 1
    fill(opened, 1)
    producer.post(opened)
    for number in range(1, 8):  # more than there are blocks: none was lost for good
        if number > 1:
            send_block(producer, staying, number)
        assert used_by(staying, 0, producer) == [number]
    group = "trainers" if dies == "trainer" else "loggers"
    replacement = stage.consumer(stream if dies == "trainer" else stream.tap(), incarnation=1, group=group)
    met(producer, staying, replacement)
    send_block(producer, staying, 8, 0, replacement)
    assert numbers(taken_by(replacement, 0, producer)) == numbers(taken_by(staying, 0, producer)) == [8]


def test_a_block_without_remaining_consumers_is_given_back(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage)
    opened = opened_by(producer, trainer, logger)
    num_free = len(producer._free)
    trainer.close()
    logger.close()
    until(lambda: not opened.alive, producer.poll)
    fill(opened, 0)
    producer.post(opened)
    assert len(producer._free) == num_free + 1


def test_a_consumer_that_is_gone_does_not_free_a_block_of_others(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage)
    opened = opened_by(producer, trainer, logger)
    index = opened.block.index
    fill(opened, 3)
    trainer.close()  # the producer does not know it yet
    producer.post(opened)
    assert index not in producer._free
    (posted,) = taken_by(logger, 0, producer)
    logger.release([posted])
    until(lambda: index in producer._free, producer.poll, logger.poll)


def test_a_discarded_block_gives_all_its_admissions_back(stage: Stage) -> None:
    _, producer, trainer, logger = with_tap(stage, max_lag=0)
    producer.discard(opened_by(producer, trainer, logger))
    send_block(producer, trainer, 7, 0, logger)  # the trainer admits one block for each version
    assert numbers(taken_by(trainer, 0, producer)) == numbers(taken_by(logger, 0, producer)) == [7]


def test_an_exact_resume_restores_the_members_of_a_broadcast_and_their_blocks(inproc: Stage, tmp_path: Path) -> None:
    _, producer, trainer, logger = with_tap(inproc, num_open=2)
    send_block(producer, trainer, 1, 0, logger)
    opened = opened_by(producer, trainer, logger)
    saved = producer.state(), trainer.state(), logger.state()
    again = Stage("inproc", tmp_path)
    stream = again.stream(route="broadcast")
    restored_producer, consumers = (
        again.producer(stream, num_open=2),
        (again.consumer(stream), again.consumer(stream.tap(), group="loggers")),
    )
    until(lambda: restored_producer.restore(saved[0]))
    for consumer, state in zip(consumers, saved[1:], strict=True):
        until(partial(consumer.restore, state))
    restored = restored_producer.open_blocks().get(opened.block.index)
    assert restored is not None
    assert restored.tickets == opened.tickets
    fill(restored, 2)
    restored_producer.post(restored)
    for consumer in consumers:
        assert [used_by(consumer, update, restored_producer) for update in range(2)] == [[1], [2]]
    again.close()


def test_a_tap_that_does_not_fit_is_refused_with_the_missing_capacity(inproc: Stage) -> None:
    with pytest.raises(ValueError, match="only a broadcast has taps; set route='broadcast'"):
        inproc.stream().tap()
    with pytest.raises(ValueError, match="3 blocks per batch and 1 waiting needs a capacity of 4; the stream has 2"):
        inproc.stream(route="broadcast").tap(batch_blocks=3)
    with pytest.raises(ValueError, match="at least 1, found 1, 0 and 1"):
        inproc.stream(capacity=0)
