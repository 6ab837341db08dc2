"""The parameter service: versions of a policy, one copy per host, for any number of readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from srl.base.tree import Array


@runtime_checkable
class ParameterStore(Protocol):
    """One policy's parameters. One trainer writes; everybody reads."""

    @property
    def version(self) -> int:
        """The newest version, or -1; costs next to nothing, ask before every batch."""

    def push(self, version: int, parameters: Array, tags: tuple[str, ...] = ()) -> None:
        """Publish; versions only grow. A tag keeps its version until it is moved to another."""

    def pull(self, tag: str = "latest", newer_than: int = -1) -> tuple[int, Array] | None:
        """A copy of a version's parameters, or None if there is none newer than `newer_than`. KeyError: no such tag."""

    def versions(self) -> dict[str, int]:
        """Every tag with its version; `latest` among them once something was pushed."""

    def tag(self, name: str, source: str = "latest") -> None:
        """Keep the newest version, or the one that another tag keeps, under a name."""

    def note(self, version: int, facts: Mapping[str, float]) -> None:
        """Remember facts about a version (its score, its games); the last few hundred are kept."""

    def notes(self) -> dict[int, dict[str, float]]: ...
