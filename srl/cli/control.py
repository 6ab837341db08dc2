"""Commands that watch and control runs from another terminal: `srl ps`, `logs`, `scale`, `change` and `stop`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srl.cli.parser import RunCommand, flag, positional
from srl.storage import ROOT
from srl.storage.run_directory import all_runs, as_text, scan

if TYPE_CHECKING:
    from srl.api.status import RunStatus
    from srl.api.transport import Message
    from srl.storage.run_listing import ListedRun

FOLLOW_SECONDS = 0.2
STOP_SECONDS = 15.0
APPEAR_SECONDS = 3.0  # time for which `srl stop` waits for a run that is just starting or resuming


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
            for path, reason in scan(self.root)[1].items():
                print(f"{as_text(path)} is not shown: {reason}", file=sys.stderr)
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
    from srl.experiments.session.slurm_queue import queued, submitted
    from srl.schedulers.engines.slurm_commands import SlurmError

    active = live(submitted(root))
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
        if not known and not self.follow:
            raise ValueError(
                f"{run.name} has no logs; the workers of an inline run never have any, because its command shows their "
                "output"
            )
        if wanted and wanted not in known:
            raise ValueError(f"no log for worker {self.worker!r} in {run.logs}{nearest(wanted, known)}")
        shown: dict[str, tuple[int, int]] = {}
        while True:
            for path in sorted(run.logs.glob(f"{wanted or '*'}.log")):
                self._show(path, shown)
            if not self.follow:
                return 0
            time.sleep(FOLLOW_SECONDS)

    def _show(self, path: Path, shown: dict[str, tuple[int, int]]) -> None:
        """Print what was added to a log since it was `shown`, up to an inode and a position."""
        from srl.base.files import rotated

        inode, position = shown.get(path.stem, (0, 0))
        text = b""
        with path.open("rb") as file:
            if (current := os.fstat(file.fileno()).st_ino) != inode:  # a long log is continued in a new file
                with contextlib.suppress(FileNotFoundError):
                    text = rotated(path).read_bytes()[position:]
                position = 0
            file.seek(position)
            text += file.read()
            shown[path.stem] = current, file.tell()
        head = "" if self.worker else f"{path.stem}: "
        for line in text.decode(errors="replace").splitlines():
            print(f"{head}{line}")


@dataclass(frozen=True)
class Stop(RunCommand):
    """Stop a run after it has written a checkpoint, from which `srl resume` continues. A run in Slurm's queue is
    canceled."""

    def run(self) -> int:
        deadline = time.monotonic() + APPEAR_SECONDS
        while True:
            is_last = time.monotonic() > deadline
            try:
                if self._stop(is_last):
                    return 0
            except ValueError:
                if is_last:
                    raise
            time.sleep(0.1)

    def _stop(self, is_last: bool) -> bool:
        """Stop the run, and return whether that is done. A run that has ended may be about to resume, so that only the
        last attempt accepts its end."""
        from srl.controller.control_socket import ADDRESS, StopRequest, ask, pick, running
        from srl.experiments.session.slurm_queue import submitted

        runs = running(submitted(self.root))
        try:
            name, runtime = pick(self.name(), runs, self.root)
        except ValueError:
            return self._signal() or self._cancel(runs, is_last)
        ask(runtime, StopRequest())
        self._wait(name, lambda: (runtime / ADDRESS).exists())
        return True

    def _wait(self, name: str, goes_on: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STOP_SECONDS
        while goes_on():
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{name} has not stopped within {STOP_SECONDS:.0f} s; find its process with `srl ps`, and kill it "
                    "if necessary"
                )
            time.sleep(0.05)
        print(f"{name} has stopped")

    def _signal(self) -> bool:
        """Send SIGTERM to a run on this host that does not answer, for example because it is just starting. Return
        whether there is one."""
        from srl.controller.control_socket import CLUSTER, pick
        from srl.storage.run_ownership import is_owned, signal_owner

        found = {run.name: run.path for run in all_runs(self.root)}
        with contextlib.suppress(FileNotFoundError):  # a new run has no config yet
            found |= {path.name: path for path in self.root.expanduser().iterdir() if path.is_dir()}
        # A job on Slurm that gets SIGTERM is queued again.
        owned = {name: path for name, path in found.items() if not (path / CLUSTER).exists() and is_owned(path)}
        try:
            name, path = pick(self.name(), owned)
        except ValueError:
            return False
        signal_owner(path, signal.SIGTERM)
        self._wait(name, lambda: is_owned(path))
        return True

    def _cancel(self, runs: dict[str, Path], is_last: bool) -> bool:
        """Cancel a run that does not answer because its job is still in the queue. Return whether that is done."""
        from srl.controller.control_socket import STOP_REASON, pick
        from srl.experiments.session.slurm_queue import End, cancel, queued
        from srl.schedulers.engines.slurm_commands import describe_state

        waiting = {each.run: each for each in queued(self.root, runs)}
        if (ended := self._end_of(waiting)) is not None:
            if is_last:
                print(ended)
            return is_last
        name, _ = pick(self.name(), {**runs, **{name: each.cluster for name, each in waiting.items()}})
        each = waiting[name]
        cancel(each.cluster, each.job, End("stopped", STOP_REASON))
        print(f"{name} has stopped: its job {each.job}, {describe_state(each.state, each.reason)}, was canceled")
        return True

    def _end_of(self, waiting: Container[str]) -> str | None:
        """Return a message if the run has already ended."""
        from srl.storage.run_directory import RunDirectoryError, find

        with contextlib.suppress(RunDirectoryError):
            run = find(self.run_name, self.root)
            if run.name not in waiting and (status := run.read_status()) is not None:
                return f"{run.name} has already ended: {status.state}"
        return None


@dataclass(frozen=True)
class LiveCommand(RunCommand):
    """A command that sends requests to an active run."""

    def _send(self, requests: Sequence[Message]) -> int:
        from srl.controller.control_socket import ask, pick, running
        from srl.experiments.session.slurm_queue import submitted

        _, runtime = pick(self.name(), running(submitted(self.root)), self.root)
        for request in requests:
            answer: Any = ask(runtime, request)
            if answer is None or not answer.ok:
                raise ValueError(answer.text if answer is not None else "the run did not answer")
            print(answer.text)
        return 0


@dataclass(frozen=True)
class Save(LiveCommand):
    """Write a checkpoint of an active run now."""

    def run(self) -> int:
        from srl.controller.control_socket import SaveRequest

        return self._send([SaveRequest()])


@dataclass(frozen=True)
class Scale(LiveCommand):
    """Change the number of workers in an active run: `srl scale RUN actors=4`, or `actors=+2`."""

    groups: tuple[str, ...] = positional("GROUP=NUMBER")
    """New number of workers in a group, absolute (actors=4) or relative (actors=+2, actors=-1)."""

    def run(self) -> int:
        from srl.controller.control_socket import ScaleRequest

        requests = []
        for change in self.groups:
            group, _, number = change.partition("=")
            try:
                count = int(number)
            except ValueError:
                raise ValueError(f"expected GROUP=NUMBER, e.g. actors=4; found {change!r}") from None
            requests.append(ScaleRequest(group, count, number[:1] in "+-"))
        return self._send(requests)


@dataclass(frozen=True)
class Change(LiveCommand):
    """Change options of an active run, for example `srl change RUN learning_rate=1e-4` or `env.difficulty=3`.

    What can change is declared by the algorithm (for PPO: learning_rate, entropy_coefficient, clip, value_coefficient,
    target_kl, epochs, max_grad_norm), plus attributes of the environments as `env.NAME`. A changed option keeps its
    value to the end of the run, also if it had a schedule. `POLICY/NAME=VALUE` changes one policy of several.
    """

    options: tuple[str, ...] = positional("NAME=VALUE")
    """New value of an option."""

    def run(self) -> int:
        from srl.controller.control_socket import ChangeRequest
        from srl.experiments.options.setting_texts import parse_pairs

        pairs = parse_pairs(self.options)
        for name, value in pairs.items():
            if not isinstance(value, (bool, int, float, str)):
                raise ValueError(f"{name} must be a number, a text, true or false; found {value!r}")
        return self._send([ChangeRequest(name.replace("-", "_"), value) for name, value in pairs.items()])
