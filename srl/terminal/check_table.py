"""The table of `srl check-algo`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

STYLES = {"pass": "green", "fail": "bold red", "not supported": "yellow"}


def probe_table(results: Sequence[Mapping[str, Any]]) -> Table:
    """One row for each probe; the keys are those of :class:`srl.checks.algorithm.ProbeResult`."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("PROBE", "FINDS OUT", "WANTED", "FOUND", "VERDICT"):
        table.add_column(heading, overflow="fold")
    for result in results:
        at_most = result["bound"] == "at most"
        found = [f"{name} {number:.4g}" for name, number in result["found"].items()]
        table.add_row(
            Text(result["probe"], "bold"),
            result["finds"],
            "\n".join(f"{name} {'<= ' if at_most else ''}{number:.4g}" for name, number in result["wanted"].items()),
            "\n".join([*found, *([result["note"]] if result["note"] else [])]),
            Text(result["verdict"], STYLES[result["verdict"]]),
        )
    return table
