"""Figures of learning curves, for papers and for the terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from srl.base.files import replacing
from srl.storage import ROOT, run_directory
from srl.storage.curves import Band, Group, average, group_runs, policy_metrics, read_curve
from srl.storage.run_directory import RunDirectory
from srl.terminal.formatting import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.text import Text

FORMATS = (".png", ".pdf", ".svg")
# Okabe and Ito's palette, safe for color-blind readers; without the yellow, which is too faint on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.6,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "pdf.fonttype": 42,  # embeds fonts as text, which journals require
    "svg.fonttype": "none",
}
Y_LABELS = {"return": "episode return", "eval": "evaluation return", "length": "episode length", "fps": "steps / s"}
Axis = Literal["steps", "time"]


def find_groups(runs: Sequence[str | Path], root: Path = ROOT) -> list[Group]:
    """Find and group runs. Each is given as a run or a directory of runs, optionally with a label as `label=run`."""
    named: list[tuple[str, RunDirectory]] = []
    for what in runs:
        label, separator, rest = str(what).partition("=")
        if isinstance(what, Path) or not separator:
            label, rest = "", str(what)
        named += [(label, run) for run in run_directory.find_all(rest, root)]
    if not named:
        raise ValueError("expected at least one run to plot")
    return group_runs(named)


def bands_of(groups: Sequence[Group], metric: str, axis: Axis) -> tuple[list[Group], list[Band]]:
    """Return the groups and their mean curves. A group with several policies becomes one group per policy."""
    drawn: list[Group] = []
    bands: list[Band] = []
    for group in groups:
        by_policy = policy_metrics(group.runs[0], metric)
        for policy, name in by_policy.items() or [("", metric)]:
            label = policy if len(groups) == 1 else f"{group.label} · {policy}"
            drawn.append(replace(group, label=label) if policy else group)
            bands.append(average([read_curve(run, name) for run in group.runs], axis))
    return drawn, bands


def plot(
    *runs: str | Path, metric: str = "return", x: Axis = "steps", out: str | Path | None = None, title: str = ""
) -> Figure:
    """Return a matplotlib figure of learning curves: mean and 95 % interval over the seeds of each group.

    A run is given by path, name or `latest`, a seed sweep by its directory; `label=run` sets a label. `metric` is
    `return`, `eval`, `length`, `fps` or a name in metrics.jsonl; `x` is `steps` or `time`. With `out`, the figure is
    also written to that file as png, pdf or svg.
    """
    if out is not None:
        check_format(Path(out))
    if x not in ("steps", "time"):
        raise ValueError(f"x must be 'steps' or 'time', found {x!r}")
    figure = draw(*bands_of(find_groups(runs), metric, x), metric, x, title)
    if out is not None:
        save(figure, Path(out))
    return figure


def draw(groups: Sequence[Group], bands: Sequence[Band], metric: str, axis: Axis, title: str = "") -> Figure:
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('figures need matplotlib, which is not installed; pip install "srl[plot]"')
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    divisor, unit = _time_unit(max(float(band.x[-1]) for band in bands)) if axis == "time" else (1.0, "")
    with rc_context(STYLE):
        figure = Figure(figsize=(4.8, 3.2), dpi=200, layout="constrained")  # without pyplot: no global state, no window
        axes = figure.subplots()
        for number, (group, band) in enumerate(zip(groups, bands, strict=True)):
            color = COLORS[number % len(COLORS)]
            seeds = f" ({band.count} seeds)" if band.count > 1 else ""
            axes.plot(band.x / divisor, band.mean, color=color, label=f"{group.label}{seeds}")
            if band.count > 1:
                low, high = band.mean - band.interval, band.mean + band.interval
                axes.fill_between(band.x / divisor, low, high, color=color, alpha=0.18, linewidth=0)
        environments = list(dict.fromkeys(group.environment for group in groups))
        axes.set_title(title or (environments[0] if len(environments) == 1 else ""))
        axes.set_xlabel(f"time [{unit}]" if axis == "time" else "steps")
        axes.set_ylabel(Y_LABELS.get(metric, metric))
        axes.margins(x=0.01)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        if axis == "steps":
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        if len(groups) > 1 or bands[0].count > 1:
            axes.legend(loc="best", handlelength=1.4)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write the figure; an existing file is replaced only when the new one is complete."""
    check_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    from matplotlib import rc_context

    with replacing(path) as temporary, rc_context(STYLE):
        figure.savefig(temporary)


def draw_in_terminal(groups: Sequence[Group], bands: Sequence[Band], axis: Axis, width: int, height: int) -> Text:
    from srl.terminal.drawing import Line, chart

    divisor, unit = _time_unit(max(float(band.x[-1]) for band in bands)) if axis == "time" else (1.0, "steps")
    lines = []
    for group, band in zip(groups, bands, strict=True):
        seeds = f" ({band.count} seeds, ± {band.interval[-1]:.3g} at the end)" if band.count > 1 else ""
        lines.append(Line(f"{group.label}{seeds}", band.x / divisor, band.mean))
    return chart(lines, width, height, unit)


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a figure must end in {', '.join(FORMATS)}; found {path.name!r}")


def _time_unit(seconds: float) -> tuple[float, str]:
    return (1.0, "s") if seconds < 300 else (60.0, "min") if seconds < 3 * 3600 else (3600.0, "h")
