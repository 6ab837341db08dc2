"""Runs on disk, for reading their metrics and episodes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from srl.api.status import PolicyStatus, RunStatus
from srl.experiments.session.run import Run
from srl.storage import ROOT, run_directory
from srl.storage.run_listing import listed


def load_run(run: str | Path, root: str | Path = ROOT) -> Run:
    """Return a run, to read its metrics and episodes. `run` is its path, its name, a unique prefix of its name, or
    `latest`. A run that has not ended is `running` or `killed`. Its status has the steps and the mean return so far."""
    found = run_directory.find(run, Path(root))
    try:
        status = msgspec.json.decode(found.status.read_bytes(), type=RunStatus)
    except FileNotFoundError:
        config = found.read_raw_config()
        so_far = listed(found)
        status = RunStatus(
            found.name,
            str(config.get("environment", "")),
            "",
            str(found.path),
            state=so_far.state,
            steps=so_far.steps,
            return_mean=so_far.return_mean,
            policies={name: PolicyStatus(return_mean=mean) for name, mean in so_far.returns.items()},
        )
    return Run(found.path, status.state, status.reason, status)
