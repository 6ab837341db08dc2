"""Routes: the consumers of the next block, without channels."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from srl.streams.messages import BlockGrant, ConsumerTerms
from srl.streams.routes import ConsumerLink, balanced, broadcast

NO_CHANNEL = cast(Any, None)
WAITED_FOR, DROPS = ConsumerTerms(True, 2), ConsumerTerms(False, 2)


def link(name: str, *tickets: int, terms: ConsumerTerms | None = WAITED_FOR) -> ConsumerLink:
    return ConsumerLink(name, "", NO_CHANNEL, grants=deque(BlockGrant(ticket, 0) for ticket in tickets), terms=terms)


def names(links: list[ConsumerLink]) -> list[str]:
    return [each.name for each in links]


def test_balanced_goes_to_the_oldest_admission() -> None:
    assert names(balanced([link("a/0", 5), link("b/0"), link("b/1", 3, 9)])) == ["b/1"]
    assert balanced([link("a/0"), link("b/0")]) == []


def test_broadcast_goes_to_one_of_every_group() -> None:
    links = [link("trainers/0", 5), link("trainers/1", 4), link("loggers/0", 7)]
    assert names(broadcast(links)) == ["trainers/1", "loggers/0"]


def test_a_broadcast_waits_for_every_group_that_must_admit() -> None:
    assert broadcast([link("trainers/0", 5), link("loggers/0")]) == []


def test_a_broadcast_does_not_wait_for_groups_that_drop_or_have_not_joined() -> None:
    links = [link("trainers/0", 5), link("loggers/0", terms=DROPS), link("others/0", 1, terms=None)]
    assert names(broadcast(links)) == ["trainers/0"]
    assert broadcast([]) == broadcast([link("loggers/0", terms=DROPS)]) == []


def test_only_consumers_that_drop_can_be_full() -> None:
    for terms, full in ((WAITED_FOR, False), (DROPS, True), (None, False)):
        one = link("loggers/0", terms=terms)
        one.posted |= {3, 4}
        assert one.is_full == full
