"""Routes of push streams: how a producer chooses the consumers that receive its next block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from srl.streams.messages import BlockGrant, ConsumerTerms
from srl.streams.peers import PeerLink

RouteName: TypeAlias = Literal["balanced", "broadcast"]


@dataclass(eq=False)
class ConsumerLink(PeerLink):
    """A producer's connection to one consumer, named after its endpoint: push/<stream>/<group>/<index>."""

    wanted: int = 0  # number of admissions requested but not yet granted
    grants: deque[BlockGrant] = field(default_factory=deque)  # unused admissions, oldest first
    polls_unused: int = 0  # number of polls for which the oldest unused admission could have been used
    posted: set[int] = field(default_factory=set)  # blocks that the consumer holds
    terms: ConsumerTerms | None = None  # in a broadcast; until they arrive, it gets no blocks and no producer waits

    @property
    def group(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def waited_for(self) -> bool:
        return self.terms is not None and self.terms.waited_for

    @property
    def is_full(self) -> bool:
        """Whether producers skip this consumer: they do not wait for it, and it holds as many blocks as it may."""
        return self.terms is not None and not self.terms.waited_for and len(self.posted) >= self.terms.room


def balanced(links: Iterable[ConsumerLink]) -> list[ConsumerLink]:
    """Choose the consumer with the oldest admission; none if there is no admission."""
    ready = [link for link in links if link.grants]
    return [min(ready, key=lambda link: link.grants[0].ticket)] if ready else []


def broadcast(links: Iterable[ConsumerLink]) -> list[ConsumerLink]:
    """Choose one consumer from every group; none while a group that producers wait for has not admitted a block."""
    groups: dict[str, list[ConsumerLink]] = {}
    for link in links:
        if link.terms is not None:
            groups.setdefault(link.group, []).append(link)
    chosen: list[ConsumerLink] = []
    for members in groups.values():
        one = balanced(members)
        if not one and any(member.waited_for for member in members):
            return []
        chosen += one
    return chosen


ROUTES: dict[RouteName, Callable[[Iterable[ConsumerLink]], list[ConsumerLink]]]
ROUTES = {"balanced": balanced, "broadcast": broadcast}
