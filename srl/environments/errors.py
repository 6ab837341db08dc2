"""What can go wrong with an environment beyond what its lane can bear."""

from __future__ import annotations

MAX_FAILURES_IN_A_ROW = 20


class EnvironmentBroken(RuntimeError):
    """An environment could not be built, or not be replaced after it failed; the message holds the facts."""


def one_more_failure(in_a_row: int, at_once: bool, report: str) -> int:
    """How often a copy broke in a row, with this time; EnvironmentBroken if no replacement gets beyond its first step.

    So nobody who steps lanes, with or without an actor around them, replaces an environment for ever. An actor gives up
    earlier: it counts all that break within a minute (`--max-env-failures`)."""
    in_a_row = in_a_row + 1 if at_once else 1
    if in_a_row >= MAX_FAILURES_IN_A_ROW:
        raise EnvironmentBroken(f"{report}\nIt broke {in_a_row} times in a row at its first step, and is given up")
    return in_a_row
