"""Figures of learning curves, for papers and for the terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
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
Axis = Literal["steps", "time", "episodes"]
AXES: tuple[Axis, ...] = ("steps", "time", "episodes")
WIDTHS = {"column": 3.25, "page": 6.75}
"""Width of a figure in inches: one column and the whole page of a two-column paper."""
RATIO = 0.7  # height of a panel divided by its width


def find_groups(runs: Sequence[Any], root: Path = ROOT) -> list[Group]:
    """Find and group runs. Each is given as a run or a directory of runs, optionally with a label as `label=run`, or as
    an object with a `path`, such as a Run or a Sweep."""
    named: list[tuple[str, RunDirectory]] = []
    for each in runs:
        what = getattr(each, "path", each)
        label, separator, rest = str(what).partition("=")
        if isinstance(what, Path) or not separator:
            label, rest = "", str(what)
        named += [(label, run) for run in run_directory.find_all(rest, root)]
    if not named:
        raise ValueError("expected at least one run")
    return group_runs(named)


def bands_of(groups: Sequence[Group], metric: str, axis: Axis, smooth: float = 0.0) -> tuple[list[Group], list[Band]]:
    """Return the groups, one per policy if there are several, and their mean curves."""
    if not 0.0 <= smooth < 1.0:
        raise ValueError(f"smooth must be at least 0 and less than 1, found {smooth:g}")
    found = list(labeled_metrics(groups, metric))
    bands = []
    for group, name in found:
        seeds = [[read_curve(run, name).smoothed(smooth) for run in same] for same in group.by_seed()]
        bands.append(average(seeds, axis))
    return [group for group, _ in found], bands


def labeled_metrics(groups: Sequence[Group], metric: str) -> Iterator[tuple[Group, str]]:
    """Yield each group with the name of its metric. A group with several policies becomes one group per policy."""
    for group in groups:
        by_policy = policy_metrics(group.runs[0], metric)
        for policy, name in by_policy.items() or [("", metric)]:
            label = policy if len(groups) == 1 else f"{group.label} · {policy}"
            yield (replace(group, label=label) if policy else group), name


def plot(
    *runs: Any,
    metric: str = "return",
    x: Axis = "steps",
    smooth: float = 0.0,
    out: str | Path | None = None,
    title: str = "",
    width: str | float = "",
) -> Figure:
    """Return a matplotlib figure of learning curves: mean and 95 % interval over the seeds of each group, with a panel
    for each environment.

    A run is given by path, name or `latest`, or as a Run, a sweep by its directory or as a Sweep; `label=run` sets a
    label. `metric` is `return`, `eval`, `length`, `fps` or a name in metrics.jsonl or system.jsonl; `x` is `steps`,
    `time` or `episodes`; `smooth` is the weight of an exponential moving average. With `out`, the figure is also
    written to that file as png, pdf or svg. `width` is `column`, `page` or a number of inches.
    """
    if out is not None:
        check_format(Path(out))
    if x not in AXES:
        raise ValueError(f"x must be one of {', '.join(AXES)}; found {x!r}")
    figure = draw(*bands_of(find_groups(runs), metric, x, smooth), metric, x, title, parse_width(width))
    if out is not None:
        save(figure, Path(out))
    return figure


def inline_figure(**options: Any) -> Figure:
    """Return a figure without pyplot, which has global state and windows. A notebook shows it by `_repr_png_`."""
    from matplotlib.figure import Figure

    class InlineFigure(Figure):
        def _repr_png_(self) -> bytes:
            buffer = BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return InlineFigure(**options)


def parse_width(width: str | float) -> float | None:
    """Return the width of a figure in inches; None if it is left open."""
    if width == "":
        return None
    try:
        inches = WIDTHS[width] if isinstance(width, str) and width in WIDTHS else float(width)
    except ValueError:
        inches = 0.0
    if not 0.5 <= inches <= 100.0:
        raise ValueError(f"width must be {', '.join(WIDTHS)} or a number of inches, found {width!r}")
    return inches


def draw(
    groups: Sequence[Group],
    bands: Sequence[Band],
    metric: str,
    axis: Axis,
    title: str = "",
    width: float | None = None,
) -> Figure:
    """Draw one panel per environment. A label has the same color in all of them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('figures need matplotlib, which is not installed; pip install "srl-rl[plot]"')
    from matplotlib import rc_context

    environments = list(dict.fromkeys(group.environment for group in groups))
    columns = min(len(environments), 2 if width is not None and width < 5.0 else 3)
    rows = -(-len(environments) // columns)
    inches = width or (4.8 if columns == 1 else 3.2 * columns)
    labels = list(dict.fromkeys(group.label for group in groups))
    with rc_context({**STYLE, **({"font.size": 8, "axes.titlesize": 8} if inches / columns < 3.5 else {})}):
        # Without pyplot: no global state, no window.
        figure = inline_figure(figsize=(inches, rows * RATIO * inches / columns), dpi=200, layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel in panels[len(environments) :]:
            panel.remove()
        for number, (panel, environment) in enumerate(zip(panels, environments, strict=False)):
            shown = [pair for pair in zip(groups, bands, strict=True) if pair[0].environment == environment]
            _draw_panel(panel, shown, labels, axis)
            panel.set_title(title if title and len(environments) == 1 else environment)
            if number % columns == 0:
                panel.set_ylabel(Y_LABELS.get(metric, metric))
            if len(shown) > 1 or shown[0][1].count > 1:
                panel.legend(loc="best", handlelength=1.4)
        if title and len(environments) > 1:
            figure.suptitle(title)
    return figure


def _draw_panel(panel: Any, shown: Sequence[tuple[Group, Band]], labels: Sequence[str], axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    divisor, unit = _time_unit(max(float(band.x[-1]) for _, band in shown)) if axis == "time" else (1.0, "")
    for group, band in shown:
        color = COLORS[labels.index(group.label) % len(COLORS)]
        seeds = f" ({band.count} seeds)" if band.count > 1 else ""
        marker = "o" if band.x[0] == band.x[-1] else ""  # a single point has no line
        panel.plot(band.x / divisor, band.mean, color=color, marker=marker, label=f"{group.label}{seeds}")
        if band.count > 1:
            low, high = band.mean - band.interval, band.mean + band.interval
            panel.fill_between(band.x / divisor, low, high, color=color, alpha=0.18, linewidth=0)
    panel.set_xlabel(f"time [{unit}]" if axis == "time" else axis)
    panel.margins(x=0.01)
    panel.set_xlim(left=0)
    panel.xaxis.set_major_locator(MaxNLocator(6))
    if axis != "time":
        panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def save(figure: Figure, path: Path) -> None:
    """Write the figure; an existing file is replaced only when the new one is complete."""
    check_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    from matplotlib import rc_context

    with replacing(path) as temporary, rc_context(STYLE):
        figure.savefig(temporary)


def draw_in_terminal(groups: Sequence[Group], bands: Sequence[Band], axis: Axis, width: int, height: int) -> Text:
    """Draw one chart per environment."""
    from rich.text import Text

    from srl.terminal.drawing import Line, chart

    environments = list(dict.fromkeys(group.environment for group in groups))
    charts = []
    for environment in environments:
        shown = [pair for pair in zip(groups, bands, strict=True) if pair[0].environment == environment]
        divisor, unit = _time_unit(max(float(band.x[-1]) for _, band in shown)) if axis == "time" else (1.0, axis)
        lines = []
        for group, band in shown:
            seeds = f" ({band.count} seeds, ± {band.interval[-1]:.3g} at the end)" if band.count > 1 else ""
            lines.append(Line(f"{group.label}{seeds}", band.x / divisor, band.mean))
        if len(environments) > 1:
            charts.append(Text(environment, "bold"))
        charts.append(chart(lines, width, height + len(lines), unit))
    return Text("\n").join(charts)


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"a figure must end in {', '.join(FORMATS)}; found {path.name!r}")


def _time_unit(seconds: float) -> tuple[float, str]:
    return (1.0, "s") if seconds < 300 else (60.0, "min") if seconds < 3 * 3600 else (3600.0, "h")
