"""The bottleneck of a run over time: when it can be measured, and what is shown meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from srl.api.status import RunStatus
from srl.controller.diagnosis import compilation, diagnose, first_update

MEASURED_SECONDS = 1.0  # minimum time over which a bottleneck is measured
CHANGED_SHARE = 0.1
"""Largest share of the workers that may be missing or new while the others are measured: the others wait for them."""


class Bottleneck:
    """The last diagnosis. It is measured from the first update on, and again after workers were replaced."""

    def __init__(self, forget: Callable[[], None]) -> None:
        """`forget` drops what the workers have done so far, so that only later work is measured."""
        self._forget = forget
        self._diagnosis = ("", "")
        self._since: float | None = None
        self._team: set[tuple[str, int]] = set()

    def of(self, status: RunStatus, now: float, is_learning: bool) -> tuple[str, str]:
        """Return the bottleneck and the advice, or what the run waits for, without advice. `is_learning`: after the
        first update."""
        settings = status.settings
        if compiles := compilation(status):
            self._restart(now)
            return compiles, ""
        if not is_learning:
            self._since = None
            if status.state == "running" and settings.batch and not settings.recorded:
                self._diagnosis = first_update(status)
            return self._diagnosis
        team = {(worker.name, worker.incarnation) for worker in status.workers if worker.state == "running"}
        if self._since is None:
            self._diagnosis = "", ""
        changed = len(team ^ self._team) + len(status.workers) - len(team)
        if self._since is None or changed > CHANGED_SHARE * len(status.workers):
            self._team = team
            self._restart(now)
        elif now - self._since >= MEASURED_SECONDS:
            self._team = team
            found = diagnose(status)
            self._diagnosis = found if any(found) else self._diagnosis  # keep the last one after workers have ended
        return self._diagnosis

    def _restart(self, now: float) -> None:
        self._since = now
        self._forget()
