"""Comparisons of runs: final and best values with bootstrap intervals, time and speed, as tables and as a figure."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from srl.base.statistics import Interval, interquartile_mean, stratified_bootstrap
from srl.results.plot import (
    COLORS,
    RATIO,
    STYLE,
    Y_LABELS,
    find_groups,
    inline_figure,
    labeled_metrics,
    parse_width,
    save,
)
from srl.storage import ROOT
from srl.storage.curves import Curve, differing_options, group_options, read_curve, repeated_seeds, shown_value
from srl.terminal.formatting import count, duration, figure, rate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALL = "all"  # in the column of environments
LATEX = {"·": r"$\cdot$", "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
MAX_VALUES = 5  # of an option, in the sentence about options that differ


@dataclass(frozen=True)
class Row:
    """One group of runs that differ only in their seeds or, with environment `all`, the same group everywhere."""

    label: str
    environment: str
    options: Mapping[str, Any]  # those in which the groups of this environment differ
    seeds: int
    iqm: Interval | None  # interquartile mean over seeds; over environments and seeds of normalized values for `all`
    final: Interval | None = None  # mean over seeds of each run's last tenth
    best: Interval | None = None  # mean over seeds of each run's highest value
    seconds: float | None = None  # median over runs
    speed: float | None = None  # steps per second of the whole run, also for one of its policies


@dataclass(frozen=True)
class Comparison:
    """A comparison of runs. It prints as a table, and a notebook shows it as one."""

    metric: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        rows = self._cells()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
            cells[:2] = [cell.ljust(width) for cell, width in zip(row[:2], widths, strict=False)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def _repr_html_(self) -> str:
        head, *rows = self._cells()
        tags = [("th", head), *(("td", row) for row in rows)]
        lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in tags)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><tr>{'</tr><tr>'.join(lines)}</tr></table>{notes}"

    def markdown(self) -> str:
        """Return the table in Markdown."""
        head, *rows = self._cells()
        lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2), *rows]
        return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        head, *rows = ([_latex(cell) for cell in row] for row in self._cells())
        lines = [
            rf"\begin{{tabular}}{{ll{'r' * (len(head) - 2)}}}",
            r"\toprule",
            " & ".join(head) + r" \\",
            r"\midrule",
        ]
        return "\n".join([*lines, *(" & ".join(row) + r" \\" for row in rows), r"\bottomrule", r"\end{tabular}"])

    def csv(self) -> str:
        """Return all figures as CSV, with a column for each option that differs."""
        options = list(dict.fromkeys(name for row in self.rows for name in row.options))
        parts = [f"{name}{end}" for name in ("final", "best", "iqm") for end in ("", "_low", "_high")]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["label", "environment", *options, "seeds", *parts, "seconds", "steps_per_second"])
        for row in self.rows:
            intervals = [each or Interval(np.nan) for each in (row.final, row.best, row.iqm)]
            figures = [number for each in intervals for number in (each.value, each.low, each.high)]
            cells = ["" if value is None or value != value else value for value in (*figures, row.seconds, row.speed)]
            values = [json.dumps(row.options[name]).strip('"') if name in row.options else "" for name in options]
            writer.writerow([row.label, row.environment, *values, row.seeds, *cells])
        return out.getvalue().rstrip("\n")

    def _cells(self) -> list[list[str]]:
        cells = [["runs", "environment", "seeds", "final", "best", "IQM", "time", "speed"]]
        for row in self.rows:
            values = [_shown(each) for each in (row.final, row.best, row.iqm)]
            time = "" if row.seconds is None else duration(row.seconds)
            speed = "" if row.speed is None else rate(row.speed)
            cells.append([row.label, row.environment, count(row.seeds), *values, time, speed])
        return cells


def compare(
    *runs: Any,
    metric: str = "return",
    normalize: Mapping[str, tuple[float, float]] | None = None,
    out: str | Path | None = None,
    width: str | float = "",
    root: str | Path = ROOT,
) -> Comparison:
    """Compare runs, which are given as for :func:`srl.plot`, by a metric.

    The final value of a run is the mean over the last tenth of its steps, the best one the maximum of its curve.
    Intervals are 95 % bootstrap intervals over seeds. With several environments, the interquartile mean over all
    environments and seeds is of normalized values: `normalize` names the values that become 0 and 1 for each
    environment, by default the lowest and the highest final value of the compared runs. With `out`, a figure of the
    intervals is written.
    """
    inches = parse_width(width)
    groups = find_groups(runs, Path(root))
    notes = repeated_seeds(groups)
    finals: dict[tuple[str, str], list[float]] = {}
    rows: list[Row] = []
    for group, name in labeled_metrics(groups, metric):
        seeds = [curves for same in group.by_seed() if (curves := _curves(same, name, notes))]
        if not seeds:
            continue
        final = [float(np.mean([curve.final() for curve in same])) for same in seeds]
        best = [float(np.mean([curve.values.max() for curve in same])) for same in seeds]
        finals[group.label, group.environment] = final
        curves = [curve for same in seeds for curve in same]
        ends = [curve.end for curve in curves]
        seconds = float(np.median([elapsed for _, elapsed in ends]))
        speeds = [steps / elapsed for steps, elapsed in ends if elapsed > 0]
        options = group_options(group.runs[0].read_raw_config())
        speed = float(np.median(speeds)) if speeds else None
        iqm = stratified_bootstrap([final], interquartile_mean)
        means = stratified_bootstrap([final]), stratified_bootstrap([best])
        rows.append(Row(group.label, group.environment, options, len(seeds), iqm, *means, seconds, speed))
    if not rows:
        read_curve(groups[0].runs[0], metric)  # raises with the nearest name
    rows, differing = _with_differences(rows)
    environments = list(dict.fromkeys(row.environment for row in rows))
    limits = _limits(finals, environments, normalize or {})
    if differing:
        notes.insert(0, f"options that differ: {'; '.join(differing)}")
    if len(environments) > 1:
        if single := [name for name, (low, high) in limits.items() if low == high]:
            notes.append(
                f"no IQM of all environments: {', '.join(single)} with only one final value, so that nothing says "
                "which values become 0 and 1; give them with --normalize ENV=LOW,HIGH"
            )
        else:
            rows += _over_environments(finals, environments, limits, notes)
    comparison = Comparison(metric, tuple(rows), tuple(notes))
    if out is not None:
        save(draw(comparison, inches), Path(out))
    return comparison


def _curves(runs: Sequence[Any], name: str, notes: list[str]) -> list[Curve]:
    """Return the curves of runs; one without the metric is left out, with a note."""
    found = []
    for run in runs:
        try:
            found.append(read_curve(run, name))
        except ValueError:
            notes.append(f"{run.name} has no values of {name}: left out")
            continue
        status = run.read_status()
        if status is not None and status.state != "finished":
            notes.append(f"{run.name} {status.state} after {status.steps:,} of {status.target_steps:,} steps")
    return found


def _with_differences(rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Return the rows with only those options that differ in their environment, and these options with their values."""
    found: list[Row] = []
    values: dict[str, list[str]] = {}
    for environment in dict.fromkeys(row.environment for row in rows):
        same = [row for row in rows if row.environment == environment]
        names = differing_options([row.options for row in same])
        for row in same:
            options = {name: row.options.get(name) for name in names}
            found.append(Row(**{**vars(row), "options": options}))
            for name, value in options.items():
                if (text := shown_value(value)) not in values.setdefault(name, []):
                    values[name].append(text)
    shown = {
        name: [*texts[:MAX_VALUES], *(["..."] if len(texts) > MAX_VALUES else [])] for name, texts in values.items()
    }
    return found, [f"{name} ({', '.join(texts)})" for name, texts in shown.items()]


def _limits(
    finals: Mapping[tuple[str, str], Sequence[float]],
    environments: Sequence[str],
    normalize: Mapping[str, tuple[float, float]],
) -> dict[str, tuple[float, float]]:
    """Return the values of each environment that become 0 and 1."""
    for environment in normalize:
        if environment not in environments:
            raise ValueError(f"no run of {environment!r} to normalize; there are {', '.join(environments)}")
    limits = {}
    for environment in environments:
        values = [value for (_, where), found in finals.items() if where == environment for value in found]
        low, high = normalize.get(environment, (min(values), max(values)))
        if low == high and environment in normalize:
            raise ValueError(
                f"--normalize {environment}: the values that become 0 and 1 must differ, found {low:g} twice"
            )
        limits[environment] = low, high
    return limits


def _over_environments(
    finals: Mapping[tuple[str, str], Sequence[float]],
    environments: Sequence[str],
    limits: Mapping[str, tuple[float, float]],
    notes: list[str],
) -> list[Row]:
    """Return a row for each label with its interquartile mean over environments and seeds."""
    rows = []
    for label in dict.fromkeys(label for label, _ in finals):
        strata = []
        for environment in environments:
            if (found := finals.get((label, environment))) is None:
                notes.append(f"{label} has no run in {environment}: its mean is over fewer environments")
                continue
            low, high = limits[environment]
            strata.append([(value - low) / (high - low) for value in found])
        iqm = stratified_bootstrap(strata, interquartile_mean)
        rows.append(Row(label, ALL, {}, sum(map(len, strata)), iqm))
    shown = ", ".join(f"{name} {figure(low)} to {figure(high)}" for name, (low, high) in limits.items())
    notes.append(f"IQM of {ALL}: interquartile mean over environments and seeds of final values, normalized by {shown}")
    return rows


def draw(comparison: Comparison, width: float | None = None) -> Figure:
    """Draw the final values and their intervals: one panel per environment, and one for all of them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError('figures need matplotlib, which is not installed; pip install "srl-rl[plot]"')
    from matplotlib import rc_context

    environments = list(dict.fromkeys(row.environment for row in comparison.rows))
    labels = list(dict.fromkeys(row.label for row in comparison.rows))
    inches = width or (4.8 if len(environments) == 1 else 2.4 * len(environments))
    height = max(RATIO * 1.5, 0.5 + 0.25 * len(labels))
    with rc_context({**STYLE, **({"font.size": 8, "axes.titlesize": 8} if inches < 3.5 * len(environments) else {})}):
        made = inline_figure(figsize=(inches, height), dpi=200, layout="constrained")
        panels = made.subplots(1, len(environments), squeeze=False, sharey=True)[0]
        for panel, environment in zip(panels, environments, strict=True):
            panel.use_sticky_edges = False  # otherwise the lowest bar would touch the frame
            for row in comparison.rows:
                if row.environment != environment:
                    continue
                at, color = labels.index(row.label), COLORS[labels.index(row.label) % len(COLORS)]
                interval = row.final or row.iqm or Interval(np.nan)
                if interval.low is not None and interval.high is not None:
                    panel.barh(at, interval.high - interval.low, 0.6, interval.low, color=color, alpha=0.4, linewidth=0)
                panel.plot([interval.value] * 2, [at - 0.3, at + 0.3], color=color)
            panel.set_title(environment)
            panel.set_xlabel(
                "normalized IQM" if environment == ALL else Y_LABELS.get(comparison.metric, comparison.metric)
            )
        panels[0].set_yticks(range(len(labels)), labels)
        panels[0].invert_yaxis()
    return made


def parse_limits(words: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the values of each environment that become 0 and 1: `Pong-v5=-20.7,14.6`."""
    limits = {}
    for word in words:
        name, _, text = word.rpartition("=")
        try:
            low, high = map(float, text.split(","))
        except ValueError:
            raise ValueError(f"--normalize takes ENV=LOW,HIGH, e.g. CartPole-v1=20,500; found {word!r}") from None
        limits[name] = low, high
    return limits


def _shown(interval: Interval | None) -> str:
    if interval is None:
        return ""
    ends = "" if interval.low is None else f" [{figure(interval.low)}, {figure(interval.high)}]"
    return figure(interval.value) + ends


def _latex(text: str) -> str:
    return "".join(LATEX.get(char, "\\" + char if char in "&%$#_{}" else char) for char in text)
