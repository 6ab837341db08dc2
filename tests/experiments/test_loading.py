"""Which checkpoint is meant."""

from pathlib import Path

import numpy as np
import pytest

from srl.experiments.loading import choose_checkpoint
from srl.runs import checkpoints
from srl.runs.directory import create


def test_a_checkpoint_is_chosen_by_age_by_score_by_step_and_by_path(tmp_path: Path) -> None:
    run = create(tmp_path, "run")
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        choose_checkpoint(run, "latest")
    first, second = (checkpoints.write(run.checkpoints, step, {"a": np.zeros(1)}, {}) for step in (100, 200))
    assert choose_checkpoint(run, "latest") == second
    assert choose_checkpoint(run, 100) == choose_checkpoint(run, "100") == choose_checkpoint(run, first) == first
    with pytest.raises(ValueError, match=r"no checkpoint of step 150 is kept in .*; there are 100, 200"):
        choose_checkpoint(run, 150)
    best = checkpoints.write(run.checkpoints / checkpoints.BEST, 150, {"a": np.zeros(1)}, {})
    assert choose_checkpoint(run, "best") == best
    assert choose_checkpoint(run, "latest") == second
