"""Checkpoints: arrays and facts of one moment, whole or not there, and known to be unharmed when read.

`checkpoints/0007-step-131072/` holds arrays.safetensors, facts.json, workers.safetensors with all that was under way
(where a run can be resumed exactly) and, written last, manifest.json with the size and SHA-256 of the others and of
itself. The number in front counts writes: the newest has the highest, also when a run went back to an older one.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from srl.base.files import sync_directory, write_synced
from srl.base.tree import Array
from srl.storage.disk import explain

FORMAT = "srl-checkpoint-1"
ARRAYS, FACTS, WORKERS, MANIFEST = "arrays.safetensors", "facts.json", "workers.safetensors", "manifest.json"
BEST = "best"
"""A folder below a run's checkpoints, where evaluation keeps the best parameters. The optimizer's state of that version
is gone by the time its score is known, so a run does not resume from there."""
SCORE = "score"
"""The fact by which checkpoints are compared."""
NAME = re.compile(r"(\d{4,})-step-(\d+)")
WRITING = re.compile(r"\.(?:writing|removing)-(\d+)-.*")


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written, found or trusted."""


@dataclass(frozen=True)
class Keep:
    """Which checkpoints stay when a new one is written: the newest, the best, and one every so many steps."""

    last: int | None = 3
    """So many of the newest; None: all."""
    every: int = 0
    """Also the first one at or after every multiple of so many steps; 0: none."""
    best: bool = True
    """Also the one with the highest score."""

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise ValueError(f"keep_last={self.last}, but the newest checkpoint always stays: use 1 or more")
        if self.every < 0:
            raise ValueError(f"keep_every={self.every}; use a number of steps, or 0 for none")

    def spared(self, known: Sequence[Path]) -> set[Path]:
        """Those of `known` (oldest first) that stay."""
        if self.last is None:
            return set(known)
        spared = set(known[-self.last :])
        passed = 0
        for path in known if self.every else ():
            if (milestone := step_of(path) // self.every) > passed:
                passed = milestone
                spared.add(path)
        winner = best_of(known) if self.best else None
        return spared | ({winner} if winner is not None else set())


def write(
    root: Path,
    step: int,
    arrays: Mapping[str, Array],
    facts: Mapping[str, Any],
    keep: Keep = Keep(),
    workers: Mapping[str, Array] | None = None,
) -> Path:
    """A new checkpoint below `root`, durable when this returns; of the former ones those stay that `keep` spares.

    Where it fails, the former checkpoints are as they were.
    """
    files = {ARRAYS: _pack(arrays), FACTS: (json.dumps(dict(facts), indent=2) + "\n").encode()}
    if workers is not None:
        files[WORKERS] = _pack(workers)
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        serial = max((_serial(path) for path in checkpoints(root)), default=0) + 1
        path = root / f"{serial:04d}-step-{step}"
        temporary = root / f".writing-{os.getpid()}-{path.name}"
        try:
            _write_files(temporary, step, files)
            os.rename(temporary, path)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(root)
    except OSError as error:
        former = checkpoints(root)
        kept = f"the former ones are untouched, the newest is {former[-1]}" if former else "there is no former one"
        raise CheckpointError(
            f"cannot write the checkpoint of step {step} below {root}: {explain(error)}; {kept}"
        ) from error
    known = checkpoints(root)
    spared = keep.spared(known)
    _remove([path for path in known if path not in spared])
    return path


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Arrays and facts of the checkpoint at `path`, after every byte of it was verified."""
    try:
        return _read(path)
    except _HarmedError as error:
        good = last_good(path.parent, besides=path)
        offer = f"the last good one is {good}" if good else f"there is no good one in {path.parent}"
        raise CheckpointError(f"checkpoint {path} cannot be used: {error}; {offer}") from error


def policies_in(path: Path, facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the policies of a run's checkpoint are, by its facts: it knows that itself, so that it can be used wherever
    it was copied to."""
    described = facts.get("description")
    if not isinstance(described, Mapping) or not isinstance(facts.get("policies"), Mapping):
        raise CheckpointError(f"{path} does not say which policies it holds: it is no checkpoint of a training run")
    return described


def read_workers(path: Path) -> dict[str, Array] | None:
    """What workers had under way, verified; None where it was not kept. Read the checkpoint itself before."""
    from safetensors.numpy import load

    files = json.loads(_content(path / MANIFEST))["files"]
    if WORKERS not in files:
        return None
    try:
        content = _verified(path / WORKERS, files[WORKERS]["bytes"], files[WORKERS]["sha256"])
    except _HarmedError as error:
        raise CheckpointError(f"checkpoint {path} cannot be resumed from: {error}") from error
    return {key: _writable(array) for key, array in load(content).items()}


def is_checkpoint(path: Path) -> bool:
    """Does this directory look like one, wherever it lies?"""
    return (path / MANIFEST).is_file()


def checkpoints(root: Path) -> list[Path]:
    """All checkpoints below `root` by name, oldest first; none of them verified."""
    try:
        return sorted((path for path in root.iterdir() if NAME.fullmatch(path.name)), key=_serial)
    except (FileNotFoundError, NotADirectoryError):
        return []


def latest(root: Path) -> Path | None:
    """The newest checkpoint, not verified: :func:`read` does that."""
    found = checkpoints(root)
    return found[-1] if found else None


def best(root: Path) -> Path | None:
    """The checkpoint with the highest score, the newest of several; None where none has one. Not verified."""
    return best_of(checkpoints(root))


def best_of(known: Sequence[Path]) -> Path | None:
    scores: list[tuple[float, int, Path]] = []
    for path in known:
        try:
            score = json.loads((path / FACTS).read_bytes())[SCORE]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # an old or harmed one: who reads it will be told
        if isinstance(score, (int, float)) and math.isfinite(score):
            scores.append((score, _serial(path), path))
    return max(scores)[2] if scores else None


def last_good(root: Path, besides: Path | None = None) -> Path | None:
    """The newest checkpoint that is whole and unharmed."""
    for path in reversed(checkpoints(root)):
        if path != besides:
            try:
                _read(path)
            except _HarmedError:
                continue
            return path
    return None


def step_of(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path} is not named like a checkpoint, e.g. 0007-step-131072")
    return int(match[2])


class _HarmedError(Exception):
    """What is wrong with one checkpoint."""


def _pack(arrays: Mapping[str, Array]) -> bytes:
    from safetensors.numpy import save

    for key, array in arrays.items():
        if key == "__metadata__" or np.asarray(array).dtype.kind not in "biuf":
            raise ValueError(
                f"checkpoints hold arrays of numbers; {key!r} of {np.asarray(array).dtype} is not possible"
            )
    # `order="C"` and not `ascontiguousarray`, which gives scalars an axis.
    return bytes(save({key: np.asarray(array, order="C") for key, array in arrays.items()}))


def _write_files(directory: Path, step: int, files: dict[str, bytes]) -> None:
    directory.mkdir()
    listed = {}
    for name, content in files.items():
        write_synced(directory / name, content)
        listed[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_synced(directory / MANIFEST, _manifest({"format": FORMAT, "step": step, "files": listed}))
    sync_directory(directory)


def _manifest(body: dict[str, Any]) -> bytes:
    """The manifest's one possible form, so that any changed byte shows."""
    seal = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "sha256": seal}, indent=2, sort_keys=True) + "\n").encode()


def _read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not path.is_dir():
        raise _HarmedError("it does not exist" if not path.exists() else "it is not a directory")
    content = _content(path / MANIFEST)
    try:
        body = json.loads(content)
        del body["sha256"]
        if body["format"] != FORMAT:
            raise _HarmedError(f"its format is {body['format']!r}, this version reads {FORMAT!r}")
        listed = {name: (body["files"][name]["bytes"], body["files"][name]["sha256"]) for name in (ARRAYS, FACTS)}
        genuine = _manifest(body) == content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _HarmedError(f"{MANIFEST} is corrupt or not ours") from error
    if not genuine:
        raise _HarmedError(f"{MANIFEST} is corrupt: it does not match its own SHA-256")
    files = {name: _verified(path / name, nbytes, sha256) for name, (nbytes, sha256) in listed.items()}
    try:
        arrays = {key: _writable(array) for key, array in load(files[ARRAYS]).items()}
        facts = json.loads(files[FACTS])
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _HarmedError(f"its files are as written, but cannot be decoded: {error}") from error
    return arrays, facts


def _verified(file: Path, nbytes: int, sha256: str) -> bytes:
    content = _content(file)
    if len(content) != nbytes:
        raise _HarmedError(f"{file.name} has {len(content)} bytes instead of {nbytes}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _HarmedError(f"{file.name} is corrupt: its SHA-256 differs from the manifest's")
    return content


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise _HarmedError(f"{file.name} is missing") from error
    except OSError as error:
        raise _HarmedError(f"{file.name} cannot be read: {error.strerror}") from error


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()


def _serial(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else 0


def _remove(paths: list[Path]) -> None:
    """Renamed first, so that no half of one is seen; what cannot be removed now is swept by a later write."""
    for path in paths:
        doomed = path.with_name(f".removing-{os.getpid()}-{path.name}")
        try:
            os.rename(path, doomed)
        except OSError:
            continue
        shutil.rmtree(doomed, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what writers that died in the middle left behind."""
    for path in root.iterdir():
        match = WRITING.fullmatch(path.name)
        if match and (int(match[1]) == os.getpid() or not _alive(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
