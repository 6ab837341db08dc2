"""Routes of push streams: which consumers get a producer's next block."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from srl.api.transport import Channel
from srl.streams.messages import Grant, Terms

RouteName: TypeAlias = Literal["balanced", "broadcast"]


@dataclass(eq=False)
class ConsumerLink:
    """A producer's connection to one consumer."""

    name: str
    """Name of the consumer's endpoint: push/<stream>/<group>/<index>."""
    channel: Channel
    wanted: int = 0
    """Admissions that were asked for and not granted yet."""
    grants: deque[Grant] = field(default_factory=deque)
    """Unused admissions, oldest first."""
    polls_unused: int = 0
    """Polls since the oldest of them could have been used."""
    posted: set[int] = field(default_factory=set)
    """Blocks that the consumer holds."""
    terms: Terms | None = None
    """Terms of its part in a broadcast; until they have arrived it gets no blocks, and no producer waits for it."""

    @property
    def group(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def waited_for(self) -> bool:
        return self.terms is not None and self.terms.waited_for

    @property
    def is_full(self) -> bool:
        """Whether the consumer misses blocks rather than have producers wait, and holds as many as it may."""
        return self.terms is not None and not self.terms.waited_for and len(self.posted) >= self.terms.room


def balanced(links: Iterable[ConsumerLink]) -> list[ConsumerLink]:
    """Choose the consumer with the oldest admission; none without an admission."""
    ready = [link for link in links if link.grants]
    return [min(ready, key=_oldest_ticket)] if ready else []


def broadcast(links: Iterable[ConsumerLink]) -> list[ConsumerLink]:
    """Choose one consumer of every group; none if a group that is waited for has not admitted a block."""
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


def _oldest_ticket(link: ConsumerLink) -> int:
    return link.grants[0].ticket


ROUTES: dict[RouteName, Callable[[Iterable[ConsumerLink]], list[ConsumerLink]]] = {
    "balanced": balanced,
    "broadcast": broadcast,
}
