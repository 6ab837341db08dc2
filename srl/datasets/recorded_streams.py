"""Recorded streams of a run: which updates are there, in which segments, and where they continue each other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from srl.datasets.stream_segments import Segment, SegmentFile, SegmentHead, StreamError, read, read_head, segment_files

CACHED = 64  # segments of all ranks in memory: one each, for groups of any usual size


def newest(files: Iterable[SegmentFile]) -> dict[int, SegmentFile]:
    """Return the segment of each update. A trainer that replaces another one, or a resumed run, makes some updates
    again: those of its predecessors do not count any more."""
    found: dict[int, SegmentFile] = {}
    for file in sorted(files, key=lambda one: (one.writer, one.number)):
        for update in [update for update in found if update >= file.first]:
            del found[update]
        found |= dict.fromkeys(range(file.first, file.last + 1), file)
    return found


class RecordedStream:
    """What the trainers of one policy have recorded. Opening it reads only the names of files."""

    def __init__(self, folder: Path) -> None:
        """Raises StreamError if nothing is recorded there."""
        self.folder = folder
        ranks = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []
        self._files = {rank: newest(segment_files(folder / str(rank))) for rank in ranks}
        if not self._files.get(0):
            raise StreamError(f"{folder} has no recorded updates; record them with `srl train ENV --record-streams`")
        self._heads: dict[Path, SegmentHead] = {}
        self._segments: dict[Path, Segment] = {}

    @property
    def updates(self) -> list[int]:
        """Updates that rank 0 has recorded, in order."""
        return sorted(self._files[0])

    def has(self, update: int, rank: int = 0) -> bool:
        return update in self._files.get(rank, {})

    def file(self, update: int, rank: int = 0) -> SegmentFile:
        """Return the segment of an update. Raises StreamError if it is missing."""
        file = self._files.get(rank, {}).get(update)
        if file is None:
            of = f" of rank {rank}" if rank else ""
            raise StreamError(f"update {update}{of} is not recorded; recorded are {self.described()}")
        return file

    def head(self, update: int, rank: int = 0) -> SegmentHead:
        """Return the head of the segment of an update, which is not verified."""
        file = self.file(update, rank)
        if file.path not in self._heads:
            self._heads[file.path] = read_head(file)
        return self._heads[file.path]

    def segment(self, update: int, rank: int = 0) -> Segment:
        """Return the verified segment of an update."""
        file = self.file(update, rank)
        if file.path not in self._segments:
            if len(self._segments) >= CACHED:
                self._segments.clear()
            self._segments = {p: one for p, one in self._segments.items() if p.parent != file.path.parent}
            self._segments[file.path] = read(file)
        return self._segments[file.path]

    def digest(self, update: int) -> str:
        """Return the digest of the parameters after an update; empty if it is not known."""
        if update not in self._files[0]:
            return ""
        return self.head(update).updates[update - self.file(update).first].digest

    def is_complete(self, update: int) -> bool:
        """Return whether all ranks have recorded an update."""
        if update not in self._files[0]:
            return False
        return all(update in self._files.get(rank, {}) for rank in range(1, self.head(update).ranks))

    def continues(self, update: int) -> bool:
        """Return whether a recorded update starts from the parameters of the one before it, which is recorded too."""
        if update - 1 not in self._files[0]:
            return False
        if self.file(update) == self.file(update - 1):
            return True
        before, parent = self.digest(update - 1), self.head(update).parent
        return bool(before) and parent in ("", before)

    def has_state(self, update: int) -> bool:
        """Return whether the state of the trainer before an update is recorded."""
        return update in self._files[0] and self.file(update).first == update and self.head(update).has_state

    def is_whole(self, update: int) -> bool:
        """Return whether a committed state suffices to make an update."""
        return self.head(update).updates[update - self.file(update).first].is_whole

    def spans(self) -> list[tuple[int, int]]:
        """Return the first and last update of each part of the record that has no gap."""
        found: list[tuple[int, int]] = []
        for update in self.updates:
            if not self.is_complete(update):
                continue
            if found and found[-1][1] == update - 1 and self.continues(update):
                found[-1] = (found[-1][0], update)
            else:
                found.append((update, update))
        return found

    def described(self) -> str:
        """Return which updates are recorded, for messages."""
        spans = self.spans()
        texts = [f"{first} to {last}" if last > first else str(first) for first, last in spans[-5:]]
        return ("..., " if len(spans) > 5 else "") + (", ".join(texts) or "none of all ranks")
