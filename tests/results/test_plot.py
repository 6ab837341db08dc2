"""Figures of runs, from the command line and from Python."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import srl
from srl.cli.main import main
from srl.storage.run_directory import create, write_group


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    group = tmp_path / "sweep"
    write_group(group, {})
    for seed in range(3):
        run = create(group, f"sweep-{seed}")
        run.write_config(
            {"environment": "CartPole-v1", "options": {"type": "x", "fields": {"algo": "ppo", "seed": seed}}}
        )
        records = [{"step": 1000 * i, "elapsed": 1.0 * i, "return": 20.0 * i + seed} for i in range(20)]
        run.metrics.write_text("".join(json.dumps(record) + "\n" for record in records))
    return group


def test_a_sweep_is_one_curve_with_its_interval(sweep: Path) -> None:
    pytest.importorskip("matplotlib")
    figure = srl.plot(sweep)
    (axes,) = figure.axes
    (line,) = axes.lines
    assert line.get_label() == "CartPole-v1 · ppo (3 seeds)"
    assert np.asarray(line.get_ydata())[-1] == pytest.approx(381.0)
    assert len(axes.collections) == 1  # the band
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("steps", "episode return", "CartPole-v1")
    labeled = srl.plot(f"a={sweep}/sweep-0", f"b={sweep}/sweep-1", x="time")
    assert [line.get_label() for line in labeled.axes[0].lines] == ["a", "b"]
    assert labeled.axes[0].get_xlabel() == "time [s]"


def test_each_environment_has_a_panel_and_each_label_a_color(sweep: Path) -> None:
    pytest.importorskip("matplotlib")
    run = create(sweep, "other")
    fields = {"algo": "ppo", "seed": 0, "steps": 7}
    run.write_config({"environment": "Acrobot-v1", "options": {"type": "x", "fields": fields}})
    run.metrics.write_text(json.dumps({"step": 10, "return": 1.0}) + "\n")
    figure = srl.plot(f"a={sweep}/sweep-0", f"b={sweep}/sweep-1", f"b={sweep}/other", width="column", smooth=0.5)
    first, second = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["CartPole-v1", "Acrobot-v1"]
    assert first.lines[1].get_color() == second.lines[0].get_color(), "both are b"
    assert figure.get_size_inches()[0] == 3.25
    assert np.asarray(first.lines[0].get_ydata())[1] == pytest.approx(20.0 / 1.5)


@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_the_command_writes_a_figure_and_draws_in_the_terminal(
    sweep: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out = sweep / "figures" / f"curve.{kind}"
    assert main(["plot", str(sweep), "--out", str(out)]) == 0
    assert out.stat().st_size > 1000
    shown = capsys.readouterr().out
    assert "3 seeds" in shown
    assert "┤" in shown
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--out", "curve.doc"], ".png, .pdf, .svg"),
        (["--metric", "retrun"], "did you mean 'return'"),
        (["--width", "wide"], "column, page or a number of inches"),
        (["--smooth", "1"], "less than 1"),
        (["nowhere"], "no run 'nowhere'"),
    ],
)
def test_bad_input_is_explained(
    sweep: Path, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", str(sweep), *arguments, "--root", str(sweep.parent)]) == 2
    assert text in capsys.readouterr().err
    assert not Path("curve.doc").exists()
