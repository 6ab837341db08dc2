"""The commands that reach a run from another terminal: `srl ps`, `stop` and `scale`."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from srl.storage import ROOT

if TYPE_CHECKING:
    from srl.api.status import RunStatus
    from srl.storage.run_listing import ListedRun


@dataclass(frozen=True)
class Ps:
    """Show the runs of this user that are going on, and their workers; with --all those that ended, too."""

    all: bool = False
    """Every run below the root: name, state, steps, last return, when it was last heard of, and where it lies; the
    newest last."""
    json: bool = False
    """One line of JSON for each run."""
    root: Path = ROOT
    """Directory below which runs are kept; those of a cluster are found there."""

    def run(self) -> int:
        statuses = _statuses(self.root)
        return self._show_all(statuses) if self.all else self._show_living(statuses)

    def _show_living(self, statuses: list[RunStatus]) -> int:
        import msgspec
        from rich.console import Console

        from srl.terminal.tables import ps_table

        if self.json:
            for status in statuses:
                print(msgspec.json.encode(status).decode())
        elif statuses:
            Console().print(ps_table(statuses))
        else:
            print("no run is going on; `srl ps --all` shows those that ended, `srl train CartPole-v1` starts one")
        return 0

    def _show_all(self, statuses: list[RunStatus]) -> int:
        from rich.console import Console

        from srl.storage.run_listing import list_runs
        from srl.terminal.tables import list_of_runs

        living = {status.path: _listed(status) for status in statuses}
        runs = [listed for listed in list_runs(self.root) if listed.path not in living]
        runs += living.values()
        if self.json:
            for listed in runs:
                print(json.dumps(asdict(listed)))
        elif runs:
            Console().print(list_of_runs(runs), soft_wrap=True)
        else:
            print(f"no runs in {self.root}; start one: `srl train CartPole-v1`")
        return 0


def _listed(status: RunStatus) -> ListedRun:
    from srl.storage.run_listing import ListedRun

    return ListedRun(status.run, status.state, status.steps, status.return_mean, time.time(), status.path)


def _statuses(root: Path) -> list[RunStatus]:
    from srl.controller.control_socket import live
    from srl.experiments.session.slurm_queue import queued
    from srl.schedulers.engines.slurm_commands import SlurmError

    living = live(root)
    waiting: list[RunStatus] = []
    try:
        waiting = [each.status() for each in queued(root, living)]
    except SlurmError as error:
        print(f"runs in Slurm's queue are not shown: {error}", file=sys.stderr)
    return [*waiting, *(status for _, status in living.values())]


@dataclass(frozen=True)
class Stop:
    """End a run: it writes a checkpoint and leaves; `srl resume` goes on from there. One that waits in Slurm's queue is
    taken out of it."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its name or a unique beginning of it; `latest` for the newest."""
    root: Path = ROOT
    """Directory below which runs are kept; those of a cluster are found there."""

    def run(self) -> int:
        from srl.controller.control_socket import ADDRESS, AskStop, ask, pick, running

        runs = running(self.root)
        try:
            name, runtime = pick(self.run_name, runs)
        except ValueError:
            return self._take_back(runs)
        ask(runtime, AskStop())
        deadline = time.monotonic() + 15.0
        while (runtime / ADDRESS).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if (runtime / ADDRESS).exists():
            raise RuntimeError(f"{name} has not stopped within 15 s; look for its process with `srl ps`, or kill it")
        print(f"{name} has stopped")
        return 0

    def _take_back(self, runs: dict[str, Path]) -> int:
        """Nobody answers: perhaps it is a job that waits."""
        from srl.controller.control_socket import STOP_REASON, pick
        from srl.experiments.session.slurm_queue import End, cancel, queued
        from srl.schedulers.engines.slurm_commands import describe_state

        waiting = {each.run: each for each in queued(self.root, runs)}
        name, _ = pick(self.run_name, {**runs, **{name: each.cluster for name, each in waiting.items()}})
        each = waiting[name]
        cancel(each.cluster, each.job, End("stopped", STOP_REASON))
        print(f"{name} has stopped: its job {each.job}, {describe_state(each.state, each.reason)}, was cancelled")
        return 0


@dataclass(frozen=True)
class Scale:
    """Change the number of a run's workers while it goes on: `srl scale RUN actors=4`, or `actors=+2`."""

    run_name: Annotated[Positional[str], arg(name="run", metavar="RUN")]
    """Its name or a unique beginning of it; `latest` for the newest."""
    groups: Positional[tuple[str, ...]]
    """GROUP=NUMBER, or GROUP=+NUMBER and GROUP=-NUMBER."""
    root: Path = ROOT
    """Directory below which runs are kept; those of a cluster are found there."""

    def run(self) -> int:
        from srl.controller.control_socket import AskScale, ask, pick, running

        _, runtime = pick(self.run_name, running(self.root))
        for change in self.groups:
            group, _, number = change.partition("=")
            try:
                count = int(number)
            except ValueError:
                raise ValueError(f"wanted GROUP=NUMBER, e.g. actors=4; found {change!r}") from None
            answer: Any = ask(runtime, AskScale(group, count, number[:1] in "+-"))
            if answer is None or not answer.ok:
                raise ValueError(answer.text if answer is not None else "the run did not answer")
            print(answer.text)
        return 0
