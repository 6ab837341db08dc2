"""Each update reaches the record of a run once, complete and in order, whatever dies or arrives late."""

from __future__ import annotations

import json

import numpy as np
import pytest

from srl.api.block import Episodes
from srl.api.control import EpisodeReport, UpdateRecord
from srl.controller.update_records import MAX_WAITING, UpdateRecords


def episodes(actor: str, value: float) -> dict[str, Episodes]:
    return {actor: Episodes.of({"return": np.array([value])})}


def record(update: int, ranks: int = 1, incarnation: int = 0) -> UpdateRecord:
    own = episodes("actors/0", float(update))
    return UpdateRecord("policy", update, 10 * update, 0.0, {}, own, 3, 2, 2, 0, ranks, incarnation)


def part(update: int, rank: int = 1, incarnation: int = 0) -> EpisodeReport:
    return EpisodeReport("policy", episodes(f"actors/{rank}", -update), update, rank, incarnation, 5, 2, 4)


@pytest.fixture
def emitted() -> list[UpdateRecord]:
    return []


@pytest.fixture
def records(emitted: list[UpdateRecord]) -> UpdateRecords:
    return UpdateRecords(emitted.append)


def test_repetitions_are_dropped(records: UpdateRecords, emitted: list[UpdateRecord]) -> None:
    for update in (1, 2, 1, 2, 3, 3):
        records.add(record(update))
    assert [one.update for one in emitted] == [1, 2, 3]
    resumed = UpdateRecords(emitted.append)
    resumed.last = {"policy": 2}  # the checkpoint's version: update 3 is made again
    for update in (1, 2, 3):
        resumed.add(record(update))
    assert [one.update for one in emitted] == [1, 2, 3, 3]


def test_an_update_of_several_ranks_waits_for_all_of_them(records: UpdateRecords, emitted: list[UpdateRecord]) -> None:
    records.add(part(1))
    records.add(record(1, ranks=2))
    assert {actor: one.arrays()["return"].tolist() for actor, one in emitted[0].episodes.items()} == {
        "actors/0": [1.0],
        "actors/1": [-1.0],
    }
    assert (emitted[0].lag_sum, emitted[0].lag_count, emitted[0].lag_max) == (8, 4, 4)
    records.add(record(2, ranks=2))
    records.add(record(3, ranks=2))
    records.add(part(3))
    assert len(emitted) == 1, "the third waits for the second"
    records.add(part(2))
    assert [one.update for one in emitted] == [1, 2, 3]
    assert records.num_incomplete == 0


def test_a_report_that_was_lost_with_its_host_does_not_hold_up_later_updates(
    records: UpdateRecords, emitted: list[UpdateRecord]
) -> None:
    records.add(record(1, ranks=2))
    assert not emitted
    records.add(part(2, incarnation=1))
    records.add(record(2, ranks=2, incarnation=1))
    assert [(one.update, sorted(one.episodes)) for one in emitted] == [(1, ["actors/0"]), (2, ["actors/0", "actors/1"])]
    for update in range(3, MAX_WAITING + 4):
        records.add(record(update, ranks=2, incarnation=1))
    assert [one.update for one in emitted] == [1, 2, 3]
    records.flush()
    assert len(emitted) == MAX_WAITING + 3
    assert records.num_incomplete == MAX_WAITING + 2


def test_reports_on_an_update_that_was_not_made_are_not_mixed_with_those_of_its_repetition(
    records: UpdateRecords, emitted: list[UpdateRecord]
) -> None:
    records.add(part(1, incarnation=0))  # rank 0 died before it committed
    records.add(record(1, ranks=2, incarnation=1))
    assert not emitted
    records.add(part(1, incarnation=1))
    assert len(emitted) == 1


def test_waiting_reports_survive_a_takeover(records: UpdateRecords, emitted: list[UpdateRecord]) -> None:
    records.add(record(1, ranks=2))
    records.add(part(2))
    successor = UpdateRecords(emitted.append)
    successor.take_over(json.loads(json.dumps(records.state())))
    successor.add(part(1))
    successor.add(record(2, ranks=2))
    assert [(one.update, len(one.episodes)) for one in emitted] == [(1, 2), (2, 2)]
