"""Commands that watch and control runs from another terminal: `srl ps`, `logs`, `scale` and `stop`."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.cli.parser import RunCommand, flag, positional
from srl.storage import ROOT

if TYPE_CHECKING:
    from srl.api.status import RunStatus
    from srl.storage.run_listing import ListedRun

FOLLOW_SECONDS = 0.2


@dataclass(frozen=True)
class Ps:
    """List your active runs and their workers; with --all, include finished runs."""

    all: bool = False
    """List every run in the directory, newest last: name, state, steps, last return, last activity, and path."""
    json: bool = False
    """Print one line of JSON per run."""
    root: Path = flag("DIR", ROOT)
    """Directory of all runs, including those on a cluster."""

    def run(self) -> int:
        import msgspec
        from rich.console import Console

        from srl.storage.run_listing import list_runs
        from srl.terminal.tables import list_of_runs, ps_table

        rows: list[Any] = _statuses(self.root)
        if self.all:
            active = {status.path: _listed(status) for status in rows}
            rows = [*(run for run in list_runs(self.root) if run.path not in active), *active.values()]
        if self.json:
            for row in rows:
                print(msgspec.json.encode(row).decode())
        elif rows:
            Console().print(list_of_runs(rows) if self.all else ps_table(rows), soft_wrap=self.all)
        elif self.all:
            print(f"no runs in {self.root}; start one: `srl train CartPole-v1`")
        else:
            print("no run is active; `srl ps --all` lists those that ended, `srl train CartPole-v1` starts one")
        return 0


def _listed(status: RunStatus) -> ListedRun:
    from srl.storage.run_listing import ListedRun

    returns = {name: policy.return_mean for name, policy in status.policies.items()} if len(status.policies) > 1 else {}
    return ListedRun(status.run, status.state, status.steps, status.return_mean, time.time(), status.path, returns)


def _statuses(root: Path) -> list[RunStatus]:
    from srl.controller.control_socket import live
    from srl.experiments.session.slurm_queue import queued
    from srl.schedulers.engines.slurm_commands import SlurmError

    active = live(root)
    waiting: list[RunStatus] = []
    try:
        waiting = [each.status() for each in queued(root, active)]
    except SlurmError as error:
        print(f"runs in Slurm's queue are not shown: {error}", file=sys.stderr)
    return [*waiting, *(status for _, status in active.values())]


@dataclass(frozen=True)
class Logs(RunCommand):
    """Show the output of a run's workers and agents on all hosts: `srl logs RUN`, or `srl logs RUN actors/0`."""

    worker: str = positional("WORKER", "")
    """Worker whose log to show. Default: all."""
    follow: bool = False
    """Keep printing as the logs grow, until interrupted."""

    def run(self) -> int:
        from srl.base.errors import nearest
        from srl.storage.run_directory import find

        run = find(self.run_name, self.root, include_empty=True)
        known = sorted(path.stem for path in run.logs.glob("*.log"))
        wanted = run.log(self.worker).stem if self.worker else ""
        if wanted and wanted not in known:
            raise ValueError(f"no log for worker {self.worker!r} in {run.logs}{nearest(wanted, known)}")
        shown: dict[str, int] = {}
        while True:
            for path in sorted(run.logs.glob(f"{wanted or '*'}.log")):
                self._show(path, shown)
            if not self.follow:
                return 0
            time.sleep(FOLLOW_SECONDS)

    def _show(self, path: Path, shown: dict[str, int]) -> None:
        with path.open("rb") as file:
            file.seek(shown.get(path.stem, 0))
            text = file.read().decode(errors="replace")
            shown[path.stem] = file.tell()
        head = "" if self.worker else f"{path.stem}: "
        for line in text.splitlines():
            print(f"{head}{line}")


@dataclass(frozen=True)
class Stop(RunCommand):
    """Stop a run after it has written a checkpoint, from which `srl resume` continues. A run in Slurm's queue is
    canceled."""

    def run(self) -> int:
        from srl.controller.control_socket import ADDRESS, StopRequest, ask, pick, running

        runs = running(self.root)
        try:
            name, runtime = pick(self.name(), runs)
        except ValueError:
            return self._cancel(runs)
        ask(runtime, StopRequest())
        deadline = time.monotonic() + 15.0
        while (runtime / ADDRESS).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if (runtime / ADDRESS).exists():
            raise RuntimeError(
                f"{name} has not stopped within 15 s; find its process with `srl ps`, and kill it if necessary"
            )
        print(f"{name} has stopped")
        return 0

    def _cancel(self, runs: dict[str, Path]) -> int:
        """Cancel a run that does not answer because its job is still in the queue."""
        from srl.controller.control_socket import STOP_REASON, pick
        from srl.experiments.session.slurm_queue import End, cancel, queued
        from srl.schedulers.engines.slurm_commands import describe_state

        waiting = {each.run: each for each in queued(self.root, runs)}
        if self._has_ended(waiting):
            return 0
        name, _ = pick(self.name(), {**runs, **{name: each.cluster for name, each in waiting.items()}})
        each = waiting[name]
        cancel(each.cluster, each.job, End("stopped", STOP_REASON))
        print(f"{name} has stopped: its job {each.job}, {describe_state(each.state, each.reason)}, was canceled")
        return 0

    def _has_ended(self, waiting: Container[str]) -> bool:
        """Return whether the run has already ended, and print a message if so."""
        from srl.storage.run_directory import RunDirectoryError, find

        with contextlib.suppress(RunDirectoryError):
            run = find(self.run_name, self.root)
            if run.name not in waiting and (status := run.read_status()) is not None:
                print(f"{run.name} has already ended: {status.state}")
                return True
        return False


@dataclass(frozen=True)
class Scale(RunCommand):
    """Change the number of workers in an active run: `srl scale RUN actors=4`, or `actors=+2`."""

    groups: tuple[str, ...] = positional("GROUP=NUMBER")
    """New number of workers in a group, absolute (actors=4) or relative (actors=+2, actors=-1)."""

    def run(self) -> int:
        from srl.controller.control_socket import ScaleRequest, ask, pick, running

        _, runtime = pick(self.name(), running(self.root))
        for change in self.groups:
            group, _, number = change.partition("=")
            try:
                count = int(number)
            except ValueError:
                raise ValueError(f"expected GROUP=NUMBER, e.g. actors=4; found {change!r}") from None
            answer: Any = ask(runtime, ScaleRequest(group, count, number[:1] in "+-"))
            if answer is None or not answer.ok:
                raise ValueError(answer.text if answer is not None else "the run did not answer")
            print(answer.text)
        return 0
