"""List of all runs below a root, as shown by `srl ps --all`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from srl.base.files import open_regular, read_regular
from srl.storage.curves import WINDOW, window_means
from srl.storage.run_directory import RunDirectory, all_runs, as_text
from srl.storage.run_ownership import is_owned

CLUSTER = "cluster"  # folder of a run submitted to Slurm, with its `job` and, once it has ended, `outcome.json`
RETURN, EVALUATED = "return", "eval/return"
MAX_STATUS_BYTES = 16 << 20
TAIL_BYTES = 1 << 16  # number of bytes read from the end of the metrics to find the last rows


class _PolicyResult(msgspec.Struct):
    return_mean: float | None = None


class _FinalStatus(_PolicyResult, kw_only=True):
    """Fields of status.json that are shown, or of outcome.json for a run canceled in Slurm's queue."""

    state: str
    steps: int = 0
    policies: dict[str, _PolicyResult] = {}


@dataclass(frozen=True)
class ListedRun:
    """One run in the list."""

    run: str
    state: str  # running | finished | stopped | failed | submitted (to Slurm) | killed (ended without a final status)
    steps: int
    return_mean: float | None
    when: float  # time of the last write, in seconds since the epoch
    path: str
    returns: dict[str, float | None] = field(default_factory=dict)
    """Policy -> mean return, in a run with several policies."""


def list_runs(root: Path) -> list[ListedRun]:
    """Return the runs below `root`, sorted by the time of their last write. Only reads files; contacts no process."""
    return sorted((listed(run) for run in all_runs(root)), key=lambda one: one.when)


def listed(run: RunDirectory) -> ListedRun:
    """Return what is known about a run from its last status or, if it has none, from the end of its metrics."""
    name, path = as_text(run.name), as_text(run.path)
    end = _final_status(run.status)
    if end is not None:
        when, returns = _changed(run.status), {name: policy.return_mean for name, policy in end.policies.items()}
        returns = returns if len(returns) > 1 else {}
        return ListedRun(name, end.state, end.steps, end.return_mean, when, path, returns)
    rows = _last_rows(run.metrics)
    state = "running" if is_owned(run.path) else _state_in_slurm(run) or "killed"
    steps = rows[-1]["step"] if rows else 0
    named = [name for row in rows for name in row if name.rpartition("/")[2] == RETURN and _is_number(row[name])]
    returns = {name: _recent(rows, name) for name in dict.fromkeys(named)}
    returns = {name.removesuffix(f"/{RETURN}"): v for name, v in returns.items() if not name.endswith(EVALUATED)}
    mean = returns.pop(RETURN, None)
    when = max(_changed(run.config), _changed(run.metrics))
    return ListedRun(name, state, steps, mean, when, path, returns)


def _final_status(path: Path) -> _FinalStatus | None:
    try:
        return msgspec.json.decode(read_regular(path, MAX_STATUS_BYTES), type=_FinalStatus)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _state_in_slurm(run: RunDirectory) -> str:
    """Return the state of a submitted run without a final status; empty if it was not submitted or has run since."""
    outcome = run.path / CLUSTER / "outcome.json"
    end = _final_status(outcome)
    if end is not None:
        return end.state if _changed(outcome) >= _changed(run.metrics) else ""
    return "submitted" if (run.path / CLUSTER / "job").exists() else ""


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _recent(rows: list[dict[str, Any]], name: str) -> float:
    """Return a mean over the last episodes."""
    found = [row for row in rows if _is_number(row.get(name))]
    counts = [row.get(f"{name.removesuffix(RETURN)}episodes", WINDOW) for row in found]
    return window_means([row[name] for row in found], [n if _is_number(n) else WINDOW for n in counts])[-1]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def _last_rows(path: Path) -> list[dict[str, Any]]:
    """Return the last complete rows of a file whose writer is active or was killed."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and _is_number(row.get("step")):
            rows.append(row)
    return rows
