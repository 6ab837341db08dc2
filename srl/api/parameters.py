"""The parameter service: versions of a policy's parameters, one copy per host, for any number of readers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from srl.base.tree import Array


@runtime_checkable
class ParameterStore(Protocol):
    """The parameters of one policy. One trainer writes; any worker reads."""

    @property
    def version(self) -> int:
        """The newest version, or -1 before the first push. Cheap enough to read before every batch."""

    def push(self, version: int, parameters: Array, tags: tuple[str, ...] = ()) -> None:
        """Publish a version; version numbers must increase. A tag keeps its version until the tag is moved."""

    def pull(self, tag: str = "latest", newer_than: int = -1) -> tuple[int, Array] | None:
        """Return a tagged version and a copy of its parameters; None unless newer than `newer_than`.
        Raises KeyError for an unknown tag."""

    def versions(self) -> dict[str, int]:
        """Return the version of every tag, including `latest` after the first push."""

    def tag(self, name: str, source: str = "latest") -> None:
        """Tag the newest version, or the one with the tag `source`, as `name`."""

    def note(self, version: int, metrics: Mapping[str, float]) -> None:
        """Store metrics of a version, such as its score. Notes on the newest 200 versions are kept."""

    def notes(self) -> dict[int, dict[str, float]]:
        """Return the stored notes, keyed by version."""
