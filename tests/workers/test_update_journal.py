"""What a trainer takes along when it dies is told by whoever goes on from its commit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from srl.api.control import Learnt
from srl.workers.journal import REPEATED, UpdateJournal, digest_of


def test_reports_that_died_on_their_way_are_repeated_from_the_facts_of_the_commit() -> None:
    parameters = np.zeros(3, np.float32)
    dying = UpdateJournal("policy", 0, lambda message: None)  # nobody hears it
    dying.resume({}, parameters)
    made = []
    for update in range(1, REPEATED + 3):
        parent = digest_of(parameters)
        parameters += 1
        dying.add(update, parameters, batch(update))
        dying.report()
        made.append(Learnt("policy", 0, update, parent, digest_of(parameters), [f"actors/0.0:{update}"], 1))
    facts = {"journal": dying.last}

    told: list[Any] = []
    UpdateJournal("policy", 0, told.append).resume(facts, parameters)
    assert told == made[-REPEATED:]
    other: list[Any] = []
    UpdateJournal("policy", 1, other.append).resume(facts, parameters)  # what its own rank told is not in there
    assert other == []


def batch(update: int) -> Any:
    """Two decisions of the version before the one that learns from them."""
    return SimpleNamespace(samples=[f"actors/0.0:{update}"], lags=np.ones(2, np.int64))
