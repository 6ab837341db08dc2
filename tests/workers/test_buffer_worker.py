"""Buffer workers between replay workers and trainers: what they change, what they pass on, and who is replaced."""

from __future__ import annotations

from collections import Counter as Multiset
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.replay_rig import DECISIONS, SPACES, Rig
from support.stages import Stage

from srl.api.dataflow import BatchFunction, BatchTransform, Priorities, Replay, Sequences, Transitions, arrays_of
from srl.api.spaces import Space
from srl.api.streams import Batch
from srl.streams.messages import AttachSampler, DrawReply, Fill, SampleMessage
from srl.workers.trainer.transformed import TransformedBatches

FLOW = Replay(Transitions(), batch=8, capacity=1000)


@dataclass(frozen=True)
class Negated(BatchTransform):
    """Changes the sign of rewards, or returns what it must not."""

    wrong: str = ""

    def build(self, observation: Space, action: Space) -> BatchFunction:
        def negate(batch: Any, random: np.random.Generator) -> Any:
            if self.wrong == "type":
                return replace(batch, reward=-batch.reward.astype(np.float64))
            if self.wrong == "shape":
                return replace(batch, discount=batch.discount[:, :-1])
            if self.wrong == "batch":
                return None
            np.negative(batch.reward, out=batch.reward)
            return batch

        return negate


@dataclass(frozen=True)
class Noisy(BatchTransform):
    """Adds noise to rewards."""

    def build(self, observation: Space, action: Space) -> BatchFunction:
        def add_noise(batch: Any, random: np.random.Generator) -> Any:
            batch.reward += random.standard_normal(batch.reward.shape, np.float32)
            return batch

        return add_noise


@pytest.mark.parametrize("unit", [Transitions(), Sequences(length=2, period=2)], ids=["transitions", "sequences"])
def test_buffer_workers_change_what_trainers_draw_and_nothing_else(stage: Stage, unit: Any) -> None:
    flow = Replay(unit, 8, 1000, warmup=3 * DECISIONS, keeps_new=True)
    rig = Rig(stage, flow, shards=2, max_lag=0, transform=Negated())
    changed = [rig.learn() for _ in range(5)]
    rig.close()
    rig = Rig(stage, flow, shards=2, max_lag=0, keeps=False)
    plain = [rig.learn() for _ in range(5)]
    for one, other in zip(plain, changed, strict=True):
        assert (one.update, one.samples, one.data.num_steps) == (other.update, other.samples, other.data.num_steps)
        assert one.lags.tolist() == other.lags.tolist()
        np.testing.assert_array_equal(one.data.new, other.data.new)
        expected, found = arrays_of(one.data), arrays_of(other.data)
        assert expected.keys() == found.keys()
        for path, array in expected.items():
            np.testing.assert_array_equal(found[path], -array if path == "reward" else array, err_msg=path)
    assert changed[-1].data.reward.min() < 0


def test_feedback_passes_through_buffer_workers(stage: Stage) -> None:
    flow = Replay(Transitions(), 8, 1000, priorities=Priorities(alpha=1.0, beta=1.0, beta_final=1.0, epsilon=0.0))
    rig = Rig(stage, flow, shards=2, transform=Negated())
    for _ in range(2):
        rig.learn(priorities=0.001)
    batch = rig.learn()
    assert (batch.data.reward <= -4).mean() > 0.95
    assert batch.data.weight.max() == 1.0


def learned_by_all(rig: Rig) -> list[Batch]:
    batches = [rig.batch(rank) for rank in range(rig.ranks)]
    rig.published = batches[0].update + 1
    for source, batch in zip(rig.sources, batches, strict=True):
        source.give_back(batch)
    return batches


@pytest.mark.parametrize("killed", ["buffer", "replay worker"])
def test_killed_workers_on_both_sides_of_the_relay_are_replaced_while_trainers_wait(stage: Stage, killed: str) -> None:
    rig = Rig(stage, FLOW, shards=2, ranks=2, max_lag=1, transform=Negated())
    before = [batch for _ in range(3) for batch in learned_by_all(rig)]
    rig.sources[0].poll()  # the next request is on its way
    workers: Any = rig.buffers if killed == "buffer" else rig.workers
    workers.pop().close()
    for _ in range(20):
        rig.play()
        assert rig.sources[0].poll() is None
    workers.append(rig.buffer(1, incarnation=1) if killed == "buffer" else rig.worker(1, incarnation=1))
    after = [batch for _ in range(3) for batch in learned_by_all(rig)]
    assert [batch.update for batch in after] == [3, 3, 4, 4, 5, 5]
    assert [batch.data.num_steps for batch in after] == [2 * DECISIONS] * 6
    assert rig.size(0) == rig.size(1) == 6 * DECISIONS
    labels = Multiset(label for batch in before + after for label in batch.samples)
    assert len(labels) == 12
    assert set(labels.values()) == {1}
    assert all(batch.data.reward.max() <= 0 for batch in after)


def test_a_relay_leaves_a_replay_worker_that_was_replaced_but_does_not_hang_up(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW, transform=Negated())
    rig.learn()
    rig.worker(0, incarnation=1).close()  # its replacement would register in its place
    rig.workers = [rig.worker(0, incarnation=2)]  # the first one is frozen: it is not polled, and not closed
    assert [rig.learn().update for _ in range(2)] == [1, 2]


def test_a_relay_refuses_peers_that_break_the_protocol(inproc: Stage) -> None:
    rig = Rig(inproc, FLOW, transform=Negated())
    rig.learn()
    context = inproc.world.context("trainers", 1)
    (address,) = context.names.lookup("sample/policy+buffers/").values()
    for messages in ([Fill(1, 1)], [AttachSampler("trainers/1", 1, 2), DrawReply(1, [])]):
        channel = context.connect(address, SampleMessage)
        for message in messages:
            channel.send(message)
        for _ in range(2):
            rig.play()
        with pytest.raises(ConnectionError):
            channel.receive()
    rig.learn()  # other trainers are served
    assert rig.buffers[0]._relay.num_trainers == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("type", r"returned reward as float64 \(4, 8\), expected \('float32', \(4, 8\)\)"),
        ("shape", r"returned discount as float32 \(4, 7\)"),
        ("batch", "must return a TransitionBatch, found NoneType"),
    ],
)
def test_a_transform_that_returns_other_arrays_is_an_error(inproc: Stage, wrong: str, message: str) -> None:
    rig = Rig(inproc, FLOW, transform=Negated(wrong))
    with pytest.raises(TypeError, match=message):
        rig.learn()


def test_what_is_random_in_a_batch_depends_on_the_seed_and_the_number_of_the_update(inproc: Stage) -> None:
    found = []
    for seed in (5, 5, 6, None):
        rig = Rig(inproc, FLOW, max_lag=0, keeps=False)
        if seed is not None:
            source: Any = TransformedBatches(rig.sources[0], Noisy().build(*SPACES), seed)
            rig.sources[0] = source
        found.append(np.stack([rig.learn().data.reward.copy() for _ in range(4)]))
        rig.close()
    np.testing.assert_array_equal(found[0], found[1])
    noise = [array - found[-1] for array in (found[0], found[2])]
    assert all(0.7 < each.std() < 1.3 for each in noise)
    assert (noise[0] != noise[1]).any()
    assert (noise[0][0] != noise[0][1]).any()
