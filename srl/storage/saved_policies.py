"""Policies in checkpoints: choosing a checkpoint, and reading a policy from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srl.api.algorithm import AlgorithmConfig
from srl.api.spaces import Space
from srl.base.config import from_data
from srl.base.errors import did_you_mean, nearest
from srl.base.tree import Array
from srl.storage import ROOT, checkpoints, run_directory
from srl.storage.run_directory import RunDirectory


@dataclass(frozen=True)
class SavedPolicy:
    """One policy of a checkpoint, usable without the run directory."""

    name: str
    algorithm: AlgorithmConfig
    observation: Space
    action: Space
    parameters: Array
    metadata: Mapping[str, Any]  # `version`, `steps` and others, as of when it was saved


def find_checkpoint(path: str | Path, checkpoint: str | int | Path) -> Path:
    """Return `path` if it is a checkpoint, else the chosen checkpoint of the run with this path or name."""
    if checkpoints.is_checkpoint(Path(path)):
        return Path(path)
    return choose_checkpoint(run_directory.find(path, ROOT), checkpoint)


def choose_checkpoint(run: RunDirectory, which: str | int | Path) -> Path:
    """Return a run's checkpoint: `latest`, `best`, a number of steps, or a path. Raises ValueError if unknown."""
    known = checkpoints.checkpoints(run.checkpoints)
    if not known:
        raise FileNotFoundError(f"{run.path} has no checkpoint yet")
    if which == "latest":
        return known[-1]
    if which == "best":
        return checkpoints.latest(run.checkpoints / checkpoints.BEST) or checkpoints.best_of(known) or known[-1]
    if isinstance(which, Path) or not str(which).isdigit():
        path = Path(str(which))
        if not path.exists():
            close = did_you_mean(str(which), ("latest", "best"))
            raise ValueError(f"no checkpoint '{which}'{close or '.'} Use latest, best, a number of steps, or a path")
        return path
    steps = {checkpoints.step_of(path): path for path in known}
    if int(which) not in steps:
        existing = ", ".join(f"{step:,}" for step in steps)
        raise ValueError(f"{run.checkpoints} has no checkpoint of step {int(which):,}; it has {existing}")
    return steps[int(which)]


def read_policy(source: Path, policy: str = "", or_only: bool = False) -> SavedPolicy:
    """Read a policy from a checkpoint (default: the first). With `or_only`, a single policy may have any name."""
    arrays, metadata = checkpoints.read(source)
    described = checkpoints.policies_in(source, metadata)
    name = policy or next(iter(described))
    if name not in described and or_only and len(described) == 1:
        name = next(iter(described))
    if name not in described:
        others = f"; it has {', '.join(described)}"
        raise ValueError(f"{source} has no policy {name!r}{nearest(name, described) or others}")
    parts = {part: from_data(described[name][part]) for part in ("algorithm", "observation", "action")}
    return SavedPolicy(name, **parts, parameters=arrays[f"{name}/parameters"], metadata=metadata["policies"][name])
