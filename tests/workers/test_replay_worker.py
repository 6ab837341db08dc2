"""Replay workers and the trainers that draw from them: over each transport, with replaced workers on both sides."""

from __future__ import annotations

from collections import Counter as Multiset
from typing import Any

import numpy as np
import pytest
from support.replay_rig import DECISIONS, Rig
from support.stages import Stage

from srl.api.control import Notice
from srl.api.dataflow import Priorities, Replay, Sequences, Transitions, arrays_of
from srl.api.streams import Inserted, PostedBlock
from srl.api.transport import Channel
from srl.base.meter import Counter
from srl.streams.messages import AttachSampler, Draw, DrawReply, Fill, FillReply, SampleMessage
from srl.workers.trainer.replayed import ReplayMaker

FLOW = Replay(Transitions(), batch=8, capacity=1000)


@pytest.mark.parametrize("max_lag", [0, 1, None])
def test_shards_give_their_parts_of_each_batch(stage: Stage, max_lag: int | None) -> None:
    rig = Rig(stage, Replay(Transitions(), 8, 1000, warmup=3 * DECISIONS), shards=2, max_lag=max_lag)
    batches = [rig.learn() for _ in range(6)]
    assert [batch.update for batch in batches] == list(range(6))
    assert [batch.data.num_steps for batch in batches] == [0] + [2 * DECISIONS] * 5
    assert [batch.data.num_decisions for batch in batches] == [2 * DECISIONS] * 6
    assert [batch.gauges[Counter.REPLAY_WARMUP] for batch in batches] == [DECISIONS] + [0] * 5
    labels = Multiset(label for batch in batches for label in batch.samples)
    assert len(labels) == 12
    assert set(labels.values()) == {1}
    if max_lag is not None:
        assert max(int(batch.lags.max()) for batch in batches) <= max_lag
    data = batches[-1].data
    assert data.reward.shape == (2 * DECISIONS, 8)
    assert data.next_observation.shape == (2 * DECISIONS, 8, 3)
    assert set(data.reward[:, :4].ravel()).isdisjoint(data.reward[:, 4:].ravel())  # a block is in one shard only
    assert rig.size(0) == rig.size(1) == 6 * DECISIONS


def test_a_single_replay_worker_draws_what_a_replay_in_the_trainer_draws(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW, max_lag=0)
    maker = ReplayMaker(FLOW, rig.samples, target_steps=1000, num_batches=1, seed=3)
    memory = inproc.memory(1)
    (block,) = memory.blocks
    for number in range(8):
        sampled = rig.learn()
        for path, array in block.arrays.items():
            array[...] = number if path == "reward" else 0
        block.arrays["acting"][...] = True
        block.arrays["version"][...] = number
        inline = maker.make(number, [PostedBlock("actors/0", number + 1, number, number, block, track=number)])
        maker.give_back(inline)
        assert sampled.samples == inline.samples
        assert sampled.lags.tolist() == inline.lags.tolist()
        expected, found = arrays_of(inline.data), arrays_of(sampled.data)
        assert expected.keys() == found.keys()
        for path, array in expected.items():
            np.testing.assert_array_equal(found[path], array, err_msg=path)


def test_a_replaced_trainer_gets_the_update_again_without_new_blocks(stage: Stage) -> None:
    rig = Rig(stage, FLOW, shards=2, max_lag=1)
    rig.learn()
    lost = rig.batch()  # and the next one, which is prefetched
    rig.sources[0].give_back(lost)
    ahead = rig.batch()
    assert (lost.update, ahead.update) == (1, 2)
    sizes = rig.size(0), rig.size(1)
    rig.sources[0] = rig.source(0, incarnation=1, version=1)
    again = rig.learn()
    assert (again.update, again.samples, again.data.num_steps) == (1, lost.samples, lost.data.num_steps)
    assert again.lags.tolist() == lost.lags.tolist()
    assert (rig.size(0), rig.size(1)) == sizes
    assert rig.learn().samples == ahead.samples
    assert set(rig.learn().samples).isdisjoint({*lost.samples, *ahead.samples})


@pytest.mark.parametrize("keeps", [True, False])
def test_a_killed_replay_worker_is_replaced_while_its_trainer_waits(stage: Stage, keeps: bool) -> None:
    rig = Rig(stage, FLOW, shards=2, max_lag=1)
    before = [rig.learn() for _ in range(3)]
    rig.sources[0].poll()  # the next request is on its way
    rig.workers[1].close()
    del rig.workers[1]
    for _ in range(20):
        rig.play()
        assert rig.sources[0].poll() is None
    assert rig.sources[0].is_urgent
    rig.workers.append(rig.worker(1, incarnation=1, keeps=keeps))
    after = [rig.learn() for _ in range(3)]
    assert [batch.update for batch in after] == [3, 4, 5]
    assert [batch.data.num_steps for batch in after] == [2 * DECISIONS] * 3
    assert (rig.size(0), rig.size(1)) == (6 * DECISIONS, (6 if keeps else 3) * DECISIONS)
    labels = Multiset(label for batch in before + after for label in batch.samples)
    assert set(labels.values()) == {1}
    assert any("starts empty" in notice.text for notice in stage.world.reported(Notice)) != keeps


def test_shares_follow_the_sizes_of_the_shards(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW, shards=2)
    for _ in range(3):
        rig.learn()
    rig.workers[1].close()
    rig.workers[1] = rig.worker(1, incarnation=1, keeps=False)
    counts = [rig.learn().drawn.counts[1] for _ in range(4)]
    assert counts[0] <= 2  # 1 of 5 blocks; then 2 of 7, ...
    assert counts == sorted(counts)


def test_every_rank_draws_from_all_shards_and_one_of_them_reports_each_block(host: Stage) -> None:
    rig = Rig(host, FLOW, shards=2, ranks=2)
    for _ in range(4):
        first, second = rig.batch(0), rig.batch(1)
        assert first.data.num_steps == second.data.num_steps == 2 * DECISIONS
        assert first.data.reward.shape == second.data.reward.shape == (2 * DECISIONS, 4)
        assert first.data.num_decisions == second.data.num_decisions == DECISIONS
        assert len(first.samples) == len(second.samples) == 1
        assert first.samples != second.samples
        rig.published = first.update + 1
        for source, batch in zip(rig.sources, (first, second), strict=True):
            source.give_back(batch)


def test_a_rank_that_is_behind_does_not_wait_for_blocks_that_the_others_need_it_for(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW, ranks=2, max_lag=0)
    first = rig.batch(0)
    rig.sources[0].give_back(first)
    rig.sources[0].poll()  # prefetches update 1, which cannot start before rank 1 has made update 0
    rig.workers[0].close()
    rig.workers[0] = rig.worker(0, incarnation=1, keeps=False)
    assert rig.batch(1).update == 0
    rig.published = 1
    assert rig.batch(0).update == 1


def test_observations_of_new_decisions_reach_the_trainer_that_reports_them(stage: Stage) -> None:
    rig = Rig(stage, Replay(Transitions(), 8, 1000, keeps_new=True), ranks=2)
    first, second = rig.batch(0), rig.batch(1)
    assert first.data.new.shape == (DECISIONS, 3)
    assert second.data.new.shape == (0, 3)


def test_sequences_are_joined_over_shards(inproc: Stage) -> None:
    rig = Rig(inproc, Replay(Sequences(length=2, period=2), 8, 1000), shards=2)
    batch = [rig.learn() for _ in range(4)][-1]
    assert batch.data.reward.shape == (2 * DECISIONS, 3, 8)
    assert batch.data.weight.shape == (2 * DECISIONS, 8)
    assert batch.data.valid.shape == (2 * DECISIONS, 3, 8)
    assert (batch.data.burn_in, batch.data.state) == (0, None)


def test_feedback_sets_the_priorities_of_the_shards(stage: Stage) -> None:
    flow = Replay(Transitions(), 8, 1000, priorities=Priorities(alpha=1.0, beta=1.0, beta_final=1.0, epsilon=0.0))
    rig = Rig(stage, flow, shards=2)
    for _ in range(2):
        rig.learn(priorities=0.001)
    batch = rig.learn()  # new blocks have the highest priority, 1; old ones almost none
    assert batch.data.reward.max() >= 4
    assert (batch.data.reward >= 4).mean() > 0.95
    assert batch.data.weight.max() == 1.0
    is_old = batch.data.reward < 4
    assert not is_old.any() or batch.data.weight[is_old].min() > batch.data.weight[~is_old].max()


def test_gauges_are_those_of_the_shard(inproc: Stage) -> None:
    rig = Rig(inproc, Replay(Transitions(), 8, 1000, updates_per_decision=0.5), shards=2)
    for _ in range(5):
        rig.learn()
    meter = rig.workers[0]._meter
    assert meter.get(Counter.REPLAY_SIZE) == 5 * DECISIONS
    assert meter.get(Counter.REPLAY_CAPACITY) == 500
    assert meter.get(Counter.REPLAY_STEPS) / meter.get(Counter.REPLAY_DECISIONS) == 0.5
    assert meter.get(Counter.CONSUMED) == 5


def received(channel: Channel, kind: type[Any]) -> Any:
    """Return the next message of one type."""
    while (found := channel.receive()) is not None:
        if isinstance(found[0], kind):
            return found[0]
    raise AssertionError(f"no {kind.__name__} has arrived")


def test_a_trainer_drops_a_replay_worker_that_sends_wrong_arrays(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW)
    rig.workers[0].close()
    context = inproc.world.context("replay", 0, 1)
    listener = context.listen("sample/policy/replay/0", SampleMessage)
    rig.sources[0].poll()
    channel = listener.accept()
    assert channel is not None
    channel.send(FillReply(received(channel, Fill).tag, Inserted(0, 0, 4, 4, 4.0), []), (np.zeros(0, np.int64),))
    assert rig.sources[0].poll() is None
    channel.send(DrawReply(received(channel, Draw).tag, ["reward"]), (np.zeros((3, 5), np.float32),))
    assert rig.sources[0].poll() is None
    assert rig.sources[0].is_urgent  # not connected any more
    listener.close()


def test_a_replay_worker_refuses_draws_that_fit_into_no_message(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW)
    context = inproc.world.context("trainers", 1)
    (address,) = context.names.lookup("sample/policy/").values()
    channel = context.connect(address, SampleMessage)
    channel.send(AttachSampler("trainers/1", 1, 2))
    channel.send(Draw(1, 2**20, 2**20))
    rig.workers[0].poll()
    with pytest.raises(ConnectionError):
        channel.receive()
    rig.learn()  # other trainers are served
