"""Tables for `srl ps`, graphs and `srl check-algo`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from srl.api.experiment import Experiment
from srl.api.status import RunStatus
from srl.storage.run_listing import ListedRun
from srl.terminal.formatting import count, duration, percent, rate, relative_path, return_of, returns
from srl.terminal.frame import STATES, stacked

BAR = 16
VERDICTS = {"pass": "green", "fail": "bold red", "not supported": "yellow"}


def ps_table(runs: Sequence[RunStatus]) -> RenderableType:
    """Return a table of runs, followed by the workers and the bottleneck of each active run."""
    parts: list[RenderableType] = [_runs(runs)]
    for status in runs:
        if status.workers and status.state in ("starting", "running"):
            aged = [memory for memory in status.replay if memory.max_target_age is not None]
            ages = ", ".join(f"{each.target_age} of {each.max_target_age} ({each.name})" for each in aged)
            rows = {"target age": ages, "bottleneck": status.bottleneck, "try": status.advice}
            lines = [Text().append(f"{label:<12}", "dim").append(value) for label, value in rows.items() if value]
            parts += [Text(), _workers(status), *lines]
    return Group(*parts)


def list_of_runs(runs: Sequence[ListedRun]) -> Text:
    """Return one line per run, neither truncated nor wrapped, so that it can be searched and copied."""
    headings = ("RUN", "STATE", "STEPS", "RETURN", "LAST", "PATH")
    rows = [
        (
            each.run,
            each.state,
            count(each.steps),
            returns(each.return_mean, each.returns),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(each.when)),
            relative_path(Path(each.path)),
        )
        for each in runs
    ]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    text = Text()
    for number, row in enumerate([headings, *rows]):
        for heading, value, width in zip(headings, row, widths, strict=True):
            cell = value.rjust(width) if heading in ("STEPS", "RETURN") else value.ljust(width)
            style = "dim" if number == 0 else STATES.get(value, "yellow") if heading == "STATE" else ""
            text.append(cell.rstrip() if heading == "PATH" else f"{cell}  ", style)
        text.append("\n" if number < len(rows) else "")
    return text


def graph_table(experiment: Experiment) -> Text:
    """Return one line per edge of the graph: source group, stream, target group."""
    size = {group.name: f"{group.name} ×{group.count}" for group in experiment.groups}
    kinds = {"push": "samples of", "request": "decisions of", "sample": "batches of", "parameters": "parameters of"}
    how = {"inline": " (inside each worker)", "host": "", "tcp": " (over TCP)"}
    edges = experiment.edges()
    streams = [f"{kinds[edge.kind]} {edge.stream}" for edge in edges]
    left = max((len(size[edge.source]) for edge in edges), default=0)
    middle = max(map(len, streams), default=0)
    lines = [
        f"{size[edge.source]:<{left}}  {stream:<{middle}}  ──▶  {size[edge.target]}{how[edge.where]}"
        for edge, stream in zip(edges, streams, strict=True)
    ]
    return Text("\n".join(lines), no_wrap=True)


def _runs(runs: Sequence[RunStatus]) -> Table:
    table = _table("RUN", "STATE", ">DONE", ">RETURN", ">TRAIN", ">TIME")
    table.columns[0].no_wrap, table.columns[0].overflow = False, "fold"
    for status in runs:
        share = min(1.0, status.steps / status.target_steps) if status.target_steps else None
        reason = f" ({status.reason})" if status.state in ("queued", "running") and status.reason else ""
        table.add_row(
            Text(status.run, "bold"),
            Text(f"{status.state}{reason}", STATES.get(status.state, "yellow")),
            count(status.steps) if share is None else percent(share),
            return_of(status),
            rate(status.train_fps),
            duration(status.elapsed),
        )
    return table


def _workers(status: RunStatus) -> Table:
    hosts = any(worker.host for worker in status.workers)
    table = _table("WORKER", *(["HOST"] if hosts else []), ">PID", "STATE", "BUSY", "", ">CPU", ">MEMORY", ">RESTARTS")
    table.title = Text(status.run, "bold")
    table.title_justify = "left"
    for worker in status.workers:
        table.add_row(
            worker.name,
            *([worker.host or "-"] if hosts else []),
            str(worker.pid) if worker.pid else "-",
            Text(worker.state, STATES.get(worker.state, "yellow")),
            stacked(worker.busy, BAR) if worker.busy else Text("·" * BAR, "bright_black"),
            percent(sum(worker.busy.values()) - worker.busy.get("waiting", 0.0)) if worker.busy else "-",
            f"{worker.cpu_percent:.0f} %",
            f"{worker.rss_mb:,.0f} MB",
            Text(str(worker.incarnation), "yellow" if worker.incarnation else "dim"),
        )
    return table


def _table(*headings: str) -> Table:
    """Return an empty table without borders. Columns whose heading begins with `>` are right-aligned."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading.lstrip(">"), justify="right" if heading.startswith(">") else "left", no_wrap=True)
    return table


def probe_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with one row per :class:`srl.checks.algorithm.ProbeResult`, each given as a dictionary."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("PROBE", "CHECKS", "EXPECTED", "FOUND", "VERDICT"):
        table.add_column(heading, overflow="fold")
    for result in results:
        at_most = result["bound"] == "at most"
        found = [f"{name} {number:.4g}" for name, number in result["found"].items()]
        table.add_row(
            Text(result["probe"], "bold"),
            result["finds"],
            "\n".join(f"{name} {'<= ' if at_most else ''}{number:.4g}" for name, number in result["expected"].items()),
            "\n".join([*found, *([result["note"]] if result["note"] else [])]),
            Text(result["verdict"], VERDICTS[result["verdict"]]),
        )
    return table
