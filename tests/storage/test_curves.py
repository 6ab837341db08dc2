"""Curves from metrics files, groups of seeds, and their averages, compared with values computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.storage.curves import Curve, average, group_runs, read_curve
from srl.storage.run_directory import RunDirectory, create, create_group, find_all


def make(root: Path, name: str, records: list[dict[str, Any]], **options: Any) -> RunDirectory:
    run = create(root, name)
    run.write_config(
        {"environment": "CartPole-v1", "options": {"type": "x:Options", "fields": {"algo": "ppo", **options}}}
    )
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def rows(*values: float) -> list[dict[str, Any]]:
    return [{"step": 10 * i, "time/elapsed": float(i), "episodes/return_mean": v} for i, v in enumerate(values)]


def test_a_curve_covers_steps_and_time_of_a_resumed_run(tmp_path: Path) -> None:
    records = [*rows(1.0, 2.0, 3.0), {"step": 30, "time/elapsed": 0.5, "episodes/return_mean": 4.0}, {"step": 35}]
    run = make(tmp_path, "a", records)
    with open(run.metrics, "a") as file:
        file.write('{"step": 40, "epi')  # still being written
    curve = read_curve(run, "return")
    assert curve.steps.tolist() == [0, 10, 20, 30]
    assert curve.seconds.tolist() == [0, 1, 2, 2.5]
    assert curve.values.tolist() == [1, 2, 3, 4]


def test_steps_that_a_killed_run_repeated_are_drawn_once(tmp_path: Path) -> None:
    """The run was killed at step 40 and resumed from step 20. One evaluation is at step 30, and one comes later."""
    evaluated = [
        {"step": step, "time/elapsed": 9.0, "eval/return_mean": value} for step, value in ((10, 1.0), (30, 2.0))
    ]
    again = [{"step": 20 + 10 * i, "time/elapsed": float(i), "episodes/return_mean": 20.0 + i} for i in (0, 1, 2, 3)]
    late = {"step": 30, "time/elapsed": 3.5, "eval/return_mean": 3.0}
    run = make(tmp_path, "a", [*rows(0, 1, 2, 3, 4), *evaluated, *again, late])
    curve = read_curve(run, "return")
    assert curve.steps.tolist() == [0, 10, 20, 30, 40, 50]
    assert curve.values.tolist() == [0, 1, 20, 21, 22, 23]
    scores = read_curve(run, "eval")
    assert (scores.steps.tolist(), scores.values.tolist()) == ([10, 30], [1, 3])


def test_of_two_records_of_a_step_the_last_is_drawn(tmp_path: Path) -> None:
    """The last record of a run has the step of the one before, if no update was in between."""
    last = {"step": 20, "time/elapsed": 2.5, "episodes/return_mean": 9.0}
    curve = read_curve(make(tmp_path, "a", [*rows(1, 2, 3), last]), "return")
    assert (curve.steps.tolist(), curve.values.tolist()) == ([0, 10, 20], [1, 2, 9])


def test_evaluations_of_a_policy_do_not_look_like_a_repetition(tmp_path: Path) -> None:
    evaluated = {"step": 5, "time/elapsed": 2.5, "eval/hiders/return_mean": 7.0}
    curve = read_curve(make(tmp_path, "a", [*rows(1, 2, 3), evaluated]), "return")
    assert curve.steps.tolist() == [0, 10, 20]


def test_an_evaluation_has_the_step_of_the_evaluated_version(tmp_path: Path) -> None:
    evaluated = {"step": 5, "time/elapsed": 2.5, "eval/return_mean": 7.0}
    assert read_curve(make(tmp_path, "a", [*rows(1, 2, 3), evaluated]), "eval").steps.tolist() == [5]


def test_the_error_for_an_unknown_metric_names_the_nearest(tmp_path: Path) -> None:
    run = make(tmp_path, "a", rows(1.0))
    with pytest.raises(ValueError, match="no metric 'retrun'; did you mean 'return'"):
        read_curve(run, "retrun")
    run.metrics.unlink()
    with pytest.raises(ValueError, match="no metrics yet"):
        read_curve(run, "return")


def test_the_mean_over_seeds_has_students_interval() -> None:
    x = np.array([0.0, 10.0])
    curves = [Curve(x, x, np.array([level, level + 10.0])) for level in (1.0, 2.0, 3.0)]
    band = average(curves, "steps")
    assert band.mean[[0, -1]].tolist() == [2.0, 12.0]
    assert band.interval == pytest.approx(4.303 / np.sqrt(3), abs=1e-3)
    assert average(curves[:1], "time").interval.tolist() == [0.0, 0.0]


def test_curves_are_averaged_over_their_common_range() -> None:
    early = Curve(np.array([0.0, 10.0]), np.array([0.0, 1.0]), np.array([0.0, 10.0]))
    late = Curve(np.array([5.0, 20.0]), np.array([2.0, 3.0]), np.array([5.0, 20.0]))
    band = average([early, late], "steps")
    assert (band.x[0], band.x[-1]) == (5.0, 10.0)
    assert band.mean == pytest.approx(band.x)
    apart = average([early, late], "time")  # no common range: extended
    assert (apart.x[0], apart.x[-1], apart.mean[-1]) == (0.0, 3.0, 15.0)


def test_runs_that_differ_only_in_their_seed_form_a_group(tmp_path: Path) -> None:
    runs = [make(tmp_path, f"a{seed}", [], seed=seed, max_lag=1) for seed in range(2)]
    other = make(tmp_path, "b", [], seed=0, max_lag=0)
    groups = group_runs([("", run) for run in [runs[0], other, runs[1], runs[0]]])
    assert [(group.label, group.runs) for group in groups] == [("max lag 1", tuple(runs)), ("max lag 0", (other,))]
    (alone,) = group_runs([("", run) for run in runs])
    assert alone.label == "CartPole-v1 · ppo"
    (labeled,) = group_runs([("mine", runs[0]), ("mine", other)])
    assert (labeled.label, len(labeled.runs)) == ("mine", 2)


def test_runs_in_different_environments_are_labeled_by_their_environments_alone(tmp_path: Path) -> None:
    """Their recipes and steps differ, too."""
    runs = [make(tmp_path, f"{i}", [], recipe=f"r{i % 2}", steps=i) for i in range(3)]
    for run, environment in zip(runs, ("CartPole-v1", "HalfCheetah-v5", "HalfCheetah-v5"), strict=True):
        run.write_config({**run.read_raw_config(), "environment": environment})
    two = group_runs([("", run) for run in runs[:2]])
    assert [group.label for group in two] == ["CartPole-v1", "HalfCheetah-v5"]
    three = group_runs([("", run) for run in runs])
    assert [group.label for group in three][1:] == ["HalfCheetah-v5, recipe r1", "HalfCheetah-v5, recipe r0"]


def test_a_group_of_runs_is_found_by_its_directory(tmp_path: Path) -> None:
    group = create_group(tmp_path, "sweep", {"seeds": [0, 1]})
    inside = [make(group, f"sweep-{seed}", []) for seed in range(2)]
    assert find_all("sweep", tmp_path) == find_all(group, Path("elsewhere")) == inside
    assert find_all("sweep-1", tmp_path) == [inside[1]]
    assert find_all("latest", tmp_path) == [inside[1]]
