"""Segments of a recorded stream: the batches that reached one trainer, as safetensors files.

`streams/POLICY/RANK/` of a run contains files such as `0001-00000012-57-60-9f3c21ab.safetensors`. Their names have the
number of the writer (each trainer that continues a run has a higher one), the number of the segment, its first and its
last update, and the CRC-32 of the content. A segment holds consecutive updates of one config of the algorithm. Some
begin with the state that the trainer had before the first of them.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from srl.api.dataflow import REST, SequenceBatch, TransitionBatch
from srl.api.trainer import Trajectory
from srl.base.config import parse_json
from srl.base.files import explain_os_error, open_regular, read_regular, replacing
from srl.base.tree import Array, from_leaves, leaves

FORMAT = "srl-stream-1"
SUFFIX = ".safetensors"
NAME = re.compile(r"(\d{4,9})-(\d{8,12})-(\d{1,15})-(\d{1,15})-([0-9a-f]{8})\.safetensors")
HEAD = "srl"  # key of the metadata of a file
STATE = "state"  # prefix of the arrays of a trainer's state
LAGS, NEW = "lags", "new"
MAX_BYTES = 8 << 30  # size of a segment
MAX_HEAD_BYTES = 64 << 20

Kind = Literal["trajectory", "transitions", "sequences"]
KINDS: dict[type[Any], Kind] = {
    Trajectory: "trajectory",
    TransitionBatch: "transitions",
    SequenceBatch: "sequences",
}
DTYPES = {np.dtype(f"f{size}"): f"F{8 * size}" for size in (2, 4, 8)} | {np.dtype(bool): "BOOL"}
DTYPES |= {np.dtype(f"{kind}{size}"): f"{kind.upper()}{8 * size}" for kind in "iu" for size in (1, 2, 4, 8)}
"""Names of dtypes in safetensors files."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class StreamError(ValueError):
    """A recorded stream is missing, incomplete or damaged; the message says what to do."""


class UpdateHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about one update, besides its arrays."""

    update: _Count
    kind: Kind
    progress: float  # of the run, which drives schedules
    time: float  # seconds since 1970
    digest: str = ""  # of the parameters after it; empty if the trainer failed in it
    num_decisions: _Count = 0
    burn_in: _Count = 0
    is_whole: bool = True  # whether a committed state is all that the update depends on, besides its batch
    samples: list[str] = []  # labels of the blocks


class SegmentHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known about a segment."""

    policy: str
    rank: _Count
    ranks: _Count
    seed: int  # of the trainer
    algorithm: Any  # config of the algorithm as plain data
    updates: list[UpdateHead]
    parent: str = ""  # digest of the parameters before the first update; empty if it is not known
    has_state: bool = False
    format: str = FORMAT


@dataclass(frozen=True)
class SegmentFile:
    """A segment by its name, which is not verified."""

    path: Path
    writer: int
    number: int
    first: int
    last: int
    checksum: str

    @classmethod
    def of(cls, path: Path) -> SegmentFile | None:
        match = NAME.fullmatch(path.name)
        if match is None:
            return None
        writer, number, first, last = (int(text) for text in match.groups()[:4])
        return cls(path, writer, number, first, last, match[5])


@dataclass(frozen=True)
class Segment:
    """A verified segment."""

    file: SegmentFile
    head: SegmentHead
    state: Mapping[str, Array]
    arrays: Mapping[int, Mapping[str, Array]]  # update -> arrays by path

    def update_head(self, update: int) -> UpdateHead:
        return self.head.updates[update - self.file.first]


def segment_files(folder: Path) -> list[SegmentFile]:
    """Return the segments of one rank, oldest first. Empty if there are none."""
    try:
        found = [SegmentFile.of(path) for path in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    known = [file for file in found if file is not None]
    return sorted(known, key=lambda file: (file.writer, file.number))


def arrays_of(data: Any, lags: Array) -> dict[str, Array]:
    """Return the arrays of a batch by path. They are views."""
    trees = {one.name: getattr(data, one.name) for one in fields(data) if one.name == NEW or one.name not in REST}
    found = dict(leaves({name: tree for name, tree in trees.items() if tree is not None}))
    return {**found, LAGS: lags}


def batch_of(head: UpdateHead, arrays: Mapping[str, Array]) -> Any:
    """Return the batch of an update: the reverse of `arrays_of`."""
    trees = from_leaves({path: array for path, array in arrays.items() if path != LAGS})
    if head.kind == "trajectory":
        return Trajectory(**trees)
    if head.kind == "transitions":
        return TransitionBatch(**trees, num_decisions=head.num_decisions)
    return SequenceBatch(**{"state": None, **trees}, num_decisions=head.num_decisions, burn_in=head.burn_in)


def write(
    folder: Path,
    writer: int,
    number: int,
    head: SegmentHead,
    state: Mapping[str, Array],
    updates: Iterable[Mapping[str, Array]],
) -> tuple[Path, int]:
    """Write a segment from contiguous arrays, and return its path and size. Raises OSError."""
    pieces = _pieces(head, state, updates)
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    first, last = head.updates[0].update, head.updates[-1].update
    path = folder / f"{writer:04d}-{number:08d}-{first}-{last}-{checksum:08x}{SUFFIX}"
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.writelines(pieces)
    return path, sum(map(len, pieces))


def _pieces(
    head: SegmentHead, state: Mapping[str, Array], updates: Iterable[Mapping[str, Array]]
) -> list[bytes | memoryview]:
    """Return the parts of a file. They are not joined, nor saved by `safetensors.numpy.save`, because copies cost most
    of the time."""
    named = {f"{STATE}/{name}": array for name, array in state.items()}
    for one, arrays in zip(head.updates, updates, strict=True):
        named |= {f"{one.update}/{path}": array for path, array in arrays.items()}
    described: dict[str, Any] = {"__metadata__": {HEAD: msgspec.json.encode(head).decode()}}
    pieces: list[memoryview] = []
    offset = 0
    for name, array in sorted(named.items(), key=lambda item: -item[1].dtype.itemsize):  # so that all are aligned
        end = offset + array.nbytes
        described[name] = {"dtype": DTYPES[array.dtype], "shape": array.shape, "data_offsets": (offset, end)}
        pieces.append(array.reshape(-1).view(np.uint8).data)
        offset = end
    text = msgspec.json.encode(described)
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *pieces]


def read_head(file: SegmentFile) -> SegmentHead:
    """Return the head of a segment without reading its arrays. It is not verified: see `read`."""
    try:
        with open_regular(file.path) as opened:
            size = int.from_bytes(opened.read(8), "little")
            if size > MAX_HEAD_BYTES:
                raise StreamError(f"segment {file.path} is damaged: its head is too large")
            text = opened.read(size)
    except OSError as error:
        raise StreamError(f"segment {file.path} cannot be read: {explain_os_error(error)}") from error
    return _head(file, text)


def _head(file: SegmentFile, text: bytes) -> SegmentHead:
    try:
        metadata = parse_json(text, file.path.name)["__metadata__"][HEAD]
        parsed = parse_json(metadata.encode(), file.path.name)
        if parsed.get("format") != FORMAT:
            found = parsed.get("format")
            raise StreamError(f"segment {file.path} has the format {found!r}; this version reads {FORMAT!r}")
        head = msgspec.convert(parsed, SegmentHead)
        expected = list(range(file.first, file.last + 1))
        if [one.update for one in head.updates] != expected or not head.rank < head.ranks:
            raise ValueError("its updates are not those of its name")
    except StreamError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StreamError(f"segment {file.path} is damaged: {error}") from error
    return head


def read(file: SegmentFile) -> Segment:
    """Return a segment. Raises StreamError unless every byte is as it was written."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = read_regular(file.path, MAX_BYTES)
    except OSError as error:
        reason = "it was removed while it was needed" if isinstance(error, FileNotFoundError) else ""
        raise StreamError(f"segment {file.path} cannot be read: {reason or explain_os_error(error)}") from error
    if f"{zlib.crc32(content):08x}" != file.checksum:
        raise StreamError(f"segment {file.path} is damaged: its content does not match the CRC-32 in its name")
    head = _head(file, content[8 : 8 + int.from_bytes(content[:8], "little")])
    try:
        named = load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise StreamError(f"segment {file.path} is damaged: {error}") from error
    state: dict[str, Array] = {}
    arrays: dict[int, dict[str, Array]] = {one.update: {} for one in head.updates}
    for name, array in named.items():
        owner, _, path = name.partition("/")
        own = array if array.flags.writeable else array.copy()
        if owner == STATE:
            state[path] = own
        elif owner.isdecimal() and len(owner) < 16 and int(owner) in arrays:
            arrays[int(owner)][path] = own
        else:
            raise StreamError(f"segment {file.path} has an array of another update: {name[:80]!r}")
    if head.has_state != bool(state):
        raise StreamError(f"segment {file.path} is damaged: the state of the trainer is missing")
    return Segment(file, head, state, arrays)


def digest_of(parameters: Array) -> str:
    """Return the digest of a vector of parameters, as in journals (`--journal`)."""
    import hashlib

    return hashlib.sha256(np.ascontiguousarray(parameters).data).hexdigest()[:32]


def plain(data: Any) -> str:
    """Return plain data as a text that is equal for equal data."""
    return json.dumps(data, sort_keys=True)
