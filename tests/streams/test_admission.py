"""Admission keeps the staleness bound: single cases and random interleavings."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from srl.streams.admission import Admission


def grants(admission: Admission) -> list[tuple[int, int]]:
    found = []
    while (granted := admission.grant()) is not None:
        found.append(granted)
    return found


def test_without_lag_each_version_makes_exactly_one_batch() -> None:
    admission = Admission(batch_blocks=3, max_lag=0)
    for version in range(4):
        tickets = grants(admission)
        assert tickets == [(3 * version + i, version) for i in range(3)]
        for ticket, _ in tickets:
            assert admission.arrived(ticket)
        assert grants(admission) == []  # the batch is complete, the update has not begun
        admission.consumed(3)
        assert grants(admission) == []  # nothing while the update runs
        admission.version = version + 1


def test_a_lag_of_two_admits_three_batches_before_the_first_update() -> None:
    admission = Admission(batch_blocks=2, max_lag=2)
    assert grants(admission) == [(i, 0) for i in range(6)]
    admission.version = 1
    assert grants(admission) == [(6, 1), (7, 1)]  # for update 3, which may use version 1


def test_without_a_bound_everything_is_admitted() -> None:
    admission = Admission(batch_blocks=1, max_lag=None)
    assert [admission.grant() for _ in range(100)] == [(i, 0) for i in range(100)]
    assert not admission.stale(oldest_version=0, update=10**9)


def test_a_stream_without_pauses_still_finds_stale_blocks() -> None:
    admission = Admission(batch_blocks=1, max_lag=1, pauses=False)
    assert [admission.grant() for _ in range(5)] == [(i, 0) for i in range(5)]
    assert not admission.stale(oldest_version=2, update=3)
    assert admission.stale(oldest_version=2, update=4)


@pytest.mark.parametrize("how", ["returned", "dropped"])
def test_a_ticket_that_came_back_is_granted_again(how: str) -> None:
    admission = Admission(batch_blocks=2, max_lag=0)
    (first, _), (second, _) = grants(admission)
    assert admission.arrived(first)
    if how == "returned":
        admission.returned(second)
    else:
        admission.dropped()
    assert grants(admission) == [(2, 0)]
    assert grants(admission) == []


def test_a_ticket_counts_once_and_unknown_tickets_do_not_count() -> None:
    admission = Admission(batch_blocks=2, max_lag=0)
    ticket, _ = grants(admission)[0]
    assert admission.arrived(ticket)
    assert not admission.arrived(ticket)
    assert not admission.arrived(99)
    admission.returned(99)
    assert (admission.queued, len(admission.granted)) == (1, 1)


def test_admission_continues_after_the_version_it_is_given() -> None:
    admission = Admission(batch_blocks=4, max_lag=1, version=7)
    assert [oldest for _, oldest in grants(admission)] == [6] * 4 + [7] * 4  # updates 7 and 8


@settings(max_examples=150, deadline=None)
@given(data=st.data(), batch_blocks=st.integers(1, 4), max_lag=st.integers(0, 3), start=st.integers(0, 2))
def test_no_interleaving_breaks_the_bound(data: Any, batch_blocks: int, max_lag: int, start: int) -> None:
    """Any version from `oldest` to the newest decides in a block. Blocks arrive in any order, get lost and come back. A
    batch takes the oldest tickets of the queue, after stale blocks were dropped."""
    admission = Admission(batch_blocks, max_lag, version=start)
    filling: list[tuple[int, int]] = []
    queue: list[tuple[int, int]] = []
    update = start
    updates_done = 0
    for _ in range(60):
        action = data.draw(st.sampled_from(["grant", "arrive", "arrive", "return", "take", "publish"]))
        if action == "grant" and (granted := admission.grant()) is not None:
            assert start <= granted[1] + max_lag
            assert granted[1] <= admission.version
            filling.append((granted[0], data.draw(st.integers(granted[1], admission.version))))
        elif action == "arrive" and filling:
            ticket, oldest = filling.pop(data.draw(st.integers(0, len(filling) - 1)))
            assert admission.arrived(ticket)
            queue.append((ticket, oldest))
        elif action == "return" and filling:
            ticket, _ = filling.pop(data.draw(st.integers(0, len(filling) - 1)))
            admission.returned(ticket)
        elif action == "take":
            for item in [item for item in queue if admission.stale(item[1], update)]:
                queue.remove(item)
                admission.dropped()
            if len(queue) >= batch_blocks and update == admission.version:
                queue.sort()
                taken, queue = queue[:batch_blocks], queue[batch_blocks:]
                admission.consumed(batch_blocks)
                assert all(update - oldest <= max_lag for _, oldest in taken)
                assert max_lag > 0 or all(oldest == update for _, oldest in taken)
                update += 1
        elif action == "publish" and admission.version < update:
            admission.version += 1
            updates_done += 1
        under_way = len(queue) + len(filling)
        assert (admission.queued, len(admission.granted)) == (len(queue), len(filling))
        # Never more data under way than the updates that may use it.
        assert admission.used + under_way <= (admission.version + max_lag + 1) * batch_blocks
    # Whatever happened, the next batch is completed if everything continues in order.
    while admission.version < update:
        admission.version += 1
    filling += grants(admission)
    for item in [item for item in queue if admission.stale(item[1], update)]:
        queue.remove(item)
        admission.dropped()
    filling += grants(admission)
    assert len(queue) + len(filling) >= batch_blocks
