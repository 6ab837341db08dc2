"""Routes: who gets a producer's next block, by what is known of its consumers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from srl.api.transport import Channel
from srl.streams.push_messages import Grant, Terms

RouteName: TypeAlias = Literal["balanced", "broadcast"]


@dataclass(eq=False)
class Link:
    """A producer's view of one consumer."""

    name: str
    """Of its endpoint: push/<stream>/<group>/<index>."""
    channel: Channel
    wanted: int = 0
    """Admissions that it was asked for and has not given yet."""
    grants: deque[Grant] = field(default_factory=deque)
    """Those that it has given, the oldest first."""
    num_held: int = 0
    """Polls since the oldest of them could have been used."""
    posted: set[int] = field(default_factory=set)
    """Blocks that it has and did not give back yet."""
    terms: Terms | None = None
    """How it takes part in a broadcast; until it has said so it gets nothing, and nobody waits for it."""

    @property
    def group(self) -> str:
        return self.name.rpartition("/")[0]

    @property
    def waited_for(self) -> bool:
        return self.terms is not None and self.terms.waited_for

    @property
    def is_full(self) -> bool:
        """It would rather miss a block than hold anybody up, and has all that it may keep."""
        return self.terms is not None and not self.terms.waited_for and len(self.posted) >= self.terms.room


def balanced(links: Iterable[Link]) -> list[Link]:
    """The consumer that admitted first; nobody without an admission."""
    ready = [link for link in links if link.grants]
    return [min(ready, key=_oldest)] if ready else []


def broadcast(links: Iterable[Link]) -> list[Link]:
    """One consumer of every group. Nobody, if a group that is waited for has not admitted a block."""
    groups: dict[str, list[Link]] = {}
    for link in links:
        if link.terms is not None:
            groups.setdefault(link.group, []).append(link)
    chosen: list[Link] = []
    for members in groups.values():
        one = balanced(members)
        if not one and any(member.waited_for for member in members):
            return []
        chosen += one
    return chosen


def _oldest(link: Link) -> int:
    return link.grants[0].ticket


ROUTES: dict[RouteName, Callable[[Iterable[Link]], list[Link]]] = {"balanced": balanced, "broadcast": broadcast}
