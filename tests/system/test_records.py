"""The record of a run is complete and exact: a row for every update, and every episode of its samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import srl
from srl.cli.main import main

OPTIONS: dict[str, Any] = {
    "scheduler": "inline",
    "lanes": 8,
    "horizon": 32,
    "batch": 256,
    "sinks": (),
    "recipe": "none",
}


def test_every_update_has_a_row_and_every_decision_is_in_an_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = "srl.testing.environments:Tracer"
    run = srl.train(env, env_args={"length": 5}, steps=2000, root=tmp_path, name="run", **OPTIONS)
    metrics, episodes = run.metrics(), srl.load_run("run", tmp_path).episodes()
    assert metrics["update"].tolist() == list(range(1, run.status.version + 1))
    assert metrics["step"].tolist()[-1] == run.status.steps
    for update, count, mean in zip(metrics["update"], metrics["episodes"], metrics["return"], strict=True):
        own = episodes["return"][episodes["update"] == update]
        assert len(own) == count
        assert np.isnan(mean) if not count else own.mean() == pytest.approx(mean)
    # A lane acts in five of six rows. In the rows of all blocks, its last episode is unfinished.
    num_rows = 32 * run.status.version
    assert set(episodes["length"]) == {5.0}
    assert np.bincount(episodes["lane"]).tolist() == [(num_rows + 1) // 6] * 8
    assert episodes["length"].sum() + 8 * (num_rows % 6) == run.status.steps
    assert num_rows % 6 < 5, "otherwise the last episode is finished"

    assert main(["episodes", "run", "--root", str(tmp_path), "--out", str(tmp_path / "e.csv")]) == 0
    assert len((tmp_path / "e.csv").read_text().splitlines()) == len(episodes["return"]) + 1
    assert main(["episodes", "run", "--root", str(tmp_path)]) == 0
    assert f"policy: {len(episodes['return']):,} episodes" in capsys.readouterr().out

    (run.path / "status.json").rename(run.path / "kept.json")
    killed = srl.load_run(run.path)
    assert (killed.state, killed.status.steps) == ("killed", run.status.steps)
    assert killed.status.return_mean == pytest.approx(run.status.return_mean)
    (run.path / "kept.json").rename(run.path / "status.json")

    srl.resume(run.path, steps=2500)
    again = srl.load_run(run.path)
    assert again.metrics()["update"].tolist() == list(range(1, again.status.version + 1))
    assert again.episodes()["return"][: len(episodes["return"])].tolist() == episodes["return"].tolist()
