"""Curves from metrics files, groups of seeds, and their averages, compared with values computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srl.storage.curves import Curve, average, group_runs, read_curve, repeated_seeds
from srl.storage.run_directory import RunDirectory, create, find_all, write_group


def make(root: Path, name: str, records: list[dict[str, Any]], **options: Any) -> RunDirectory:
    run = create(root, name)
    run.write_config(
        {"environment": "CartPole-v1", "options": {"type": "x:Options", "fields": {"algo": "ppo", **options}}}
    )
    run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return run


def rows(*values: float, first: int = 1, elapsed: float = 0.0) -> list[dict[str, Any]]:
    return [
        {
            "step": 10 * number,
            "kind": "update",
            "policy": "policy",
            "elapsed": elapsed + number,
            "update": number,
            "return": value,
            "episodes": 100,
        }
        for number, value in enumerate(values, first)
    ]


def test_a_curve_covers_steps_and_time_of_a_resumed_run(tmp_path: Path) -> None:
    run = make(tmp_path, "a", [*rows(1.0, 2.0, 3.0), *rows(4.0, first=4, elapsed=-3.5), {"step": 35}])
    with open(run.metrics, "a") as file:
        file.write('{"step": 40, "ret')  # still being written
    curve = read_curve(run, "return")
    assert curve.steps.tolist() == [10, 20, 30, 40]
    assert curve.seconds.tolist() == [1, 2, 3, 3.5]
    assert curve.values.tolist() == [1, 2, 3, 4]


def test_steps_that_a_killed_run_repeated_are_drawn_once(tmp_path: Path) -> None:
    """The run was killed at step 40 and resumed from step 20. One evaluation is at step 30, and one comes later."""
    evaluated = [
        {"step": step, "kind": "evaluation", "elapsed": 9.0, "eval/return": value}
        for step, value in ((10, 1.0), (30, 2.0))
    ]
    late = {"step": 30, "kind": "evaluation", "elapsed": 3.5, "eval/return": 3.0}
    run = make(tmp_path, "a", [*rows(1, 2, 3, 4), *evaluated, *rows(23, 24, 25, first=3), late])
    curve = read_curve(run, "return")
    assert curve.steps.tolist() == [10, 20, 30, 40, 50]
    assert curve.values.tolist() == [1, 2, 23, 24, 25]
    scores = read_curve(run, "eval")
    assert (scores.steps.tolist(), scores.values.tolist()) == ([10, 30], [1, 3])


def test_curves_of_episodes_are_means_over_the_last_hundred(tmp_path: Path) -> None:
    found = rows(1.0, 2.0, 6.0)
    found[0] |= {"episodes": 50, "facts": ["won"], "won": 0.0, "loss": 1.0}
    found[1] |= {"episodes": 50, "facts": ["won"], "won": 1.0, "loss": 2.0}
    found[2] |= {"episodes": 60, "loss": 3.0}
    run = make(tmp_path, "a", found)
    assert read_curve(run, "return").values.tolist() == [1.0, 1.5, pytest.approx((2 * 50 + 6 * 60) / 110)]
    assert read_curve(run, "won").values.tolist() == [0.0, 0.5]
    assert read_curve(run, "loss").values.tolist() == [1.0, 2.0, 3.0]


def test_an_evaluation_has_the_step_of_the_evaluated_version(tmp_path: Path) -> None:
    evaluated = {"step": 5, "kind": "evaluation", "elapsed": 2.5, "eval/return": 7.0}
    run = make(tmp_path, "a", [*rows(1, 2, 3), evaluated])
    assert read_curve(run, "eval").steps.tolist() == [5]
    assert read_curve(run, "return").steps.tolist() == [10, 20, 30]


def test_the_speed_of_a_run_has_a_curve(tmp_path: Path) -> None:
    run = make(tmp_path, "a", rows(1.0))
    run.system.write_text('{"step": 7, "elapsed": 1.5, "train_fps": 100.0}\n')
    curve = read_curve(run, "fps")
    assert (curve.steps.tolist(), curve.seconds.tolist(), curve.values.tolist()) == ([7], [1.5], [100])


def test_the_error_for_an_unknown_metric_names_the_nearest(tmp_path: Path) -> None:
    run = make(tmp_path, "a", rows(1.0))
    with pytest.raises(ValueError, match="no metric 'retrun'; did you mean 'return'"):
        read_curve(run, "retrun")
    run.metrics.unlink()
    with pytest.raises(ValueError, match="no metrics yet"):
        read_curve(run, "return")


def test_the_mean_over_seeds_has_students_interval() -> None:
    x = np.array([0.0, 10.0])
    curves = [[Curve(x, x, x, np.array([level, level + 10.0]))] for level in (1.0, 2.0, 3.0)]
    band = average(curves, "steps")
    assert band.mean[[0, -1]].tolist() == [2.0, 12.0]
    assert band.interval == pytest.approx(4.303 / np.sqrt(3), abs=1e-3)
    assert average(curves[:1], "time").interval.tolist() == [0.0, 0.0]


def test_curves_are_averaged_over_their_common_range() -> None:
    none = np.zeros(2)
    early = Curve(np.array([0.0, 10.0]), np.array([0.0, 1.0]), none, np.array([0.0, 10.0]))
    late = Curve(np.array([5.0, 20.0]), np.array([2.0, 3.0]), none, np.array([5.0, 20.0]))
    band = average([[early], [late]], "steps")
    assert (band.x[0], band.x[-1]) == (5.0, 10.0)
    assert band.mean == pytest.approx(band.x)
    apart = average([[early], [late]], "time")  # no common range: extended
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


def test_curves_of_one_seed_count_once() -> None:
    x = np.array([0.0, 10.0])
    low, high = (Curve(x, x, x, np.array([level, level])) for level in (1.0, 3.0))
    band = average([[low, high], [high]], "steps")
    assert band.count == 2
    assert band.mean[[0, -1]].tolist() == [2.5, 2.5], "the first seed has a mean of 2"


def test_runs_with_the_same_options_and_seed_are_one_seed(tmp_path: Path) -> None:
    runs = [make(tmp_path, name, [], seed=seed) for name, seed in (("a", 0), ("b", 1), ("again", 0))]
    (group,) = group_runs([("", run) for run in runs])
    assert group.by_seed() == [[runs[0], runs[2]], [runs[1]]]
    assert repeated_seeds([group]) == ["a, again have the same options and seed: they count as one seed, by their mean"]
    (pooled,) = group_runs([("mine", runs[0]), ("mine", make(tmp_path, "other", [], seed=0, lanes=8))])
    assert len(pooled.by_seed()) == 2, "their options differ"


def test_the_groups_of_each_environment_are_labeled_by_what_differs_within_it(tmp_path: Path) -> None:
    """Recipes and steps differ between environments, and that says nothing about what is compared."""
    values = [("A", 1, 0.1), ("A", 1, 0.2), ("B", 2, 0.1), ("B", 2, 0.2)]
    runs = []
    for environment, steps, rate in values:
        runs.append(make(tmp_path, f"{environment}-{rate}", [], recipe=f"r{steps}", steps=steps, rate=rate))
        runs[-1].write_config({**runs[-1].read_raw_config(), "environment": environment})
    groups = group_runs([("", run) for run in runs])
    assert [(group.environment, group.label) for group in groups] == [
        ("A", "rate 0.1"),
        ("A", "rate 0.2"),
        ("B", "rate 0.1"),
        ("B", "rate 0.2"),
    ]
    two = group_runs([("", run) for run in runs[1:3]])
    assert [(group.environment, group.label) for group in two] == [("A", "ppo"), ("B", "ppo")]
    labeled = group_runs([("mine", run) for run in runs[1:3]])
    assert [(group.environment, group.label) for group in labeled] == [("A", "mine"), ("B", "mine")]


def test_algorithms_are_labeled_by_their_names_alone(tmp_path: Path) -> None:
    runs = [make(tmp_path, name, [], algorithm={f"{name}_only": 1}) for name in ("ppo", "a2c")]
    for run in runs:
        config = run.read_raw_config()
        config["options"]["fields"]["algo"] = run.name
        run.write_config(config)
    assert [group.label for group in group_runs([("", run) for run in runs])] == ["ppo", "a2c"]


def test_lists_and_files_in_labels_are_short_and_two_files_of_one_name_differ(tmp_path: Path) -> None:
    chosen = {"a": [], "b": ["/x/y/mine.py:Stop,after=3", "webhook"], "c": ["/z/mine.py:Stop"]}
    runs = [make(tmp_path, name, [], callbacks=value) for name, value in chosen.items()]
    labels = [group.label for group in group_runs([("", run) for run in runs])]
    assert labels == ["callbacks none", "callbacks mine.py:Stop,after=3 + webhook", "callbacks mine.py:Stop"]
    runs[1] = make(tmp_path, "d", [], callbacks=["/x/mine.py:Stop"])
    labels = [group.label for group in group_runs([("", run) for run in runs])]
    assert labels == ["callbacks none", "callbacks mine.py:Stop (d)", "callbacks mine.py:Stop (c)"]


def test_an_evaluation_has_its_own_value_not_a_mean_over_several(tmp_path: Path) -> None:
    evaluated = [
        {"step": step, "kind": "evaluation", "elapsed": 1.0, "eval/return": value, "eval/episodes": 10}
        for step, value in ((10, 1.0), (20, 9.0))
    ]
    run = make(tmp_path, "a", [*rows(1, 2, 3), *evaluated])
    assert read_curve(run, "eval").values.tolist() == [1, 9]


def test_a_curve_is_over_episodes_too(tmp_path: Path) -> None:
    records = [{**row, "episodes": count} for row, count in zip(rows(1, 2, 3), (4, 0, 6), strict=True)]
    evaluated = {"step": 30, "kind": "evaluation", "elapsed": 2.5, "eval/return": 7.0, "eval/episodes": 50}
    run = make(tmp_path, "a", [*records, evaluated])
    assert read_curve(run, "return").over("episodes").tolist() == [4, 4, 10]
    assert read_curve(run, "eval").over("episodes").tolist() == [10]
    both = [{**row, "hiders/return": 1.0, "hiders/episodes": 2, "seekers/episodes": 3} for row in rows(1, 2)]
    for row in both:
        del row["episodes"]
    two = make(tmp_path, "b", both)
    assert read_curve(two, "hiders/return").over("episodes").tolist() == [2, 4]
    assert read_curve(two, "update").over("episodes").tolist() == [5, 10]


def test_smoothing_is_tensorboards() -> None:
    x = np.arange(3.0)
    curve = Curve(x, x, x, np.array([1.0, 3.0, 3.0]))
    assert curve.smoothed(0.0).values.tolist() == [1, 3, 3]
    assert curve.smoothed(0.5).values == pytest.approx([1.0, (0.25 + 1.5) / 0.75, (0.125 + 0.75 + 1.5) / 0.875])


def test_the_final_value_is_the_mean_of_the_last_tenth_of_the_steps() -> None:
    steps = np.array([10.0, 80.0, 90.0, 100.0])
    curve = Curve(steps, steps, steps, np.array([1.0, 2.0, 4.0, 6.0]))
    assert curve.final() == 5.0
    assert curve.final(90.0) == 4.0
    assert curve.final(85.0) == 2.0
    assert curve.final(5.0) == 1.0, "the first value, if there is none before"


def test_a_group_of_runs_is_found_by_its_directory(tmp_path: Path) -> None:
    group = tmp_path / "sweep"
    write_group(group, {"seeds": [0, 1]})
    inside = [make(group, f"sweep-{seed}", []) for seed in range(2)]
    assert find_all("sweep", tmp_path) == find_all(group, Path("elsewhere")) == inside
    assert find_all("sweep-1", tmp_path) == [inside[1]]
    assert find_all("latest", tmp_path) == [inside[1]]
