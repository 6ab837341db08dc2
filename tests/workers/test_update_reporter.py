"""Reports that are lost with a trainer are repeated by the trainer that continues from its commit."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from srl.api.block import MAX_EPISODE_BYTES, Episodes
from srl.api.control import EpisodeReport, UpdateRecord
from srl.api.streams import Batch
from srl.api.trainer import TrainResult
from srl.api.worker import WorkerId
from srl.base.snapshot import Snapshot
from srl.workers.trainer.update_reporter import REPEATED, UpdateReporter

RESULT = TrainResult(2, {"loss": math.nan})
START = np.zeros(3, np.float32)


def reporter(reported: list[Any], rank: int = 0, journal: bool = True) -> UpdateReporter:
    return UpdateReporter("policy", WorkerId("trainers", rank, 0), 1 + rank, journal, reported.append)


def batch(update: int, *samples: str, num_episodes: int = 1) -> Batch:
    """Two decisions of the version before the one that learns from them."""
    episodes = {"actors/0": Episodes.of({"return": np.full(num_episodes, update), "length": np.ones(num_episodes)})}
    return Batch(update, None, np.ones(2, np.int64), samples or (f"actors/0.0:{update}",), episodes)


def committed(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return what a replacement reads from a commit."""
    commits = Snapshot.create("commits")
    try:
        commits.write(1, {"parameters": START}, metadata)
        found = commits.read()
    finally:
        commits.memory.close()
    assert found is not None
    return found[2]


def test_lost_reports_are_repeated_from_the_metadata_of_the_commit() -> None:
    made: list[Any] = []
    dying = reporter(made)  # its reports are lost
    dying.resume({}, START)
    for update in range(1, REPEATED + 3):
        dying.add(update, 10 * update, RESULT, START + update, batch(update))
        dying.report(update)
    assert [record.update for record in made] == list(range(1, REPEATED + 3))
    assert made[0].journal.samples == ["actors/0.0:1"]
    metadata = committed({"records": dying.last})
    reported: list[Any] = []
    replacement = reporter(reported)
    replacement.resume(metadata, START)
    replacement.report(REPEATED + 2)
    encode = msgspec.msgpack.encode  # a loss that is not a number is unequal to itself
    assert [encode(record) for record in reported] == [encode(record) for record in made[-REPEATED:]]
    other: list[Any] = []
    second = reporter(other, rank=1)
    second.resume(metadata, START)  # the commit holds no reports of this rank
    second.report(REPEATED + 2)
    assert other == []


def test_the_labels_of_thousands_of_blocks_fit_into_a_commit() -> None:
    one = reporter([])
    one.resume({}, START)
    for update in range(3 * REPEATED):
        blocks = [f"actors/{actor}.0:{4 * update + block}" for block in range(4) for actor in range(2000)]
        one.add(update, 0, RESULT, START, batch(update, *blocks, blocks[0]))  # one of them twice, which is an error
    reported: list[Any] = []
    replacement = reporter(reported)
    replacement.resume(committed({"records": one.last}), START)
    replacement.report(3 * REPEATED)
    assert reported[-1].update == 3 * REPEATED - 1
    assert sorted(reported[-1].journal.samples) == sorted([*blocks, blocks[0]])


def test_as_many_episodes_as_a_batch_may_carry_fit_into_a_commit() -> None:
    one = reporter([], journal=False)
    for update in range(3):
        one.add(update, 0, RESULT, START, batch(update, num_episodes=MAX_EPISODE_BYTES // 8))
    reported: list[Any] = []
    replacement = reporter(reported, journal=False)
    replacement.resume(committed({"records": one.last}), START)
    replacement.report(3)
    assert [record.update for record in reported] == [2]
    assert reported[0].episodes["actors/0"].count == MAX_EPISODE_BYTES // 8


def test_an_update_is_reported_once_it_is_durable() -> None:
    reported: list[Any] = []
    one = reporter(reported, journal=False)
    for update in (1, 2, 3):
        one.add(update, 0, RESULT, START, batch(update))
    one.report(0)
    assert reported == []
    one.report(2)
    one.report(2)
    assert [record.update for record in reported] == [1, 2]


def test_other_ranks_report_their_episodes_before_the_update_and_nothing_after_it() -> None:
    reported: list[Any] = []
    one = reporter(reported, rank=1, journal=False)
    one.announce(4, batch(4))
    one.add(4, 0, RESULT, START, batch(4))
    one.report(4)
    (message,) = reported
    assert isinstance(message, EpisodeReport)
    assert (message.update, message.rank, message.lag_sum, message.lag_count) == (4, 1, 2, 2)
    first: list[Any] = []
    zero = reporter(first, journal=False)
    zero.announce(4, batch(4))
    zero.add(4, 0, RESULT, START, batch(4))
    zero.report(4)
    assert [type(message) for message in first] == [UpdateRecord]
