"""All runs below a root, those that ended, too: what `srl ps --all` shows."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from srl.storage.run_directory import RunDirectory, RunDirectoryError, all_runs

CLUSTER = "cluster"
"""Folder of a run that was handed over to Slurm: its `job`, and when it is over its `outcome.json`."""
TAIL_BYTES = 1 << 16
"""Of the metrics, within which the last line lies."""


class _End(msgspec.Struct):
    """What is wanted of status.json: the rest, which is much, is not even read. Of a run that was taken out of Slurm's
    queue there is only an outcome."""

    state: str
    steps: int = 0
    return_mean: float | None = None


@dataclass(frozen=True)
class Listed:
    """One run in a list."""

    run: str
    state: str
    """running | finished | stopped | failed | submitted (to Slurm), or `killed`: it is not going on, and never said
    how it ended."""
    steps: int
    return_mean: float | None
    when: float
    """The last sign of life, in seconds since the epoch."""
    path: str


def list_runs(root: Path) -> list[Listed]:
    """Oldest first, by their last sign of life. Reads the end of two files of each run, and asks nobody."""
    return sorted((_look_at(run) for run in all_runs(root)), key=lambda listed: listed.when)


def _look_at(run: RunDirectory) -> Listed:
    end = _end(run.status)
    if end is not None:
        return Listed(run.name, end.state, end.steps, end.return_mean, _changed(run.status), str(run.path))
    last = _last_record(run.metrics)
    state = "running" if _is_held(run) else _on_slurm(run) or "killed"
    steps, mean = last.get("step", 0), last.get("episodes/return_mean")
    return Listed(run.name, state, steps, mean, max(_changed(run.config), _changed(run.metrics)), str(run.path))


def _end(path: Path) -> _End | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_End)
    except (OSError, msgspec.MsgspecError):
        return None


def _on_slurm(run: RunDirectory) -> str:
    """The state of a run that was handed over and left no status; empty if it went on after that, or never was."""
    outcome = run.path / CLUSTER / "outcome.json"
    end = _end(outcome)
    if end is not None:
        return end.state if _changed(outcome) >= _changed(run.metrics) else ""
    return "submitted" if (run.path / CLUSTER / "job").exists() else ""


def _is_held(run: RunDirectory) -> bool:
    try:
        with run.held():
            return False
    except RunDirectoryError:
        return True


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _last_record(path: Path) -> dict[str, Any]:
    """The last whole line of a file that may be growing, or whose writer was killed."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            return record
    return {}


def moment(when: float) -> str:
    """`2026-01-31 23:59`"""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(when))
