"""Parameters in memory shared by a host's workers: one copy, whatever their number."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from srl.base.shared_memory import Memory
from srl.base.snapshot import HEADER_BYTES, Snapshot
from srl.base.tree import Array

MAX_TAGS = 24
MAX_NOTES = 200
_BOOK_OFFSET = HEADER_BYTES // 2


class HostParameterStore:
    """Newest versions rotate through three slots; each tag pins one more. Tags and notes lie in a small book beside."""

    def __init__(self, memory: Memory, bell: int = -1) -> None:
        """`bell` is an eventfd that rings with every push."""
        self._bell = bell
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
        if self._bell >= 0:
            os.eventfd_write(self._bell, 1)

    def pull(self, tag: str = "latest", newer_than: int = -1) -> tuple[int, Array] | None:
        if tag != "latest":
            return self._pull_tagged(tag, newer_than)
        if self.version <= newer_than:
            return None
        found = self._snapshot.read()
        return None if found is None else (found[0], found[1]["parameters"])

    def _pull_tagged(self, tag: str, newer_than: int) -> tuple[int, Array] | None:
        while True:
            tags = self._book()["tags"]
            if tag not in tags:
                raise KeyError(f"no version is tagged {tag!r}; tags are {sorted(tags)}")
            slot, version = tags[tag]
            if version <= newer_than:
                return None
            found = self._snapshot.read(slot)
            if found is not None and found[0] == version:  # else the tag was moved, and its slot written, meanwhile
                return version, found[1]["parameters"]

    def versions(self) -> dict[str, int]:
        tagged = {name: version for name, (_, version) in self._book()["tags"].items()}
        return {**tagged, "latest": self.version} if self.version >= 0 else tagged

    def tag(self, name: str, source: str = "latest") -> None:
        with self._edit() as book:
            if source != "latest":
                if source not in book["tags"]:
                    raise KeyError(f"no version is tagged {source!r}; tags are {sorted(book['tags'])}")
                self._pin(book, name, *book["tags"][source])
                return
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
            chosen, pages = self._pages()
            other = 1 - int(chosen[0])
            if len(text) > len(pages[other]) - 8:
                raise ValueError("too many notes about versions")
            pages[other][8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
            pages[other][:8].view("int64")[0] = len(text)
            chosen[0] = other

    def _read_book(self) -> dict[str, Any]:
        chosen, pages = self._pages()
        page = pages[int(chosen[0])]
        size = int(page[:8].view("int64")[0])
        if size == 0:
            return {"tags": {}, "notes": {}}
        book: dict[str, Any] = msgspec.json.decode(page[8 : 8 + size].tobytes())
        return book

    def _pages(self) -> tuple[Array, tuple[Array, Array]]:
        """Which page counts, and both: who is killed while he writes the other one leaves this one whole."""
        area = self._snapshot.memory.bytes[_BOOK_OFFSET:HEADER_BYTES]
        middle = len(area) // 2
        return area[:8].view("int64"), (area[64:middle], area[middle:])

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """A lock that the kernel takes back from a process that dies."""
        fd = self._snapshot.memory.fd
        fcntl.lockf(fd, how)
        try:
            yield
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)
