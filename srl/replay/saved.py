"""Replay on disk: every block is written once, in segments; a manifest lists those that count.

`replay/POLICY/SHARD/` of a run contains manifest.json, segments of blocks, and one file that each save replaces, with
priorities and counts. Files have sizes and SHA-256 hashes in the manifest, and the manifest has its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from srl.base.files import read_regular, sync_directory, write_synced, write_whole
from srl.base.shared_memory import KeptFile, KeptMemory
from srl.base.tree import Array

FORMAT = "srl-replay-1"
MANIFEST = "manifest.json"
SUFFIX = ".safetensors"
SEGMENT_BYTES = 64 << 20
MAX_MANIFEST_BYTES = 64 << 20
SLOT, POOL, NUMBERS = "slot/", "pool/", "numbers/"  # kinds of arrays; see `Arena.array`
GENERATION, TRACK = "slot/generation", "slot/track"
INDEX = "index"  # array of a segment: the slots of its blocks


class Damaged(Exception):
    """A file of a saved replay is incomplete or corrupt."""


class _File(msgspec.Struct, frozen=True):
    name: str
    nbytes: int
    sha256: str
    last: int = 0  # highest generation of the blocks in a segment


class _Manifest(msgspec.Struct, frozen=True):
    layout: str  # of the kept memory
    identity: int  # of the kept memory
    num_writes: int = 0
    state: _File | None = None
    segments: tuple[_File, ...] = ()
    format: str = FORMAT
    sha256: str = ""  # of this manifest with an empty hash

    def sealed(self) -> _Manifest:
        plain = msgspec.structs.replace(self, sha256="")
        return msgspec.structs.replace(plain, sha256=hashlib.sha256(msgspec.json.encode(plain)).hexdigest())


@dataclass(frozen=True)
class ReplayArchive:
    """The saved replay of a run: all shards of all policies."""

    root: Path
    files: Mapping[str, KeptFile]  # policy -> its replay, which workers use at the same time

    def write(self) -> None:
        """Write what is new. Raises OSError; what was saved before then stays as it was."""
        for policy, file in self.files.items():
            used = [index for index in range(file.num_windows) if file.window(index).layout() is not None]
            for index in used:
                SavedShard(self.root / policy / str(index)).write(file.window(index))
            self._remove_others(policy, used)

    def _remove_others(self, policy: str, used: Sequence[int]) -> None:
        """Remove the shards of a group of trainers that was larger."""
        with contextlib.suppress(FileNotFoundError):
            for path in list((self.root / policy).iterdir()):
                if used and path.name not in map(str, used):
                    shutil.rmtree(path, ignore_errors=True)

    def fill(self) -> list[str]:
        """Fill the memory of the policies before their workers start. Return what could not be used, and why."""
        problems = []
        for policy, file in self.files.items():
            for path in sorted(self.root.glob(f"{policy}/*/{MANIFEST}")):
                if path.parent.name.isdecimal():
                    index = int(path.parent.name)
                    problems += SavedShard(path.parent).fill(file.window(index))
        return problems


def saved_shards(root: Path) -> dict[str, SavedShard]:
    """Return the shards below the `replay` directory of a run, by names such as `replay/policy/0`."""
    found = sorted(path.parent for path in root.glob(f"*/*/{MANIFEST}"))
    return {str(path.relative_to(root.parent)): SavedShard(path) for path in found}


class SavedShard:
    """The saved replay of one worker, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, kept: KeptMemory) -> None:
        """Write the blocks that are not saved yet, and everything that is not a block. A worker may write to `kept` at
        the same time: a block that it replaces meanwhile is left out."""
        arrays, layout, identity = kept.find(), kept.layout(), kept.identity
        if arrays is None or layout is None:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            known = self._read()
        except (Damaged, FileNotFoundError):
            known = None
        if known is None or (known.layout.encode(), known.identity) != (layout, identity):
            known = _Manifest(layout.decode(), identity)
        self._remove_others(known)
        own = _Arrays(arrays)
        generation = own.by_slot[GENERATION][:, 0].copy()
        oldest = int(generation.max()) - len(generation)  # what is not newer has been replaced
        segments = [segment for segment in known.segments if segment.last > oldest]
        saved = max((segment.last for segment in known.segments), default=0)
        new = np.flatnonzero(generation > saved)
        new = new[np.argsort(generation[new])]
        per_segment = max(1, SEGMENT_BYTES // own.slot_nbytes)
        for begin in range(0, len(new), per_segment):
            segment = self._write_segment(own, generation, new[begin : begin + per_segment], identity)
            segments += [segment] if segment is not None else []
        number = known.num_writes + 1
        state = self._write_file(
            f"{identity:014x}-state-{number}", {name: values.copy() for name, values in own.others.items()}
        )
        if (kept.layout(), kept.identity) != (layout, identity):
            return  # a worker has started over meanwhile
        written = _Manifest(layout.decode(), identity, number, state, tuple(segments)).sealed()
        sync_directory(self._directory)
        write_whole(self._directory / MANIFEST, msgspec.json.encode(written), sync=True)
        sync_directory(self._directory)
        self._remove_others(written)

    def _write_segment(self, arrays: _Arrays, generation: Array, slots: Array, identity: int) -> _File | None:
        rows = {name: array[slots] for name, array in arrays.by_slot.items()}
        found = arrays.pooled(rows)
        now = arrays.by_slot[GENERATION][slots, 0]
        unchanged = (now == generation[slots]) & (rows[GENERATION][:, 0] == now)
        if not unchanged.any():
            return None
        rows = {name: values[unchanged] for name, values in rows.items()}
        first, last = int(rows[GENERATION].min()), int(rows[GENERATION].max())
        name = f"{identity:014x}-blocks-{first}-{last}"
        return self._write_file(name, {INDEX: slots[unchanged], **rows, **found}, last)

    def _write_file(self, name: str, arrays: Mapping[str, Array], last: int = 0) -> _File:
        from safetensors.numpy import save

        content = save(dict(arrays))
        write_synced(self._directory / f"{name}{SUFFIX}", content)
        return _File(f"{name}{SUFFIX}", len(content), hashlib.sha256(content).hexdigest(), last)

    def _remove_others(self, manifest: _Manifest) -> None:
        """Remove files that the manifest does not list: replaced ones, and those of a writer that was killed."""
        listed = {file.name for file in (*manifest.segments, *([manifest.state] if manifest.state else []))}
        for path in list(self._directory.iterdir()):
            if path.suffix == SUFFIX and path.name not in listed:
                path.unlink(missing_ok=True)

    def fill(self, kept: KeptMemory) -> list[str]:
        """Fill memory before its worker starts. Return what could not be used, and why."""
        problems: list[str] = []
        try:
            manifest = self._read()
            kept.fill(
                manifest.layout.encode(), manifest.identity, lambda arrays: self._load(manifest, arrays, problems)
            )
        except (OSError, Damaged, ValueError) as error:
            problems.append(f"the saved replay in {self._directory} cannot be used: {error}")
        return problems

    def problems(self) -> list[str]:
        """Return what is wrong with the files."""
        try:
            manifest = self._read()
        except (OSError, Damaged) as error:
            return [str(error)]
        found = []
        for file in (*manifest.segments, *([manifest.state] if manifest.state else [])):
            try:
                self._verified(file)
            except (OSError, Damaged) as error:
                found.append(f"{file.name}: {error}")
        return found

    def _load(self, manifest: _Manifest, arrays: dict[str, Array], problems: list[str]) -> None:
        own = _Arrays(arrays)
        files = [(segment, own.set_blocks) for segment in manifest.segments]  # oldest first
        if manifest.state is not None:
            files.append((manifest.state, own.set_others))
        for file, set_arrays in files:
            try:
                set_arrays(self._verified(file))
            except (OSError, Damaged) as error:
                problems.append(f"{file.name} of the saved replay is skipped: {error}")
        # The names of this run's workers are those of the last one, whose tracks do not continue.
        own.by_slot[TRACK] ^= np.frombuffer(os.urandom(8), np.uint64)

    def _read(self) -> _Manifest:
        content = read_regular(self._directory / MANIFEST, MAX_MANIFEST_BYTES)
        try:
            manifest = msgspec.json.decode(content, type=_Manifest)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{MANIFEST} is corrupt: {error}") from error
        if manifest.format != FORMAT or manifest.sealed().sha256 != manifest.sha256:
            raise Damaged(f"{MANIFEST} is corrupt, or has another format than {FORMAT}")
        return manifest

    def _verified(self, file: _File) -> dict[str, Array]:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        if Path(file.name).name != file.name:
            raise Damaged("its name is a path")
        content = read_regular(self._directory / file.name, file.nbytes)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise Damaged("its SHA-256 differs from the manifest's")
        try:
            return dict(load(content))
        except SafetensorError as error:
            raise Damaged(str(error)) from error


class _Arrays:
    """The arrays of a memory, by the way in which they are saved."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        if GENERATION not in arrays or TRACK not in arrays:
            raise ValueError("the memory has no blocks")
        self.num_slots = len(arrays[GENERATION])
        self.by_slot = {n: array.reshape(self.num_slots, -1) for n, array in arrays.items() if n.startswith(SLOT)}
        self.pools = {name: array for name, array in arrays.items() if name.startswith(POOL)}
        self.others = {name: array for name, array in arrays.items() if not name.startswith((SLOT, POOL))}

    @property
    def slot_nbytes(self) -> int:
        """Maximum size of a slot in a segment."""
        pooled = sum(self.by_slot[SLOT + n.removeprefix(POOL)].shape[1] * a[0].nbytes for n, a in self.pools.items())
        return int(pooled + sum(array[0].nbytes for array in self.by_slot.values()))

    def pooled(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        """Return the numbers and rows of the pools that rows of slots refer to."""
        found = {}
        for name, pool in self.pools.items():
            numbers = np.unique(rows[SLOT + name.removeprefix(POOL)])
            found[NUMBERS + name.removeprefix(POOL)] = numbers
            found[name] = pool[numbers]
        return found

    def set_others(self, found: Mapping[str, Array]) -> None:
        for name, target in self.others.items():
            _check(name, found, target.shape, target)
        for name, target in self.others.items():
            target[...] = found[name]

    def set_blocks(self, found: Mapping[str, Array]) -> None:
        """Set the blocks of a segment, unless newer ones are in their slots."""
        slots = found.get(INDEX, np.zeros(0, np.int64))
        if not _in_range(slots, self.num_slots):
            raise Damaged("it has blocks outside of the memory")
        for name, target in self.by_slot.items():
            _check(name, found, (len(slots), *target.shape[1:]), target)
        for name, pool in self.pools.items():
            numbers = found.get(NUMBERS + name.removeprefix(POOL), np.zeros(0, np.int64))
            _check(name, found, (len(numbers), *pool.shape[1:]), pool)
            if not _in_range(numbers, len(pool)) or not _in_range(found[SLOT + name.removeprefix(POOL)], len(pool)):
                raise Damaged(f"{name} has rows outside of the memory")
            pool[numbers] = found[name]
        newer = found[GENERATION][:, 0] > self.by_slot[GENERATION][slots, 0]
        for name, target in self.by_slot.items():
            target[slots[newer]] = found[name][newer]


def _check(name: str, found: Mapping[str, Array], shape: tuple[int, ...], like: Array) -> None:
    if name not in found or found[name].shape != shape or found[name].dtype != like.dtype:
        raise Damaged(f"it has no {name} of the type {like.dtype} and the shape {shape}")


def _in_range(numbers: Array, end: int) -> bool:
    return numbers.size == 0 or bool(numbers.dtype.kind in "iu" and 0 <= numbers.min() <= numbers.max() < end)
