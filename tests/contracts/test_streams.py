"""The contract of push streams, over every transport: in process, Unix sockets, TCP."""

from __future__ import annotations

import contextlib
import itertools
from functools import partial

import numpy as np
import pytest
from support.stages import SPEC, Stage, fill, opened_by, send_block, settle, taken_by
from support.waiting import until

from srl.api.block import BlockSpec
from srl.api.streams import OpenBlock, PushConsumer, PushProducer
from srl.api.transport import ChannelClosed
from srl.base.tree import ArraySpec
from srl.streams.messages import BlockDecline, BlockRequest, Post, Release
from srl.streams.push import PushStream
from srl.streams.push_consumer import Consumer
from srl.streams.push_producer import Producer

TRAINER = "push/samples/trainers/0"


def test_both_ends_implement_the_contract(stage: Stage) -> None:
    stream = stage.stream()
    assert isinstance(stage.producer(stream), PushProducer)
    assert isinstance(stage.consumer(stream), PushConsumer)


def test_a_block_arrives_with_everything_that_was_written(stage: Stage) -> None:
    stream = stage.stream()
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    opened = opened_by(producer, consumer)
    for number, array in enumerate(opened.block.arrays.values()):
        array[...] = (np.arange(array.size) + number).reshape(array.shape).astype(array.dtype)
    opened.block.arrays["version"][...] = np.array([[7, 8], [5, 9], [0, 0]])  # the last row only bootstraps
    wanted = {path: array.copy() for path, array in opened.block.arrays.items()}
    producer.post(opened)
    (posted,) = taken_by(consumer, 0, producer)
    assert (posted.producer, posted.sequence, posted.ticket, posted.oldest_version) == ("actors/0", 1, 0, 5)
    assert set(posted.block.arrays) == set(wanted)
    for path, array in wanted.items():
        np.testing.assert_array_equal(posted.block.arrays[path], array)


def test_on_a_host_only_the_index_is_sent(stage: Stage) -> None:
    stream = stage.stream()
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    send_block(producer, consumer, 1)
    (posted,) = taken_by(consumer, 0, producer)
    producer.memory.blocks[posted.block.index].arrays["reward"][...] = 42
    assert (posted.block.arrays["reward"] == 42).all() == (not stage.remote)


def test_blocks_are_taken_in_the_order_of_their_admission(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=3)
    producer, consumer = stage.producer(stream, num_open=3), stage.consumer(stream)
    blocks = [opened_by(producer, consumer) for _ in range(3)]
    assert [opened.tickets for opened in blocks] == [{TRAINER: number} for number in range(3)]
    for number in (2, 0, 1):
        fill(blocks[number], number)
        producer.post(blocks[number])
    taken = taken_by(consumer, 0, producer)
    assert [posted.ticket for posted in taken] == [0, 1, 2]
    assert [posted.block.arrays["reward"][0, 0] for posted in taken] == [0, 1, 2]
    assert [posted.sequence for posted in taken] == [2, 3, 1]


def overtaken(stage: Stage) -> tuple[Producer, Consumer, OpenBlock]:
    """Prepare a complete batch for update 1 while a block admitted for it is late, which update 2 may not use."""
    stream = stage.stream(batch_blocks=2, max_lag=1)
    producer, consumer = stage.producer(stream, num_open=3), stage.consumer(stream)
    for number in range(2):
        send_block(producer, consumer, number)
    consumer.release(taken_by(consumer, 0, producer))
    late = opened_by(producer, consumer)
    send_block(producer, consumer, 3)
    consumer.advance(1)
    send_block(producer, consumer, 4, version=1)
    until(lambda: consumer.status().posted == 4, producer.poll, consumer.poll)
    return producer, consumer, late


def test_a_complete_batch_waits_for_a_producer_that_was_overtaken(stage: Stage) -> None:
    producer, consumer, late = overtaken(stage)
    assert consumer.take(1) is None
    fill(late, 2)
    producer.post(late)
    until(lambda: consumer.status().posted == 5, producer.poll, consumer.poll)
    assert [posted.ticket for posted in taken_by(consumer, 1, producer)] == [2, 3]


def test_a_complete_batch_does_not_wait_long_for_a_producer_that_hangs(stage: Stage) -> None:
    producer, consumer, late = overtaken(stage)
    assert not consumer.waits_for_late_block
    assert consumer.take(1) is None
    assert consumer.waits_for_late_block  # so that the next polls come soon, though nothing arrives
    assert [posted.ticket for posted in taken_by(consumer, 1, producer)] == [3, 4]
    assert not consumer.waits_for_late_block
    fill(late, 2)
    producer.post(late)
    until(lambda: consumer.status().posted == 5, producer.poll, consumer.poll)
    consumer.advance(2)
    send_block(producer, consumer, 5, version=2)
    send_block(producer, consumer, 6, version=2)
    taken = taken_by(consumer, 2, producer)
    assert [posted.block.arrays["reward"][0, 0] for posted in taken] == [5, 6]
    assert consumer.status().dropped == 1


def test_producers_pause_when_too_many_blocks_wait(stage: Stage) -> None:
    stream = stage.stream(capacity=2)
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    for number in range(3):  # one that is open, two that may wait
        send_block(producer, consumer, number)
    settle(producer, consumer)
    assert producer.open() is None
    taken = taken_by(consumer, 0, producer)
    settle(producer, consumer)
    assert producer.open() is None  # taken, but not given back
    consumer.release(taken)
    fill(opened_by(producer, consumer), 3)
    assert consumer.status().posted == 3
    assert consumer.status().consumed == 1
    assert consumer.status().filled == 1.0


def test_one_producer_alone_can_complete_a_batch_of_any_size(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=9, capacity=2, max_lag=0)
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    for number in range(9):
        send_block(producer, consumer, number)
        settle(producer, consumer)
        assert consumer.status().filled == (number + 1) / 9, "a stream is full when the next batch is complete"
    assert [posted.block.arrays["reward"][0, 0] for posted in taken_by(consumer, 0, producer)] == list(range(9))


def test_one_producer_alone_can_complete_a_batch_for_each_consumer(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=5, capacity=1, max_lag=0, consumers=2)
    producer = stage.producer(stream)
    consumers = [stage.consumer(stream, index) for index in range(2)]
    for number in range(10):
        opened = opened_by(producer, *consumers)
        fill(opened, number)
        producer.post(opened)
    for consumer in consumers:
        assert len(taken_by(consumer, 0, producer)) == 5


def test_a_consumer_that_is_ahead_leaves_memory_for_the_batch_of_another(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=3, capacity=1, max_lag=2, consumers=2)
    producer, ahead = stage.producer(stream, num_open=2), stage.consumer(stream, 1)
    for number in range(5):
        send_block(producer, ahead, number)
    settle(producer, ahead)
    assert producer.open() is None
    late = stage.consumer(stream, 0)
    for number in range(3):
        send_block(producer, late, number, 0, ahead)
    assert len(taken_by(late, 0, producer)) == 3


def test_drop_oldest_keeps_the_newest_blocks(stage: Stage) -> None:
    stream = stage.stream(capacity=2, full="drop_oldest", batch_blocks=2)
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    for number in range(10):
        send_block(producer, consumer, number)
        until(lambda: consumer.status().posted == number + 1, consumer.poll)  # noqa: B023
    taken = taken_by(consumer, 0, producer)
    assert [posted.block.arrays["reward"][0, 0] for posted in taken] == [8, 9]
    status = consumer.status()
    assert (status.posted, status.consumed, status.dropped) == (10, 2, 8)


def test_drop_oldest_respects_the_staleness_bound(stage: Stage) -> None:
    stream = stage.stream(capacity=4, full="drop_oldest", max_lag=1)
    producer, consumer = stage.producer(stream, num_open=4), stage.consumer(stream)
    for version in (0, 3, 4):
        send_block(producer, consumer, version, version)
    until(lambda: consumer.status().posted == 3, consumer.poll)
    (posted,) = taken_by(consumer, 5, producer)
    assert posted.oldest_version == 4
    assert consumer.status().dropped == 2


def test_without_lag_a_batch_is_made_by_each_version_and_none_while_an_update_runs(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=2, max_lag=0)
    producer, consumer = stage.producer(stream, num_open=4), stage.consumer(stream)
    for version in range(3):
        for _ in range(2):
            opened = opened_by(producer, consumer)
            assert opened.min_version == version
            fill(opened, version, version)
            producer.post(opened)
        settle(producer, consumer)
        assert producer.open() is None
        taken = taken_by(consumer, version, producer)
        assert [posted.oldest_version for posted in taken] == [version] * 2
        consumer.release(taken)
        settle(producer, consumer)
        assert producer.open() is None  # the update runs
        consumer.advance(version + 1)


def test_a_stale_block_is_dropped_and_another_one_admitted(stage: Stage) -> None:
    stream = stage.stream(max_lag=0)
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    send_block(producer, consumer, 1, version=0)
    until(lambda: consumer.status().posted, consumer.poll)
    consumer.advance(1)
    assert consumer.take(1) is None
    assert consumer.status().dropped == 1
    opened = opened_by(producer, consumer)
    fill(opened, 2, version=1)
    producer.post(opened)
    assert taken_by(consumer, 1, producer)[0].oldest_version == 1


def test_a_declined_admission_goes_to_another_producer(stage: Stage) -> None:
    stream = stage.stream(max_lag=0)
    first, consumer = stage.producer(stream, 0), stage.consumer(stream)
    opened = opened_by(first, consumer)
    second = stage.producer(stream, 1)
    settle(first, second, consumer)
    assert second.open() is None
    first.discard(opened)
    send_block(second, consumer, 5)
    assert taken_by(consumer, 0, first, second)[0].producer == "actors/1"


def test_discarding_a_block_twice_is_an_error(stage: Stage) -> None:
    stream = stage.stream()
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    opened = opened_by(producer, consumer)
    producer.discard(opened)
    with pytest.raises(ValueError, match="not open any more"):
        producer.discard(opened)


def test_producers_are_admitted_in_turn(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=6, max_lag=0)
    producers = [stage.producer(stream, index, num_open=6) for index in range(3)]
    settle(*producers)
    consumer = stage.consumer(stream)
    settle(*producers, consumer)
    opened = [list(iter(producer.open, None)) for producer in producers]
    settle(*producers, consumer)
    for producer, blocks in zip(producers, opened, strict=True):
        blocks += list(iter(producer.open, None))
    assert sum(map(len, opened)) == 6
    assert min(map(len, opened)) >= (1 if stage.remote else 2)  # a handshake over TCP takes a while


@pytest.mark.parametrize("batch_blocks", [1, 2])
def test_two_producers_serve_two_consumers_without_lag_and_without_deadlock(stage: Stage, batch_blocks: int) -> None:
    """As many data-parallel trainers as actors: every update takes a batch from both streams."""
    stream = stage.stream(batch_blocks=batch_blocks, max_lag=0, consumers=2)
    producers = [stage.producer(stream, index) for index in range(2)]
    consumers = [stage.consumer(stream, index) for index in range(2)]
    settle(*producers, *consumers)
    posted = [0, 0]
    current: list[OpenBlock | None] = [None, None]

    def play() -> None:
        for producer in producers:
            producer.poll()
        for consumer in consumers:
            consumer.poll()
        for index, producer in enumerate(producers):
            if (block := current[index]) is not None:
                fill(block, index, block.min_version)
                producer.post(block)
                posted[index] += 1
            current[index] = producer.open()

    for update in range(6):
        for consumer in consumers:
            taken = until(partial(consumer.take, update), play)
            assert {block.oldest_version for block in taken} == {update}
            consumer.release(taken)
        for consumer in consumers:
            consumer.advance(update + 1)
    assert sum(posted) == 12 * batch_blocks
    assert min(posted) >= 4 * batch_blocks  # both do their share


def test_the_blocks_of_a_dead_producer_stay_valid_and_its_admissions_come_back(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=2, max_lag=0)
    dying, consumer = stage.producer(stream, 0, num_open=2), stage.consumer(stream)
    send_block(dying, consumer, 7)
    assert opened_by(dying, consumer).tickets == {TRAINER: 1}
    settle(consumer, dying)
    dying.close()
    replacement = stage.producer(stream, 1)
    send_block(replacement, consumer, 8)
    taken = taken_by(consumer, 0, replacement)
    assert [(posted.producer, posted.block.arrays["reward"][1, 1]) for posted in taken] == [
        ("actors/0", 7),
        ("actors/1", 8),
    ]
    consumer.release(taken)  # the producer of the first one is gone


def test_a_frozen_producer_loses_its_admissions_to_its_replacement_and_posts_nothing_more(stage: Stage) -> None:
    stream = stage.stream(max_lag=0)
    frozen, consumer = stage.producer(stream), stage.consumer(stream)
    opened = opened_by(frozen, consumer)  # the only block that may be admitted
    replacement = stage.producer(stream, incarnation=1)
    send_block(replacement, consumer, 2)
    (posted,) = taken_by(consumer, 0, replacement)
    assert posted.incarnation == 1
    consumer.release([posted])
    consumer.advance(1)
    with contextlib.suppress(ChannelClosed):  # it continues
        frozen.post(opened)
    settle(frozen, consumer)
    assert frozen.open() is None
    send_block(replacement, consumer, 3, version=1)
    (posted,) = taken_by(consumer, 1, replacement, frozen)
    assert posted.incarnation == 1
    assert consumer.status().posted == 2


def test_a_producer_continues_with_the_replacement_of_a_dead_consumer(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=1, max_lag=None, capacity=1)
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    send_block(producer, consumer, 1)
    opened = opened_by(producer, consumer)
    consumer.close()
    until(lambda: not opened.alive, producer.poll)
    assert producer.num_lost == 1
    producer.poll()  # the name of the dead consumer is still registered, which is no error
    fill(opened, 2)
    producer.post(opened)  # no consumer is left: the block is free again
    replacement = stage.consumer(stream, incarnation=1)
    for number in range(5):  # more than there are blocks: none was lost for good
        send_block(producer, replacement, 10 + number)
        (posted,) = taken_by(replacement, number, producer)
        assert posted.block.arrays["reward"][0, 0] == 10 + number
        replacement.release([posted])


def test_a_block_posted_twice_or_never_admitted_closes_only_its_connection(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=2, max_lag=0)
    rogue, consumer = stage.producer(stream, 0), stage.consumer(stream)
    opened = opened_by(rogue, consumer)
    fill(opened, 1)
    for message in (Post(0, 99, 1), Post(0, 0, 0)):  # a foreign ticket; a sequence number that was used
        link = rogue._links[TRAINER]
        arrays = [] if link.channel.shares_memory else list(opened.block.arrays.values())
        link.channel.send(message, arrays)
        until(lambda: not rogue._links, rogue.poll, consumer.poll)
        rogue.poll()
        assert consumer.status().posted == 0
        until(lambda: rogue._links, rogue.poll, consumer.poll)
    honest = stage.producer(stream, 1, num_open=2)
    rogue.close()
    for number in range(2):
        send_block(honest, consumer, number)
    assert len(taken_by(consumer, 0, honest)) == 2


def test_a_block_of_another_shape_is_refused_and_its_admission_comes_back(stage: Stage) -> None:
    stream = stage.stream(batch_blocks=2, max_lag=0)
    other = stage.stream(spec=BlockSpec(5000, 2, ArraySpec((3,), "float32"), SPEC.decision), batch_blocks=1, capacity=1)
    stranger, consumer = stage.producer(other, 0), stage.consumer(stream)
    opened = opened_by(stranger, consumer)
    if stage.remote:
        stranger.post(opened)
    else:  # shared memory: the index is beyond the end of the consumer's mapping
        link = stranger._links[TRAINER]
        link.channel.send(Post(10**6, opened.tickets[TRAINER], 1))
    until(lambda: not stranger._links, stranger.poll, consumer.poll)
    stranger.close()
    honest = stage.producer(stream, 1, num_open=2)
    for number in range(2):
        send_block(honest, consumer, number)
    assert len(taken_by(consumer, 0, honest)) == 2


def test_the_release_of_a_block_that_was_never_posted_closes_the_connection(stage: Stage) -> None:
    stream = stage.stream()
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    opened = opened_by(producer, consumer)
    (source,) = consumer._links
    source.channel.send(Release(opened.block.index))
    until(lambda: not opened.alive, producer.poll)


def test_a_producer_may_leave_while_its_blocks_are_dropped(stage: Stage) -> None:
    stream = stage.stream(capacity=1, full="drop_oldest")
    leaving, staying = stage.producer(stream, 0, num_open=2), stage.producer(stream, 1, num_open=4)
    consumer = stage.consumer(stream)
    send_block(leaving, consumer, 1)
    until(lambda: consumer.status().posted == 1, consumer.poll, staying.poll)
    leaving.close()
    for number in range(4):
        send_block(staying, consumer, number)
    settle(consumer, staying)
    assert taken_by(consumer, 0, staying)[0].producer == "actors/1"


def test_messages_for_the_other_end_do_no_harm(stage: Stage) -> None:
    stream = stage.stream()
    producer, consumer = stage.producer(stream), stage.consumer(stream)
    opened = opened_by(producer, consumer)
    (source,) = consumer._links
    for message in (BlockRequest(3), BlockDecline(0)):
        source.channel.send(message)
    settle(producer, consumer)
    assert opened.alive


def test_admissions_that_cannot_be_used_do_not_block_others(stage: Stage) -> None:
    """Two actors play two roles and need an admission from both trainers. One got all of the first trainer's, the
    other all of the second's: they must not wait for each other forever."""
    streams = [PushStream(name, SPEC, 2, max_lag=0, remote=stage.remote) for name in ("first", "second")]
    consumers = [stage.consumer(stream) for stream in streams]
    actors = [[stage.producer(stream, index) for stream in streams] for index in range(2)]

    def has_granted_all(consumer: Consumer) -> bool:
        return len(consumer._admission.granted) == 2

    for role, consumer in enumerate(consumers):
        until(partial(has_granted_all, consumer), actors[role][role].poll, consumer.poll)
    holds: list[list[OpenBlock | None]] = [[None, None], [None, None]]

    def play() -> None:
        for consumer in consumers:
            consumer.poll()
        for producers, held in zip(actors, holds, strict=True):
            for role, producer in enumerate(producers):
                producer.poll()
                if held[role] is None and (role == 0 or held[0] is not None):
                    held[role] = producer.open()
            blocks = [block for block in held if block is not None]
            if len(blocks) == len(held):
                for role, (producer, block) in enumerate(zip(producers, blocks, strict=True)):
                    fill(block, role, block.min_version)
                    producer.post(block)
                    held[role] = None

    for update in range(3):
        for consumer in consumers:
            taken = until(partial(consumer.take, update), play)
            consumer.release(taken)
            consumer.advance(update + 1)


def test_scratch_blocks_are_never_posted_and_are_counted(inproc: Stage) -> None:
    producer = inproc.producer(inproc.stream(), num_scratch=2)
    scratch = [producer.scratch_block(), producer.scratch_block()]
    assert len({block.index for block in scratch}) == 2
    with pytest.raises(ValueError, match="samples: this producer was made with too few scratch blocks"):
        producer.scratch_block()
    consumer = inproc.consumer(inproc.stream())
    seen = set()
    for number in itertools.count():
        if (opened := producer.open()) is None:
            settle(producer, consumer)
            opened = producer.open()
        if opened is None:
            break
        seen.add(opened.block.index)
        fill(opened, number)
        producer.post(opened)
    assert not seen & {block.index for block in scratch}
