"""Verification of a run's files: whether they are complete, and who signed them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from srl.storage import checkpoints
from srl.storage.run_directory import RunDirectory, RunDirectoryError
from srl.storage.signatures import Signed, has_signature, own_key, signature_of


@dataclass(frozen=True)
class VerifiedFile:
    """The config.json of a run or one of its checkpoints."""

    path: Path
    problem: str  # what is wrong with its content; empty if nothing is
    signed: Signed | None  # the valid signature, if there is one
    has_hashes: bool = True  # whether a change would be noticed without a signature

    def is_signed_by(self, key: str) -> bool:
        return self.signed is not None and self.signed.key == key

    def describe(self) -> str:
        """Return a line about the file: `0007-step-131072: undamaged, signed by you`."""
        if self.problem:
            return f"{self.path.name}: {self.problem}"
        state = "undamaged" if self.has_hashes or self.signed is not None else "readable"
        return f"{self.path.name}: {state}, {self._signer()}"

    def _signer(self) -> str:
        if self.signed is None:
            return "not signed"
        signer = "you" if self.signed.key == own_key() else f"the key {self.signed.key}"
        directory = self.path if self.path.is_dir() else self.path.parent
        moved = self.signed.directory != os.path.realpath(directory)
        return f"signed by {signer}" + (
            f" in {self.signed.directory}, from where it was moved or copied" if moved else ""
        )


def verify(path: Path) -> list[VerifiedFile]:
    """Verify a checkpoint directory, or the config and all checkpoints of a run directory."""
    if checkpoints.is_checkpoint(path):
        return [_checkpoint(path)]
    run = RunDirectory(path)
    best = checkpoints.checkpoints(run.checkpoints / checkpoints.BEST)
    found = [_checkpoint(each) for each in (*checkpoints.checkpoints(run.checkpoints), *best)]
    try:
        run.read_config()
        config = _signed(run.config, run.config, has_hashes=False)
    except RunDirectoryError as error:
        config = VerifiedFile(run.config, str(error), None)
    return [config, *found]


def _checkpoint(path: Path) -> VerifiedFile:
    try:
        checkpoints.read(path)
    except checkpoints.CheckpointError as error:
        return VerifiedFile(path, str(error), None)
    return _signed(path, path / checkpoints.MANIFEST, has_hashes=True)


def _signed(path: Path, file: Path, has_hashes: bool) -> VerifiedFile:
    signed = signature_of(file, file.read_bytes())
    problem = "changed after it was signed" if signed is None and has_signature(file) else ""
    return VerifiedFile(path, problem, signed, has_hashes)
