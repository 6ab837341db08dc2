"""Comparisons of runs, from the command line and from Python, with figures that can be checked by hand."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import srl
from srl.api.status import RunStatus
from srl.base.statistics import Interval
from srl.cli.main import main
from srl.storage.run_directory import RunDirectory, create


def make(
    root: Path, name: str, environment: str, rate: float, seed: int, final: float, best: float = 0.0
) -> RunDirectory:
    """Make a run of 100 steps and 20 seconds whose last value is `final`, after `best` at half of its steps."""
    run = create(root, name)
    fields = {"algo": "ppo", "seed": seed, "rate": rate, "steps": 100 if environment == "A" else 200}
    run.write_config({"environment": environment, "options": {"type": "x", "fields": fields}})
    rows = [{"step": 50, "elapsed": 10.0, "return": best}, {"step": 100, "elapsed": 20.0, "return": final}]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for environment, scale in (("A", 1.0), ("B", 10.0)):
        for rate, values in ((0.1, (1.0, 3.0)), (0.2, (5.0, 5.0))):
            for seed, value in enumerate(values):
                make(tmp_path / "runs", f"{environment}-{rate}-{seed}", environment, rate, seed, scale * value, 8.0)
    return tmp_path / "runs"


def test_rows_have_final_and_best_values_time_and_speed(root: Path) -> None:
    comparison = srl.compare(*(path for path in sorted(root.iterdir()) if path.name.startswith("A")))
    first, second = comparison.rows
    assert (first.label, first.environment, first.seeds, first.options) == ("rate 0.1", "A", 2, {"rate": 0.1})
    assert first.final == first.iqm == Interval(2.0, 1.0, 3.0)
    assert first.best == Interval(8.0, 8.0, 8.0)
    assert second.final == Interval(5.0, 5.0, 5.0)
    assert (first.seconds, first.speed) == (20.0, 5.0)
    assert comparison.notes == ("options that differ: rate (0.1, 0.2)",)


def test_the_policies_of_a_run_have_its_time_and_speed(tmp_path: Path) -> None:
    run = make(tmp_path, "two", "A", 0.1, 0, 1.0)
    run.write_config(
        {"environment": "A", "options": {"type": "x", "fields": {}}, "policies": {"first": {}, "second": {}}}
    )
    rows = [
        {"step": 50, "elapsed": 10.0, "policy": "first", "first/return": 1.0},
        {"step": 100, "elapsed": 20.0, "policy": "second", "second/return": -1.0},
    ]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    comparison = srl.compare(run.path)
    assert [(row.label, row.seconds, row.speed) for row in comparison.rows] == [
        ("first", 20.0, 5.0),
        ("second", 20.0, 5.0),
    ]


def test_environments_are_normalized_for_the_mean_over_all(root: Path) -> None:
    *_, low, high = srl.compare(root).rows
    assert [(row.label, row.environment, row.seeds) for row in (low, high)] == [
        ("rate 0.1", "all", 4),
        ("rate 0.2", "all", 4),
    ]
    assert low.iqm is not None
    assert low.iqm.value == 0.25, "of 0, 0.5, 0 and 0.5 the middle two count"
    assert high.iqm == Interval(1.0, 1.0, 1.0)
    *_, low, high = srl.compare(root, normalize={"A": (0.0, 10.0), "B": (0.0, 100.0)}).rows
    assert high.iqm == Interval(0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="no run of 'C' to normalize; there are A, B"):
        srl.compare(root, normalize={"C": (0.0, 1.0)})


def test_one_value_per_environment_has_no_scale_for_a_mean_over_all(root: Path) -> None:
    single = srl.compare(root / "A-0.1-0", root / "B-0.1-0")
    assert [row.environment for row in single.rows] == ["A", "B"]
    assert "no IQM of all environments: A, B with only one final value" in single.notes[-1]
    given = srl.compare(root / "A-0.1-0", root / "B-0.1-0", normalize={"A": (0.0, 4.0), "B": (0.0, 40.0)})
    assert given.rows[-1].iqm == Interval(0.25), "a single seed has no interval"
    with pytest.raises(ValueError, match="must differ"):
        srl.compare(root, normalize={"A": (1.0, 1.0)})


def test_two_runs_of_one_seed_are_not_two_seeds(root: Path) -> None:
    make(root, "again", "A", 0.1, 1, 5.0)
    comparison = srl.compare(root / "A-0.1-0", root / "A-0.1-1", root / "again")
    (row,) = comparison.rows
    assert row.seeds == 2
    assert row.final == Interval(2.5, 1.0, 4.0), "seed 1 has 3 and 5"
    assert comparison.notes == ("A-0.1-1, again have the same options and seed: they count as one seed, by their mean",)


def test_runs_that_did_not_finish_are_named(root: Path) -> None:
    stopped = RunDirectory(root / "A-0.1-0")
    stopped.write_status(RunStatus("", "", "", "", state="stopped", steps=100, target_steps=1000))
    (root / "A-0.1-1" / "metrics.jsonl").unlink()
    comparison = srl.compare(root / "A-0.1-0", root / "A-0.1-1")
    assert [row.seeds for row in comparison.rows] == [1]
    assert comparison.rows[0].final == Interval(1.0)
    assert comparison.notes == (
        "A-0.1-0 stopped after 100 of 1,000 steps",
        "A-0.1-1 has no values of return: left out",
    )


def test_the_command_prints_a_table_in_several_formats(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(root)]) == 0
    text = capsys.readouterr().out
    assert "rate 0.1  A" in text
    assert "2.00 [1.00, 3.00]" in text
    assert "normalized by A 1.00 to 5.00, B 10.0 to 50.0" in text
    assert main(["compare", str(root), "--csv"]) == 0
    shown = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown.out)))
    assert [(row["environment"], row["rate"], row["final"], row["final_low"]) for row in rows[:2]] == [
        ("A", "0.1", "2.0", "1.0"),
        ("A", "0.2", "5.0", "5.0"),
    ]
    assert "normalized by" in shown.err, "notes do not disturb the table"
    assert main(["compare", str(root), "--markdown", "--normalize", "A=0,10"]) == 0
    assert "| rate 0.1 | A | 2 | 2.00 [1.00, 3.00] |" in capsys.readouterr().out
    assert main(["compare", f"a_b={root / 'A-0.1-0'}", "--latex"]) == 0
    assert r"a\_b & A & 1 & 1.00 & 8.00 & 1.00 & 20.0 s & 5.0/s \\" in capsys.readouterr().out


def test_the_figure_has_a_panel_for_each_environment_and_for_all(root: Path) -> None:
    pytest.importorskip("matplotlib")
    from srl.results.compare import draw

    figure = draw(srl.compare(root, out=root / "figures" / "c.svg"), 6.75)
    assert [panel.get_title() for panel in figure.axes] == ["A", "B", "all"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["rate 0.1", "rate 0.2"]
    assert figure.axes[0].get_xlim()[0] < 1.0, "the lowest interval, from 1 to 3, does not begin at the frame"
    assert (root / "figures" / "c.svg").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--csv", "--latex"], "exclude each other"),
        (["--normalize", "A=1"], "ENV=LOW,HIGH"),
        (["--metric", "retrun"], "did you mean 'return'"),
        (["--out", "c.doc"], ".png"),
        (["--normalize", "C=0,1"], "no run of 'C' to normalize; there are A"),
    ],
)
def test_wrong_input_is_explained(root: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(root)] if "C=0,1" not in words else [str(path) for path in root.glob("A-*")]  # one environment
    assert main(["compare", *runs, *words]) == 2
    assert text in capsys.readouterr().err
