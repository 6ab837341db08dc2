"""Watching a run in the terminal, from its first snapshot to the report at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console

from srl.api.status import RunStatus
from srl.terminal.bottleneck import Tuning, diagnose
from srl.terminal.report import print_report
from srl.terminal.view import view_for


@contextmanager
def watching(
    tuning: Tuning, console: Console | None = None
) -> Iterator[tuple[Callable[[RunStatus], None], Callable[[RunStatus], None]]]:
    """Gives two functions: one to be told every snapshot, one to be told the last, which prints the report."""
    console = console or Console()
    view = view_for(console)

    def observe(status: RunStatus) -> None:
        bottleneck, advice = diagnose(status, tuning)
        view.update(msgspec.structs.replace(status, bottleneck=bottleneck, advice=advice))

    last: list[RunStatus] = []
    with view:
        yield observe, last.append
    if last:
        print_report(console, last[0])
