"""Watching a run in the terminal, from its first snapshot to the report at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console

from srl.api.status import RunStatus
from srl.controller.diagnosis import diagnose
from srl.terminal.report import print_report
from srl.terminal.view import view_for


@contextmanager
def watching(
    console: Console | None = None,
) -> Iterator[tuple[Callable[[RunStatus], None], Callable[[RunStatus], None]]]:
    """Gives two functions: one to be told every snapshot, one to be told the last, with which the report is made. What
    held the run up is told there, too, as it was found while its workers still worked."""
    console = console or Console()
    view = view_for(console)

    found = ("", "")
    last: list[RunStatus] = []

    def observe(status: RunStatus) -> None:
        nonlocal found
        bottleneck, advice = diagnose(status)
        found = (bottleneck, advice) if bottleneck else found
        view.update(msgspec.structs.replace(status, bottleneck=bottleneck, advice=advice))

    try:
        with view:
            yield observe, last.append
    finally:
        if last:
            bottleneck, advice = found
            print_report(console, msgspec.structs.replace(last[0], bottleneck=bottleneck, advice=advice))
