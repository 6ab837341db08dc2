"""Runs on disk, for reading their metrics and episodes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from srl.api.status import RunStatus
from srl.experiments.session.run import Run
from srl.storage import ROOT, run_directory
from srl.storage.run_ownership import is_owned


def load_run(run: str | Path, root: str | Path = ROOT) -> Run:
    """Return a run, to read its metrics and episodes. `run` is its path, its name, a unique prefix of its name, or
    `latest`. A run that has not ended is `running` or `killed`, and its status has only names."""
    found = run_directory.find(run, Path(root))
    try:
        status = msgspec.json.decode(found.status.read_bytes(), type=RunStatus)
    except FileNotFoundError:
        config = found.read_raw_config()
        state = "running" if is_owned(found.path) else "killed"
        status = RunStatus(found.name, str(config.get("environment", "")), "", str(found.path), state=state)
    return Run(found.path, status.state, status.reason, status)
