"""Checkpoints: arrays and metadata from one moment of a run, written atomically and verified when read.

`checkpoints/0007-step-131072/` contains arrays.safetensors, facts.json, workers.safetensors with the state of all
workers (if the run can be resumed exactly) and, written last, manifest.json with the sizes and SHA-256 hashes of the
other files and its own hash. The first number counts writes: the newest checkpoint has the highest, even if the run was
resumed from an older one. A damaged checkpoint that a resumed run passed over is kept as `damaged-0007-step-131072`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from srl.base.config import parse_json
from srl.base.files import explain_os_error, read_regular, sync_directory, write_synced
from srl.base.tree import Array
from srl.storage import signatures

FORMAT = "srl-checkpoint-1"
ARRAYS, METADATA, WORKERS, MANIFEST = "arrays.safetensors", "facts.json", "workers.safetensors", "manifest.json"
BEST = "best"
"""Folder, below a run's checkpoints, with the parameters that scored best in an evaluation. The optimizer state of that
version is gone by the time the score is known, so runs do not resume from it."""
SCORE = "score"  # metadata key by which checkpoints are compared
BY = "by"  # metadata key of a policy in the best checkpoint: the statistic that is its score
MAX_MANIFEST_BYTES = 1 << 20
NAME = re.compile(r"(\d{4,})-step-(\d+)")
ASIDE = "damaged-"  # prefix of the name of a damaged checkpoint that was replaced by an older one
WRITING = re.compile(r"\.(?:writing|removing)-(\d+)-.*")


class CheckpointError(RuntimeError):
    """A checkpoint cannot be written, cannot be found, or cannot be read."""


class DamagedCheckpoint(CheckpointError):
    """A checkpoint whose files are incomplete or corrupt. The first argument is the message, `reason` its cause."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Retention:
    """Rule for which checkpoints to keep when a new one is written. The one with the highest score is always kept."""

    last: int | None = 3  # number of newest checkpoints to keep; None keeps all
    every: int = 0  # also keep the first checkpoint at or after each multiple of this number of steps; 0 keeps none

    def __post_init__(self) -> None:
        if self.last is not None and self.last < 1:
            raise ValueError(f"keep_last={self.last}, but the newest checkpoint is always kept: use 1 or more")
        if self.every < 0:
            raise ValueError(f"keep_every={self.every}; use a number of steps, or 0 for none")

    def kept(self, known: Sequence[Path]) -> set[Path]:
        """Return the checkpoints to keep out of `known` (oldest first)."""
        if self.last is None:
            return set(known)
        kept = set(known[-self.last :])
        passed = 0
        for path in known if self.every else ():
            if (milestone := step_of(path) // self.every) > passed:
                passed = milestone
                kept.add(path)
        highest = best_of(known)
        return kept if highest is None else kept | {highest}


def write(
    root: Path,
    step: int,
    arrays: Mapping[str, Array],
    metadata: Mapping[str, Any],
    retention: Retention = Retention(),
    workers: Mapping[str, Array] | None = None,
    check: Callable[[], None] = lambda: None,
    own: bool = True,
) -> Path:
    """Write a checkpoint durably below `root`, and remove those that `retention` does not keep. Sign it if it belongs
    to the user's `own` run.

    If writing fails, or `check` raises an OSError before the checkpoint becomes visible, earlier checkpoints are
    untouched.
    """
    files = {ARRAYS: _pack(arrays), METADATA: (json.dumps(dict(metadata), indent=2) + "\n").encode()}
    if workers is not None:
        files[WORKERS] = _pack(workers)
    path = _add(root, step, lambda directory: _write_files(directory, step, files), signed=own, check=check)
    known = checkpoints(root)
    kept = retention.kept(known)
    _remove([path for path in known if path not in kept])
    return path


def copy_as_newest(source: Path, root: Path) -> Path:
    """Copy a verified checkpoint, so that it is the newest one below `root`. Returns the path of the copy."""

    def copy(directory: Path) -> None:
        directory.mkdir()
        for name in (*manifest["files"], MANIFEST):
            write_synced(directory / name, (source / name).read_bytes())
        sync_directory(directory)

    manifest = json.loads(_content(source / MANIFEST))
    return _add(root, manifest["step"], copy, signed=is_own(source))


def _add(
    root: Path, step: int, fill: Callable[[Path], None], signed: bool, check: Callable[[], None] = lambda: None
) -> Path:
    """Add a checkpoint, whose files `fill` writes, with the next number, if `check` does not raise an OSError. Sign it
    as the user's own if `signed`."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(root)
        serial = max((_serial(path) for path in root.iterdir()), default=0) + 1
        path = root / f"{serial:04d}-step-{step}"
        temporary = root / f".writing-{os.getpid()}-{path.name}"
        try:
            fill(temporary)
            if signed:
                signatures.sign(temporary / MANIFEST, (temporary / MANIFEST).read_bytes(), directory=path)
            check()
            os.rename(temporary, path)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(root)
    except OSError as error:
        earlier = checkpoints(root)
        state = f"earlier ones are untouched, the newest is {earlier[-1]}" if earlier else "there is no earlier one"
        raise CheckpointError(
            f"cannot write the checkpoint of step {step} below {root}: {explain_os_error(error)}; {state}"
        ) from error
    return path


def read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return the arrays and metadata of the checkpoint at `path`, verifying every byte."""
    try:
        return _read(path)
    except _DamagedError as error:
        good = last_good(path.parent, except_for=path)
        offer = f"the last good one is {good}" if good else f"there is no good one in {path.parent}"
        raise DamagedCheckpoint(f"checkpoint {path} cannot be used: {error}; {offer}", str(error)) from error


def set_aside(path: Path) -> str:
    """Rename a damaged checkpoint, so that nothing uses or removes it. Returns a description of what was done."""
    try:
        os.rename(path, path.with_name(f"{ASIDE}{path.name}"))
        return f"it was renamed to {ASIDE}{path.name}"
    except OSError as error:
        return f"it could not be renamed: {explain_os_error(error)}"


def policies_in(path: Path, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the policy descriptions in a checkpoint, which make it usable without its run."""
    try:
        facts = msgspec.convert(metadata, _Facts)
    except (msgspec.ValidationError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a checkpoint of a training run: {error}") from error
    if not facts.description or facts.description.keys() != facts.policies.keys():
        raise CheckpointError(f"{path} does not describe its policies: it is not a checkpoint of a training run")
    return facts.description


def is_own(path: Path) -> bool:
    """Return whether a run of this user wrote the checkpoint to this directory."""
    try:
        return signatures.is_own(path / MANIFEST, _content(path / MANIFEST))
    except _DamagedError:
        return False


def read_workers(path: Path) -> dict[str, Array] | None:
    """Return the verified worker state, or None if it was not saved. Call :func:`read` first to verify the manifest."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    files = json.loads(_content(path / MANIFEST))["files"]
    if WORKERS not in files:
        return None
    try:
        content = _verified(path / WORKERS, files[WORKERS]["bytes"], files[WORKERS]["sha256"])
        return {key: _writable(array) for key, array in load(content).items()}
    except (_DamagedError, SafetensorError, *_MALFORMED) as error:
        raise CheckpointError(f"checkpoint {path} cannot be resumed from: {error}") from error


def is_checkpoint(path: Path) -> bool:
    """Return whether this directory looks like a checkpoint."""
    return (path / MANIFEST).is_file()


def checkpoints(root: Path) -> list[Path]:
    """Return all checkpoints below `root`, oldest first, without verifying them."""
    try:
        return sorted((path for path in root.iterdir() if NAME.fullmatch(path.name)), key=_serial)
    except (FileNotFoundError, NotADirectoryError):
        return []


def latest(root: Path) -> Path | None:
    """Return the newest checkpoint without verifying it, or None; :func:`read` verifies it."""
    found = checkpoints(root)
    return found[-1] if found else None


def best_of(known: Sequence[Path]) -> Path | None:
    """Return the checkpoint with the highest score (the newest in a tie), unverified; None if none has a score."""
    scores: list[tuple[float, int, Path]] = []
    for path in known:
        try:
            score = json.loads((path / METADATA).read_bytes())[SCORE]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # old or damaged: reading it will raise
        if isinstance(score, (int, float)) and math.isfinite(score):
            scores.append((score, _serial(path), path))
    return max(scores)[2] if scores else None


def kept_best(root: Path) -> dict[str, tuple[str, float, int]]:
    """Return, unverified, the policies of the best checkpoint of a run with checkpoints below `root`: the statistic by
    which each was chosen, its score and its step. Empty if no evaluation was the best so far."""
    path = latest(root / BEST)
    try:
        policies = json.loads((path / METADATA).read_bytes())["policies"] if path is not None else {}
        return {
            name: (str(one.get(BY, "return")), float(one[SCORE]), int(one["steps"])) for name, one in policies.items()
        }
    except (OSError, *_MALFORMED):
        return {}


def last_good(root: Path, except_for: Path | None = None) -> Path | None:
    """Return the newest checkpoint all of whose files are complete and undamaged."""
    for path in reversed(checkpoints(root)):
        if path != except_for:
            try:
                _read(path)
            except (_DamagedError, CheckpointError):
                continue
            return path
    return None


def step_of(path: Path) -> int:
    match = NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path} is not named like a checkpoint, e.g. 0007-step-131072")
    return int(match[2])


class _DamagedError(Exception):
    """A checkpoint is damaged; the message says how."""


_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors that the content of a hostile file can cause while it is decoded."""
_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


class _PolicyFacts(msgspec.Struct):
    version: _Count
    steps: _Count


class _Facts(msgspec.Struct):
    """Metadata that readers of checkpoints rely on."""

    policies: dict[str, _PolicyFacts]
    description: dict[str, dict[str, Any]]
    episodes: dict[str, Any] = {}
    graph: str = ""
    why_not_exact: str = ""


def _pack(arrays: Mapping[str, Array]) -> bytes:
    from safetensors.numpy import save

    for key, array in arrays.items():
        if key == "__metadata__" or np.asarray(array).dtype.kind not in "biuf":
            raise ValueError(
                f"a checkpoint can only store arrays of numbers; {key!r} has the dtype {np.asarray(array).dtype}"
            )
    # Not `ascontiguousarray`, which would give scalars an axis.
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
    """Return the only valid encoding of a manifest, so that any changed byte is detected."""
    seal = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "sha256": seal}, indent=2, sort_keys=True) + "\n").encode()


def _read(path: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if not path.is_dir():
        raise _DamagedError("it does not exist" if not path.exists() else "it is not a directory")
    content = _content(path / MANIFEST)
    try:
        body = parse_json(content, MANIFEST)
        del body["sha256"]
        names = {ARRAYS, METADATA, *body["files"]}
        listed = {name: (body["files"][name]["bytes"], body["files"][name]["sha256"]) for name in names}
        intact = _manifest(body) == content and names <= {ARRAYS, METADATA, WORKERS}
        intact = intact and isinstance(body["step"], int) and body["step"] >= 0
    except _MALFORMED as error:
        raise _DamagedError(f"{MANIFEST} is corrupt or was not written by SRL") from error
    if not intact:
        raise _DamagedError(f"{MANIFEST} is corrupt: it does not match its own SHA-256")
    if body.get("format") != FORMAT:
        raise CheckpointError(f"checkpoint {path} has the format {body.get('format')!r}; this version reads {FORMAT!r}")
    files = {name: _verified(path / name, nbytes, sha256) for name, (nbytes, sha256) in listed.items()}
    try:
        arrays = {key: _writable(array) for key, array in load(files[ARRAYS]).items()}
        metadata = parse_json(files[METADATA], METADATA)
    except (SafetensorError, *_MALFORMED) as error:
        raise _DamagedError(f"its files are intact but cannot be decoded: {error}") from error
    return arrays, metadata


def _verified(file: Path, nbytes: int, sha256: str) -> bytes:
    if not isinstance(nbytes, int) or not isinstance(sha256, str):
        raise _DamagedError(f"{MANIFEST} has no size and hash of {file.name}")
    content = _content(file, nbytes)
    if len(content) != nbytes:
        raise _DamagedError(f"{file.name} has {len(content)} bytes instead of {nbytes}")
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _DamagedError(f"{file.name} is corrupt: its SHA-256 differs from the manifest's")
    return content


def _content(file: Path, nbytes: int = MAX_MANIFEST_BYTES) -> bytes:
    try:
        return read_regular(file, nbytes)
    except FileNotFoundError as error:
        raise _DamagedError(f"{file.name} is missing") from error
    except OSError as error:
        if error.errno in (errno.EIO, errno.EFBIG, errno.EINVAL):  # the disk lost it, or it is not what we wrote
            raise _DamagedError(f"{file.name} cannot be read: {error.strerror}") from error
        raise CheckpointError(f"{file} cannot be read: {explain_os_error(error)}") from error


def _writable(array: Array) -> Array:
    return array if array.flags.writeable else array.copy()


def _serial(path: Path) -> int:
    match = NAME.fullmatch(path.name.removeprefix(ASIDE))
    return int(match[1]) if match else 0


def _remove(paths: list[Path]) -> None:
    """Remove checkpoints. Each is renamed first, so that readers never see a partial one. The next write retries."""
    for path in paths:
        renamed = path.with_name(f".removing-{os.getpid()}-{path.name}")
        try:
            os.rename(path, renamed)
        except OSError:
            continue
        shutil.rmtree(renamed, ignore_errors=True)


def _remove_leftovers(root: Path) -> None:
    """Remove partial checkpoints left by writers that died."""
    import psutil

    for path in root.iterdir():
        match = WRITING.fullmatch(path.name)
        if match and (int(match[1]) == os.getpid() or not psutil.pid_exists(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)
