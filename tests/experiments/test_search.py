"""Searches with Optuna: values that runs report, pruning, and continuation."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import srl
from srl.api.status import RunStatus
from srl.cli.main import main
from srl.experiments.options.keywords import make_options
from srl.experiments.sweeps import sweep as module
from srl.experiments.sweeps.plan import Member, Plan, Search, Variant
from srl.experiments.sweeps.search import Conductor, RunningTrial, open_study
from srl.storage.run_directory import RunDirectory, create

optuna = pytest.importorskip("optuna")
TINY: dict[str, Any] = {"steps": 256, "lanes": 4, "horizon": 16, "scheduler": "inline"}
SEARCH = """
import optuna

sampler = optuna.samplers.RandomSampler(seed=0)
pruner = optuna.pruners.ThresholdPruner(lower=15.0)  # CartPole gives more than 15 unless the policy is broken

def suggest(trial):
    gamma = trial.suggest_float("gamma", 0.9, 0.99)
    return {"ppo.gamma": gamma, "ppo.max_grad_norm": 0.5}
"""


def suggest_gamma(trial: Any) -> dict[str, Any]:
    return {"gamma": trial.suggest_float("gamma", 0.9, 0.99)}


def write_rows(run: RunDirectory, values: dict[int, float]) -> None:
    rows = [
        {"step": step, "kind": "update", "policy": "policy", "update": number, "return": value, "episodes": 100}
        for number, (step, value) in enumerate(values.items(), 1)
    ]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_values_are_reported_when_all_seeds_have_reached_them(tmp_path: Path) -> None:
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(lower=5.0), direction="maximize")
    runs = [create(tmp_path, f"mine-{seed}") for seed in range(2)]
    members = [Member(run, "CartPole-v1", make_options(steps=200)) for run in runs]
    trial = RunningTrial(study.ask(), members, "return", 0)
    assert not trial.follow(), "no run has begun"
    write_rows(runs[0], {10: 8.0, 20: 10.0, 30: 20.0})
    assert not trial.follow()
    assert study.trials[0].intermediate_values == {}, "the other run has not begun"
    write_rows(runs[1], {10: 8.0, 20: 30.0})
    assert not trial.follow()
    assert study.trials[0].intermediate_values == {10: 8.0, 20: 20.0}, "twenty values on the way: every 10 steps"
    write_rows(runs[0], {10: 8.0, 20: 10.0, 30: 2.0})
    write_rows(runs[1], {10: 8.0, 20: 30.0, 30: 4.0})
    assert trial.follow(), "3 is below the pruner's threshold"
    assert trial.value() == 3.0


def test_a_trial_that_was_running_continues_with_its_options_and_runs(tmp_path: Path) -> None:
    search = Search("somewhere:suggest_gamma", 3)
    plan = Plan((Variant("", "CartPole-v1", make_options(**TINY)),), (0, 1), search)

    def conductor() -> Conductor:
        study = open_study(tmp_path, search, suggest_gamma)
        return Conductor(plan, plan.variants[0], tmp_path, study, suggest_gamma, lambda name, status, failure: None)

    first = conductor()
    begun = first.begin(first.study.ask())
    assert [member.run.name for member in begun] == [f"{tmp_path.name}-trial-0-{seed}" for seed in range(2)]
    begun[0].run.path.mkdir()
    begun[0].run.write_status(RunStatus(begun[0].run.name, "", "", "", state="finished"))
    again = conductor()  # the first was killed
    (running,) = again.running()
    left = again.begin(running)
    assert [member.run for member in left] == [begun[1].run], "the other run has finished"
    assert left[0].options == begun[1].options
    assert len(again.study.trials) == 1


def test_wrong_options_are_explained_and_not_kept(tmp_path: Path) -> None:
    answers = [{"gama": 0.9}, {"gamma": 0.9}]
    search = Search("somewhere:suggest", 3)
    plan = Plan((Variant("", "CartPole-v1", make_options(**TINY)),), (0,), search)
    study = open_study(tmp_path, search, suggest_gamma)
    conductor = Conductor(plan, plan.variants[0], tmp_path, study, lambda trial: answers.pop(0), lambda *ended: None)
    trial = study.ask()
    with pytest.raises(ValueError, match="did you mean 'gamma'"):
        conductor.begin(trial)
    (again,) = conductor.running()  # after the file was corrected
    (member,) = conductor.begin(again)
    assert member.options == make_options(**TINY, gamma=0.9)


def test_a_file_without_suggest_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "search.py").write_text("def sugest(trial):\n    return {}\n")
    words = ["sweep", "CartPole-v1", "--search", str(tmp_path / "search.py"), "--root", str(tmp_path)]
    assert main(words) == 2
    assert "did you mean 'sugest'" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__"] == []


@pytest.mark.slow
def test_a_search_prunes_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: 2)
    (tmp_path / "search.py").write_text(SEARCH)
    words = ["sweep", "CartPole-v1", "--search", str(tmp_path / "search.py"), "--steps", "20000", "--name", "mine"]
    words += ["--root", str(tmp_path)]
    assert main([*words, "--trials", "2"]) == 0
    assert "best options: ppo.gamma 0.9" in capsys.readouterr().out
    first = {path: path.read_bytes() for path in tmp_path.glob("mine/*/metrics.jsonl")}
    assert len(first) == 2
    done = srl.sweep(
        "CartPole-v1", search=tmp_path / "search.py", trials=3, steps=20_000, name="mine", root=tmp_path, jobs=2
    )
    assert done.complete
    assert len(done.statuses) == 3
    assert {path: path.read_bytes() for path in first} == first, "finished trials are not repeated"
    with sqlite3.connect(tmp_path / "mine" / "study.db") as database:
        gammas = [value for (value,) in database.execute("select param_value from trial_params")]
    database.close()
    assert len(set(gammas)) == 3, "the sampler's seed does not repeat its first values"
    (tmp_path / "strict.py").write_text(SEARCH.replace("lower=15.0", "lower=1e6"))
    words = ["sweep", "CartPole-v1", "--search", str(tmp_path / "strict.py"), "--steps", "20000", "--name", "pruned"]
    assert main([*words, "--root", str(tmp_path), "--trials", "1"]) == 0
    status = RunDirectory(tmp_path / "pruned" / "pruned-trial-0-0").read_status()
    assert status is not None
    assert status.state == "stopped"
    assert status.steps < 20_000
