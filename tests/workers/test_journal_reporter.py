"""Reports that are lost with a trainer are repeated by the trainer that continues from its commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from srl.api.control import UpdateRecord
from srl.base.snapshot import Snapshot
from srl.workers.trainer.journal_reporter import REPEATED, JournalReporter, digest_of


def test_lost_reports_are_repeated_from_the_metadata_of_the_commit() -> None:
    parameters = np.zeros(3, np.float32)
    dying = JournalReporter("policy", 0, lambda message: None)  # its reports are lost
    dying.resume({}, parameters)
    made = []
    for update in range(1, REPEATED + 3):
        parent = digest_of(parameters)
        parameters += 1
        dying.add(update, parameters, batch(update))
        dying.report(update)
        made.append(UpdateRecord("policy", 0, update, parent, digest_of(parameters), [f"actors/0.0:{update}"], 1))
    metadata = {"journal": dying.last}

    reported: list[Any] = []
    replacement = JournalReporter("policy", 0, reported.append)
    replacement.resume(metadata, parameters)
    replacement.report(REPEATED + 2)
    assert reported == made[-REPEATED:]
    other: list[Any] = []
    second = JournalReporter("policy", 1, other.append)
    second.resume(metadata, parameters)  # the commit holds no reports of this rank
    second.report(REPEATED + 2)
    assert other == []


def test_the_labels_of_thousands_of_blocks_fit_into_a_commit() -> None:
    parameters = np.zeros(3, np.float32)
    journal = JournalReporter("policy", 0, lambda message: None)
    journal.resume({}, parameters)
    for update in range(3 * REPEATED):
        blocks = [f"actors/{actor}.0:{4 * update + block}" for block in range(4) for actor in range(2000)]
        journal.add(update, parameters, batch(update, *blocks, blocks[0]))  # one of them twice, which is an error
    commits = Snapshot.create("commits")
    try:
        commits.write(1, {"parameters": parameters}, {"journal": journal.last})
        committed = commits.read()
    finally:
        commits.memory.close()
    assert committed is not None
    reported: list[Any] = []
    replacement = JournalReporter("policy", 0, reported.append)
    replacement.resume(committed[2], parameters)
    replacement.report(3 * REPEATED)
    assert reported[-1].update == 3 * REPEATED - 1
    assert sorted(reported[-1].samples) == sorted([*blocks, blocks[0]])


def test_an_update_is_reported_once_it_is_durable() -> None:
    reported: list[Any] = []
    journal = JournalReporter("policy", 0, reported.append)
    journal.resume({}, np.zeros(3, np.float32))
    for update in (1, 2, 3):
        journal.add(update, np.full(3, update, np.float32), batch(update))
    journal.report(0)
    assert reported == []
    journal.report(2)
    journal.report(2)
    assert [entry.update for entry in reported] == [1, 2]


def batch(update: int, *samples: str) -> Any:
    """Two decisions of the version before the one that learns from them."""
    return SimpleNamespace(samples=samples or [f"actors/0.0:{update}"], lags=np.ones(2, np.int64))
