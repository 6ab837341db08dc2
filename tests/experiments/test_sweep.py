"""Seed sweeps, sequential and in parallel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.api.status import RunStatus
from srl.cli.main import main
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session import sweep as module
from srl.experiments.session.sweep import num_parallel, parse_seeds, resume_sweep
from srl.results.plot import find_groups


def test_seeds_are_a_number_or_a_list() -> None:
    assert parse_seeds("3") == parse_seeds(3) == (0, 1, 2)
    assert parse_seeds("3,5,8") == parse_seeds([3, 5, 8]) == (3, 5, 8)
    for wrong in ("many", "0", "1,1", ""):
        with pytest.raises(ValueError, match="seed"):
            parse_seeds(wrong)


def test_the_number_of_parallel_runs_depends_on_cores() -> None:
    assert num_parallel(TrainOptions(), 5, 8) == 1  # by default a run uses all cores
    assert num_parallel(make_options(actors=1), 5, 8) == 4
    assert num_parallel(make_options(scheduler="inline"), 5, 8) == 5


@pytest.mark.parametrize("cores", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_sweep_trains_every_seed_and_reports_mean_and_interval(
    tmp_path: Path, cores: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: cores)
    words = ["train", "CartPole-v1", "--seeds", "4,7", "--steps", "12000", "--scheduler", "inline", "--name", "mine"]
    assert main([*words, "--root", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "95 % confidence interval over 2 seeds" in shown
    assert "srl plot" in shown
    seeds = [
        json.loads((tmp_path / "mine" / f"mine-{seed}" / "config.json").read_text())["options"]["fields"]["run"][
            "fields"
        ]["seed"]
        for seed in (4, 7)
    ]
    assert seeds == [4, 7]
    assert main(["eval", "mine", "--root", str(tmp_path)]) == 2
    assert "mine is a sweep of several runs; choose one of them: mine-4, mine-7" in capsys.readouterr().err
    if cores == 1:
        assert {line.split()[0] for line in shown.splitlines() if " steps " in line} == {"mine-4", "mine-7"}
        figure = srl.plot(tmp_path / "mine")
        assert "2 seeds" in str(figure.axes[0].lines[0].get_label())


def test_a_run_that_fails_is_named_and_ends_the_others(tmp_path: Path) -> None:
    options = make_options(scheduler="inline", batch=7)  # not a multiple of a block
    with pytest.raises(srl.RunFailed, match="seed 3 failed"):
        module.train_in_processes("CartPole-v1", [3], options, tmp_path, 2)


def test_an_interrupted_sweep_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: 1)

    def interrupt(status: RunStatus) -> None:
        if status.run == "mine-1" and status.state == "running":
            raise KeyboardInterrupt

    options: dict[str, Any] = {"steps": 256, "lanes": 4, "horizon": 16, "scheduler": "inline"}
    done = srl.sweep("CartPole-v1", 3, root=tmp_path, name="mine", on_status=interrupt, **options)
    assert {seed: status.state for seed, status in done.statuses.items()} == {0: "finished", 1: "stopped"}
    assert not done.complete
    first = (tmp_path / "mine" / "mine-0" / "metrics.jsonl").read_bytes()
    words = ["resume", "mine", "--root", str(tmp_path)]
    assert main([*words, "--steps", "512"]) == 2, "options of a sweep cannot change"
    assert main(words) == 0
    again = resume_sweep(tmp_path / "mine")
    assert again.complete
    assert all(status.steps >= 256 for status in again.statuses.values())
    assert (tmp_path / "mine" / "mine-0" / "metrics.jsonl").read_bytes() == first, "finished runs are unchanged"
    alone = srl.train("CartPole-v1", root=tmp_path, name="alone", seed=9, **options)
    (group,) = find_groups([tmp_path / "mine", alone.path])
    assert len(group.runs) == 4, "one of them was trained outside of the sweep"
    assert {run.read_config()["options"]["fields"]["run"]["fields"]["recipe"] for run in group.runs} == {
        "classic-control"
    }


def test_a_misspelled_environment_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no environment"):
        srl.sweep("CartPol-v1", 2, root=tmp_path)
    assert not list(tmp_path.iterdir())
