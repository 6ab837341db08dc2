"""Parameters in memory shared by a host's workers: one copy, whatever their number."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from srl.base.memory import Memory
from srl.base.snapshot import HEADER_BYTES, Snapshot
from srl.base.tree import Array

MAX_TAGS = 8
MAX_NOTES = 200
_BOOK_OFFSET = HEADER_BYTES // 2


class HostParameterStore:
    """Newest versions rotate through three slots; each tag pins one more. Tags and notes lie in a small book beside."""

    def __init__(self, memory: Memory) -> None:
        self._snapshot = Snapshot(memory, num_slots=3 + MAX_TAGS)

    @classmethod
    def create(cls, policy: str) -> HostParameterStore:
        return cls(Memory.create(f"parameters-{policy}", HEADER_BYTES))

    @property
    def memory(self) -> Memory:
        return self._snapshot.memory

    @property
    def version(self) -> int:
        return self._snapshot.version

    def push(self, version: int, parameters: Array, tags: tuple[str, ...] = ()) -> None:
        if version <= self.version:
            raise ValueError(f"version {version} is not newer than {self.version}; versions only grow")
        with self._edit() as book:
            pinned = frozenset(slot for slot, _ in book["tags"].values())
            slot = self._snapshot.write(version, {"parameters": parameters}, {}, keep=pinned)
            for name in tags:
                self._pin(book, name, slot, version)

    def pull(self, tag: str = "latest", newer_than: int = -1) -> tuple[int, Array] | None:
        slot: int | None = None
        if tag != "latest":
            tags = self._book()["tags"]
            if tag not in tags:
                raise KeyError(f"no version is tagged {tag!r}; tags are {sorted(tags)}")
            slot, version = tags[tag]
            if version <= newer_than:
                return None
        elif self.version <= newer_than:
            return None
        found = self._snapshot.read(slot)
        return None if found is None else (found[0], found[1]["parameters"])

    def versions(self) -> dict[str, int]:
        tagged = {name: version for name, (_, version) in self._book()["tags"].items()}
        return {**tagged, "latest": self.version} if self.version >= 0 else tagged

    def tag(self, name: str) -> None:
        with self._edit() as book:
            newest = self._snapshot.active_slot
            if newest is None:
                raise KeyError("nothing was published yet, so nothing can be tagged")
            self._pin(book, name, newest, self.version)

    def note(self, version: int, facts: Mapping[str, float]) -> None:
        with self._edit() as book:
            notes = book["notes"]
            notes.setdefault(str(version), {}).update(facts)
            for oldest in sorted(notes, key=int)[:-MAX_NOTES]:
                del notes[oldest]

    def notes(self) -> dict[int, dict[str, float]]:
        return {int(version): facts for version, facts in self._book()["notes"].items()}

    @staticmethod
    def _pin(book: dict[str, Any], name: str, slot: int, version: int) -> None:
        if name == "latest":
            raise ValueError("'latest' is no tag of its own: it always is the newest version")
        if name not in book["tags"] and len(book["tags"]) >= MAX_TAGS:
            raise ValueError(f"at most {MAX_TAGS} tags; there are {sorted(book['tags'])}")
        book["tags"][name] = (slot, version)

    def _book(self) -> dict[str, Any]:
        with self._locked(fcntl.LOCK_SH):
            return self._read_book()

    @contextmanager
    def _edit(self) -> Iterator[dict[str, Any]]:
        """Change the book while no other process does."""
        with self._locked(fcntl.LOCK_EX):
            book = self._read_book()
            before = msgspec.json.encode(book)
            yield book
            text = msgspec.json.encode(book)
            if text == before:
                return
            area = self._area()
            if len(text) > len(area) - 8:
                raise ValueError("too many notes about versions")
            area[8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
            area[:8].view("int64")[0] = len(text)

    def _read_book(self) -> dict[str, Any]:
        area = self._area()
        size = int(area[:8].view("int64")[0])
        if size == 0:
            return {"tags": {}, "notes": {}}
        book: dict[str, Any] = msgspec.json.decode(area[8 : 8 + size].tobytes())
        return book

    def _area(self) -> Array:
        return self._snapshot.memory.bytes[_BOOK_OFFSET:HEADER_BYTES]

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """A lock that the kernel takes back from a process that dies."""
        fd = self._snapshot.memory.fd
        fcntl.lockf(fd, how)
        try:
            yield
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)
