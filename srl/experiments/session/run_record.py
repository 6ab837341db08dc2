"""The record of a run: a row per update, evaluation and report, every episode, and rows for speed and events."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from srl.api.control import EpisodeReport, MetricsReport, OptionValue, UpdateRecord
from srl.api.status import EvaluationStatus, RunStatus
from srl.base.files import Losses
from srl.controller.gauges import Gauges
from srl.controller.metrics import evaluation_row, report_row, system_row, update_row
from srl.storage.episode_file import EpisodeFile
from srl.storage.metric_rows import EVENT, RowFile, last_updates
from srl.storage.run_directory import RunDirectory

SYSTEM_SECONDS = 1.0
"""Time between rows of system.jsonl. It starts at a quarter of this, so that short runs have several."""
SYSTEM_ROWS = 20_000
"""Number of rows after which the time between them grows in proportion to the duration of the run."""


class RunRecord:
    """Writer of metrics.jsonl, episodes.bin and system.jsonl. Every row is one write: a process killed at any moment
    loses none."""

    def __init__(self, run: RunDirectory, losses: Losses, with_episodes: bool = True, every: int = 1) -> None:
        """`every`: number of updates in one row."""
        self._run = run
        self._metrics = RowFile(run.metrics, losses)
        self._system = RowFile(run.system, losses)
        self._episodes = EpisodeFile(run.episodes, losses) if with_episodes else None
        self._hosts: dict[str, str] = {}  # worker -> its host
        self._every = every
        self._waiting: dict[str, list[UpdateRecord]] = {}  # policy -> updates for its next row
        self._changes: dict[str, OptionValue] = {}  # columns of the options that have changed
        self._measured = 0.0

    def last_updates(self, resumed: Mapping[str, int] | None) -> dict[str, int]:
        """Return the update of each policy up to which the record stays as it is. A run that is `resumed` from these
        versions repeats later updates, whose rows replace the first ones."""
        written = last_updates(self._run.metrics)
        if resumed is None:
            return written
        last = {policy: min(version, written.get(policy, version)) for policy, version in resumed.items()}
        if self._episodes is not None:
            self._episodes.resume(last)
        return last

    def add(
        self,
        message: UpdateRecord | EpisodeReport | MetricsReport,
        gauges: Gauges,
        changes: Mapping[str, OptionValue],
    ) -> dict[str, Any]:
        """Write the row of an update or of a worker's report, which the gauges have processed. `changes` are options
        that have changed during the run. Return the row of an update, otherwise an empty one."""
        if self._episodes is not None and isinstance(message, (UpdateRecord, EpisodeReport)):
            step = gauges.recorded_step
            self._episodes.add(message.policy, message.update, step, message.episodes, self._hosts)
        if isinstance(message, UpdateRecord):
            self._changes = options = {f"option/{name}": value for name, value in changes.items()}
            waiting = self._waiting.setdefault(message.policy, [])
            waiting.append(message)
            row = _row([message], gauges, options)
            if len(waiting) >= self._every:
                self._write_updates(message.policy, gauges, row if self._every == 1 else _row(waiting, gauges, options))
            return {"step": gauges.recorded_step, **row}
        if isinstance(message, MetricsReport):
            now = time.time()
            policy = message.policy if gauges.several and message.policy in gauges.policies else ""
            self._metrics.append(gauges.recorded_step, report_row(message.metrics, now - gauges.began, policy), now)
        return {}

    def _write_updates(self, policy: str, gauges: Gauges, row: Mapping[str, Any]) -> None:
        """Write the row of the updates of a policy that wait for it."""
        self._metrics.append(gauges.recorded_step, row, self._waiting.pop(policy)[-1].time)

    def add_evaluation(self, evaluation: EvaluationStatus, elapsed: float, name: str, several: bool) -> None:
        row = evaluation_row(evaluation, elapsed, name, name if several else "")
        self._metrics.append(evaluation.step, row, time.time())

    def add_event(self, gauges: Gauges, event: str, text: str) -> None:
        """Write a row for an event of the run, such as `worker`, `host lost`, `callback`, `checkpoint` or `resume`."""
        now = time.time()
        row = {"kind": EVENT, "elapsed": round(now - gauges.began, 3), "event": event, "text": text}
        self._system.append(gauges.recorded_step, row, now)

    def measure(self, status: RunStatus) -> None:
        """Write a row on the system if one is due."""
        self._hosts = {worker.name: worker.host for worker in status.workers}
        now = time.monotonic()
        due = max(SYSTEM_SECONDS * min(1.0, max(0.25, status.elapsed / 60.0)), status.elapsed / SYSTEM_ROWS)
        if now - self._measured >= due or status.state not in ("starting", "running"):
            self._measured = now
            self._system.append(status.steps, system_row(status), time.time())

    @property
    def complete(self) -> bool:
        """Whether every row is in its file, so that agents need not keep their reports."""
        return self._metrics.complete and (self._episodes is None or self._episodes.complete)

    def close(self, gauges: Gauges) -> None:
        for policy, records in list(self._waiting.items()):
            self._write_updates(policy, gauges, _row(records, gauges, self._changes))
        if self._episodes is not None:
            self._episodes.close()
        self._metrics.close()
        self._system.close()


def _row(records: Sequence[UpdateRecord], gauges: Gauges, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row for updates of a policy."""
    *earlier, last = records
    return {**update_row(last, last.time - gauges.began, last.policy if gauges.several else "", earlier), **options}
