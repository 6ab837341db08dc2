"""Sweeps over seeds, grids and environments, in this process and in several."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_for

import srl
from srl.api.status import RunStatus
from srl.base.config import UntrustedCode
from srl.cli.main import main
from srl.cli.sweep import conduct_sweep
from srl.experiments.options.keywords import make_options
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.session.launch import NothingToTrain
from srl.experiments.sweeps import processes
from srl.experiments.sweeps import sweep as module
from srl.experiments.sweeps.plan import (
    Member,
    Plan,
    Search,
    Variant,
    combinations,
    default_name,
    extended,
    label_of,
    parse_grid,
    parse_seeds,
    read_plan,
    save_plan,
    with_settings,
)
from srl.experiments.sweeps.sweep import Sharing, resume_sweep, scheduler_for, sharing
from srl.results.plot import find_groups
from srl.storage.run_directory import RunDirectory

TINY: dict[str, Any] = {"steps": 256, "lanes": 4, "horizon": 16, "scheduler": "inline"}


def suggest(trial: Any) -> dict[str, Any]:
    """Suggest nothing: this file is also a search."""
    return {}


def test_seeds_are_a_number_or_a_list() -> None:
    assert parse_seeds("3") == parse_seeds(3) == (0, 1, 2)
    assert parse_seeds("3,5,8") == parse_seeds([3, 5, 8]) == (3, 5, 8)
    for wrong in ("many", "0", "1,1", ""):
        with pytest.raises(ValueError, match="seed"):
            parse_seeds(wrong)


def test_a_grid_is_written_as_lists_of_values() -> None:
    words = ["ppo.learning-rate=1e-4,5e-4", "algo=ppo,a2c", "hidden-sizes=[64,64],[8]", "value-clip=none,0.2"]
    assert parse_grid([*words, "env-args.my-size=3"]) == {
        "ppo.learning_rate": [1e-4, 5e-4],
        "algo": ["ppo", "a2c"],
        "hidden_sizes": [[64, 64], [8]],
        "value_clip": [None, 0.2],
        "env_args.my-size": [3],
    }
    for wrong in (["lanes"], ["lanes="], ["lanes=1", "lanes=2"]):
        with pytest.raises(ValueError, match="--grid"):
            parse_grid(wrong)


def test_a_grid_has_every_combination_once() -> None:
    assert list(combinations({"a": [1, 2], "b.c": ["x"]})) == [{"a": 1, "b.c": "x"}, {"a": 2, "b.c": "x"}]
    assert list(combinations({})) == [{}]
    with pytest.raises(ValueError, match="repeats a value of a"):
        list(combinations({"a": [1, 1]}))
    with pytest.raises(ValueError, match="list of values for a"):
        list(combinations({"a": "text"}))
    assert with_settings({"algorithm": {"gamma": 0.9}}, {"algorithm.clip": 0.1, "lanes": 8}) == {
        "algorithm": {"gamma": 0.9, "clip": 0.1},
        "lanes": 8,
    }


def test_runs_share_the_cores() -> None:
    assert sharing(make_options(scheduler="inline"), 12, 8) == Sharing(8)
    assert sharing(make_options(scheduler="inline"), 5, 8) == Sharing(5)
    assert sharing(make_options(actors=1), 5, 8) == Sharing(4), "an actor and a trainer each"
    assert sharing(TrainOptions(), 5, 8) == Sharing(4, 2)
    assert sharing(TrainOptions(), 2, 8) == Sharing(2, 4)
    assert sharing(TrainOptions(), 1, 8) == sharing(TrainOptions(), 5, 2) == Sharing(1), "all cores"
    assert sharing(TrainOptions(), 5, 2, jobs=3) == Sharing(3, 1)
    assert sharing(make_options(scheduler="slurm"), 100, 2) == Sharing(100), "Slurm has a queue"
    assert sharing(make_options(scheduler="ray"), 100, 2) == Sharing(1)
    assert [scheduler_for(count, 8) for count in (1, 4, 5, 50)] == ["processes", "processes", "inline", "inline"]


def test_the_name_of_a_run_says_which_variant_it_is(tmp_path: Path) -> None:
    settings = {"ppo.learning_rate": 1e-4, "lanes": 8}
    label = label_of("CartPole-v1", settings, several_environments=False)
    plan = Plan((Variant(label, "CartPole-v1", TrainOptions()),), (3, 5))
    names = [member.run.name for member in plan.members(tmp_path / "mine")]
    assert names == ["mine-learning_rate-0.0001-lanes-8-3", "mine-learning_rate-0.0001-lanes-8-5"]
    assert [member.options.run.seed for member in plan.members(tmp_path)] == [3, 5]
    assert label_of("ALE/Pong-v5", {}, several_environments=True) == "Pong-v5"
    long = [Variant("x" * 60 + end, "CartPole-v1", TrainOptions()) for end in "ab"]
    shortened = {member.run.name for member in Plan(tuple(long), (0, 1)).members(tmp_path / "mine")}
    assert len(shortened) == 4
    assert max(map(len, shortened)) <= 64


def test_the_same_options_give_the_same_sweep() -> None:
    plan = Plan((Variant("", "CartPole-v1", make_options(scheduler="inline")),), (0,))
    more_seeds = Plan((Variant("", "CartPole-v1", make_options(scheduler="processes")),), (0, 1))
    other = Plan((Variant("", "CartPole-v1", make_options(steps=5)),), (0,))
    search = replace(plan, search=Search("a.py:suggest", 3))
    assert default_name(plan) == default_name(more_seeds)
    assert default_name(search) == default_name(replace(plan, search=Search("a.py:suggest", 9)))
    assert len({default_name(each) for each in (plan, other, search)}) == 3


def test_a_sweep_grows_but_keeps_its_options() -> None:
    before = Plan((Variant("a", "CartPole-v1", make_options(scheduler="inline")),), (0, 1))
    added = Variant("b", "CartPole-v1", make_options())
    both = extended(Plan((replace(before.variants[0], options=make_options()), added), (1, 2)), before, False)
    assert both.seeds == (0, 1, 2)
    assert [each.label for each in both.variants] == ["a", "b"]
    assert {each.options.workers.scheduler for each in both.variants} == {"inline"}, "as chosen at first"
    changed = Plan((Variant("a", "CartPole-v1", make_options(scheduler="inline", steps=5)),), (0,))
    with pytest.raises(ValueError, match=r"run\.steps was 1000000 and is now 5"):
        extended(changed, before, True)
    with pytest.raises(ValueError, match=r"scheduler was inline and is now processes"):
        extended(Plan((Variant("a", "CartPole-v1", make_options()),), (0,)), before, True)
    with pytest.raises(ValueError, match="search"):
        extended(replace(before, search=Search("a.py:suggest", 3)), before, True)


def test_the_plan_of_another_user_does_not_run_code(tmp_path: Path) -> None:
    plan = Plan((Variant("", "CartPole-v1", TrainOptions()),), (0,), Search("evil.py:suggest", 1))
    save_plan(plan, tmp_path / "mine")
    assert read_plan(tmp_path / "mine") == plan
    (tmp_path / "mine" / "group.json.sig").unlink()
    with pytest.raises(UntrustedCode, match=r"evil\.py:suggest"):
        read_plan(tmp_path / "mine")
    save_plan(replace(plan, variants=(Variant("", "evil:make", TrainOptions()),), search=None), tmp_path / "env")
    (tmp_path / "env" / "group.json.sig").unlink()
    with pytest.raises(UntrustedCode, match="evil:make"):
        read_plan(tmp_path / "env")


def test_an_interrupted_sweep_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: 1)

    def interrupt(status: RunStatus) -> None:
        if status.run == "mine-gamma-0.9-1" and status.state == "running":
            raise KeyboardInterrupt

    grid = {"gamma": [0.9, 0.99]}
    done = srl.sweep("CartPole-v1", 2, grid=grid, root=tmp_path, name="mine", on_status=interrupt, **TINY)
    states = {name: status and status.state for name, status in done.statuses.items()}
    assert list(states.values()) == ["finished", "stopped", None, None]
    assert not done.complete
    assert repr(done).endswith("mine': 1 of 4 runs finished>")
    first = (tmp_path / "mine" / "mine-gamma-0.9-0" / "metrics.jsonl").read_bytes()
    words = ["resume", "mine", "--root", str(tmp_path)]
    assert main([*words, "--steps", "512"]) == 2, "options of a sweep cannot change"
    capsys.readouterr()
    assert main(words) == 0
    assert "mine-gamma-0.99-1  " in capsys.readouterr().out
    again = resume_sweep(tmp_path / "mine")
    assert again.complete
    assert all(status is not None and status.steps >= 256 for status in again.statuses.values())
    assert (tmp_path / "mine" / "mine-gamma-0.9-0" / "metrics.jsonl").read_bytes() == first, "it is not repeated"
    alone = srl.train("CartPole-v1", root=tmp_path, name="alone", seed=9, gamma=0.9, **TINY)
    groups = find_groups([tmp_path / "mine", alone.path])
    assert [len(group.runs) for group in groups] == [3, 2], "one of them was trained outside of the sweep"
    assert main(["eval", "mine", "--root", str(tmp_path)]) == 2
    assert "mine is a sweep of several runs; choose one of them: mine-gamma-0.9-0, mine-" in capsys.readouterr().err


def test_a_run_that_was_killed_at_its_very_end_is_finished(tmp_path: Path) -> None:
    run = RunDirectory(srl.train("CartPole-v1", root=tmp_path, name="mine-0", **TINY).path)
    status = run.read_status()
    assert status is not None
    run.status.unlink()
    with pytest.raises(NothingToTrain):
        srl.resume(run.path)
    ended = processes.train_member(Member(run, "CartPole-v1", make_options(**TINY)))
    assert ended is not None
    assert (ended.state, ended.status.steps) == ("finished", status.steps)
    assert processes.train_member(Member(run, "CartPole-v1", make_options(**TINY))) is None, "nothing is left to do"


def test_each_run_has_a_process_and_a_failure_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "num_cores", lambda: 2)
    words = ["sweep", "support.faulty_environments:Faulty", "--grid", "env-args.after=100,1000000", "--name", "mine"]
    words += ["--env-arg", "length=1000", "--max-env-failures", "1", "--root", str(tmp_path)]
    words += ["--steps", "2048", "--lanes", "4", "--horizon", "16", "--batch", "64"]
    assert main(words) == 1
    shown = capsys.readouterr().out
    assert "2 runs with --scheduler inline, 2 at a time" in shown
    assert "mine-after-100-0  failed: " in shown
    assert "mine-after-1000000-0  " in shown
    assert "continue         srl resume" in shown
    finished = RunDirectory(tmp_path / "mine" / "mine-after-1000000-0")
    status = finished.read_status()
    assert status is not None
    assert status.state == "finished"
    assert "Traceback" in (tmp_path / "mine" / "mine-after-100-0.log").read_text()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["CartPol-v1"], "no environment"),
        ([], "ENV is missing"),
        (["CartPole-v1", "--grid", "learning-rat=1"], "did you mean 'learning_rate'"),
        (["CartPole-v1", "--grid", "lanes=a,b"], "lanes must be an integer"),
        (["CartPole-v1", "--grid", "lanes=4,8", "--lanes", "4"], "lanes"),
        (["CartPole-v1", "--seed", "3"], "--seeds 3,5"),
        (["CartPole-v1", "--search", "space.toml"], "Python file"),
        (["CartPole-v1", "--search", "nowhere.py"], "no file"),
        (["CartPole-v1", "--search", __file__, "--grid", "lanes=4,8"], "no grid"),
    ],
)
def test_wrong_input_leaves_no_directory(
    tmp_path: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words, "--root", str(tmp_path)]) == 2
    assert text in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_train_refers_to_sweep_for_several_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "CartPole-v1", "--seeds", "5"]) == 2
    assert "srl sweep ENV --seeds 5" in capsys.readouterr().err


SMALL = ("--steps", "16000", "--recipe", "none", "--epochs", "1", "--num-minibatches", "1", "--sinks", "tensorboard")


@pytest.mark.parametrize(
    ("seeds", "options", "jobs"), [(4, SMALL, 1), pytest.param(5, ("--steps", "30000"), 2, marks=pytest.mark.slow)]
)
def test_a_killed_sweep_continues_without_repeating_a_run(
    tmp_path: Path, seeds: int, options: tuple[str, ...], jobs: int
) -> None:
    """Two runs at a time, in processes of their own; the second time `jobs` at a time."""
    words = ["sweep", "CartPole-v1", "--seeds", str(seeds), "--name", "mine", "--root", str(tmp_path), *options]
    folder = tmp_path / "mine"

    def finished() -> dict[str, bytes]:
        runs = (path.parent for path in folder.glob("*/status.json"))
        return {
            run.name: (run / "metrics.jsonl").read_bytes()
            for run in runs
            if json.loads((run / "status.json").read_bytes())["state"] == "finished"
        }

    sweep = subprocess.Popen([sys.executable, "-m", "srl", *words, "--jobs", "2"], stdout=subprocess.DEVNULL)
    wait_for(lambda: finished(), "a run has finished")
    sweep.kill()
    sweep.wait()
    before = finished()
    assert main([*words, "--jobs", str(jobs)]) == 0
    after = finished()
    assert sorted(after) == [f"mine-{seed}" for seed in range(seeds)]
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_an_interrupt_stops_the_runs_with_checkpoints(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "srl", "sweep", "CartPole-v1", "--seeds", "2", "--jobs", "2", "--name", "mine"]
    sweep = subprocess.Popen([*words, "--steps", "100000000", "--root", str(tmp_path)], stdout=subprocess.DEVNULL)
    runs = [RunDirectory(tmp_path / "mine" / f"mine-{seed}") for seed in range(2)]
    wait_for(lambda: all(run.metrics.exists() for run in runs), "both runs train")
    os.kill(sweep.pid, signal.SIGINT)
    assert sweep.wait(60) == 130
    for run in runs:
        status = run.read_status()
        assert status is not None
        assert (status.state, status.reason) == ("stopped", "SIGTERM")
        assert any(run.checkpoints.iterdir())


def test_a_sweep_interrupted_before_its_first_run_says_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = module.Sweep(tmp_path, {}, {}, complete=False)
    assert conduct_sweep(lambda observe, ended: done) == 130
    assert capsys.readouterr().out.endswith(
        f"ended before the first run had results; continue with the same command, or: srl resume {tmp_path}\n"
    )
