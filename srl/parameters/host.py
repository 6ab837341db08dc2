"""Parameters in shared memory: one copy for all workers on a host."""

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
_INDEX_OFFSET = HEADER_BYTES // 2


class HostParameterStore:
    """Parameter store in shared memory. The newest versions rotate through three slots, and each tag pins one more.
    Tags and notes are stored as JSON in an index in the header."""

    def __init__(self, memory: Memory, push_event: int = -1) -> None:
        """`push_event`: eventfd that every push signals."""
        self._push_event = push_event
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
            raise ValueError(f"version {version} is not newer than {self.version}; versions must increase")
        with self._edit() as index:
            pinned = frozenset(slot for slot, _ in index["tags"].values())
            slot = self._snapshot.write(version, {"parameters": parameters}, {}, keep=pinned)
            for name in tags:
                self._pin(index, name, slot, version)
        if self._push_event >= 0:
            os.eventfd_write(self._push_event, 1)

    def pull(self, tag: str = "latest", newer_than: int = -1) -> tuple[int, Array] | None:
        if tag != "latest":
            return self._pull_tagged(tag, newer_than)
        if self.version <= newer_than:
            return None
        found = self._snapshot.read()
        return None if found is None else (found[0], found[1]["parameters"])

    def _pull_tagged(self, tag: str, newer_than: int) -> tuple[int, Array] | None:
        while True:
            tags = self._index()["tags"]
            if tag not in tags:
                raise KeyError(f"no version has the tag {tag!r}; existing tags: {sorted(tags)}")
            slot, version = tags[tag]
            if version <= newer_than:
                return None
            found = self._snapshot.read(slot)
            if found is not None and found[0] == version:  # otherwise the tag was moved meanwhile
                return version, found[1]["parameters"]

    def versions(self) -> dict[str, int]:
        tagged = {name: version for name, (_, version) in self._index()["tags"].items()}
        return {**tagged, "latest": self.version} if self.version >= 0 else tagged

    def tag(self, name: str, source: str = "latest") -> None:
        with self._edit() as index:
            if source != "latest":
                if source not in index["tags"]:
                    raise KeyError(f"no version has the tag {source!r}; existing tags: {sorted(index['tags'])}")
                self._pin(index, name, *index["tags"][source])
                return
            newest = self._snapshot.active_slot
            if newest is None:
                raise KeyError("cannot set a tag: no version was published yet")
            self._pin(index, name, newest, self.version)

    def note(self, version: int, metrics: Mapping[str, float]) -> None:
        with self._edit() as index:
            notes = index["notes"]
            notes.setdefault(str(version), {}).update(metrics)
            for oldest in sorted(notes, key=int)[:-MAX_NOTES]:
                del notes[oldest]

    def notes(self) -> dict[int, dict[str, float]]:
        return {int(version): metrics for version, metrics in self._index()["notes"].items()}

    @staticmethod
    def _pin(index: dict[str, Any], name: str, slot: int, version: int) -> None:
        if name == "latest":
            raise ValueError("'latest' cannot be set: it is always the newest version")
        if name not in index["tags"] and len(index["tags"]) >= MAX_TAGS:
            raise ValueError(f"a store has at most {MAX_TAGS} tags; existing tags: {sorted(index['tags'])}")
        index["tags"][name] = (slot, version)

    def _index(self) -> dict[str, Any]:
        with self._locked(fcntl.LOCK_SH):
            return self._read_index()

    @contextmanager
    def _edit(self) -> Iterator[dict[str, Any]]:
        """Lock the index, and save the changes made to it when the context ends."""
        with self._locked(fcntl.LOCK_EX):
            index = self._read_index()
            before = msgspec.json.encode(index)
            yield index
            text = msgspec.json.encode(index)
            if text == before:
                return
            valid, pages = self._pages()
            other = 1 - int(valid[0])
            if len(text) > len(pages[other]) - 8:
                raise ValueError("too many notes on parameter versions: the shared-memory index is full")
            pages[other][8 : 8 + len(text)] = np.frombuffer(text, np.uint8)
            pages[other][:8].view("int64")[0] = len(text)
            valid[0] = other

    def _read_index(self) -> dict[str, Any]:
        valid, pages = self._pages()
        page = pages[int(valid[0])]
        size = int(page[:8].view("int64")[0])
        if size == 0:
            return {"tags": {}, "notes": {}}
        index: dict[str, Any] = msgspec.json.decode(page[8 : 8 + size].tobytes())
        return index

    def _pages(self) -> tuple[Array, tuple[Array, Array]]:
        """Return the number of the valid page, as an array [1], and both pages. Changes are written to the other page,
        so a process that dies while writing leaves the valid one intact."""
        area = self._snapshot.memory.bytes[_INDEX_OFFSET:HEADER_BYTES]
        middle = len(area) // 2
        return area[:8].view("int64"), (area[64:middle], area[middle:])

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        """Hold a lock that the kernel releases if the process dies."""
        fd = self._snapshot.memory.fd
        fcntl.lockf(fd, how)
        try:
            yield
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)
