"""Processes of a sweep: one per run, forked from a server that has imported everything a run needs.

Importing takes several seconds, more than a small run. The server also keeps the sweep's own process, which may be a
notebook with threads, from being forked. It ends all runs when the sweep's process ends, for whatever reason.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from srl.api.status import RunStatus
from srl.base.config import TrustCode, from_data, to_data
from srl.base.errors import explain, last_line
from srl.base.process import recorded_stop_requests, signal_on_parent_death
from srl.controller.control_socket import CLUSTER
from srl.experiments.session.launch import NothingToTrain, followed, resume, start
from srl.experiments.session.run import Run
from srl.experiments.session.session import OnStatus
from srl.experiments.session.slurm_queue import is_active, job_of
from srl.experiments.sweeps.plan import Member
from srl.schedulers.local.zygote_launch import ENVIRONMENT
from srl.storage import checkpoints
from srl.storage.run_directory import RunDirectory, read_group

POLL_SECONDS = 0.1
ENDING_SECONDS = 60.0
"""Time for which a member waits for an earlier process of the same run to end."""
FINISHED, FAILED, STOPPED = 0, 1, 2
"""Exit codes of a member's process."""


class MemberProcesses:
    """The running members of a sweep."""

    def __init__(self, trust_code: bool = False) -> None:
        self._trust_code = trust_code
        self.running: dict[str, Member] = {}
        self._cores: dict[str, list[int]] = {}
        self._unread = b""
        self._server = subprocess.Popen(
            [sys.executable, "-m", "srl.experiments.sweeps.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C in a terminal reaches only the process of the sweep
            env={**os.environ, **ENVIRONMENT},
        )

    def __enter__(self) -> MemberProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the members that still run, and wait until they have written their checkpoints."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        try:
            for name in self.running:
                self.stop(name)
            while self.running:
                self.ended(POLL_SECONDS)
        finally:  # without its input, the server stops what still runs
            with contextlib.suppress(OSError):
                self._server.stdin.close()
            self._server.wait()
            self._server.stdout.close()

    def start(self, member: Member, cores: int | None = None) -> None:
        """Start a run or resume it, on that many cores if `cores` is given."""
        self.running[member.run.name] = member
        self._cores[member.run.name] = self._free_cores()[:cores] if cores else []
        self._send(
            start=member.run.name,
            path=str(member.run.path),
            env=member.env,
            options=to_data(member.options),
            trust_code=self._trust_code,
            cores=self._cores[member.run.name],
            search_path=[entry for entry in sys.path if entry],
            # The job of a member that only follows it continues, and is followed again when the sweep is.
            at_end=signal.SIGKILL if member.options.workers.scheduler == "slurm" else signal.SIGTERM,
        )

    def stop(self, name: str) -> None:
        """Stop a run, as SIGTERM does. It is in `running` until it has ended."""
        with contextlib.suppress(OSError):
            self._send(stop=name)

    def ended(self, timeout: float) -> list[tuple[Member, int]]:
        """Wait for up to `timeout` seconds. Return the members that have ended since the last call, with their exit
        codes. Raises RuntimeError if the server has died."""
        assert self._server.stdout is not None
        descriptor = self._server.stdout.fileno()
        if not select.select([descriptor], [], [], timeout)[0]:
            return []
        part = os.read(descriptor, 1 << 16)
        if not part:
            self.running.clear()
            raise RuntimeError("the process that starts the runs of the sweep has died; start the sweep again")
        *lines, self._unread = (self._unread + part).split(b"\n")
        codes: dict[str, int] = dict(json.loads(line) for line in lines)
        for name in codes:
            del self._cores[name]
        return [(self.running.pop(name), code) for name, code in codes.items()]

    def _free_cores(self) -> list[int]:
        used = {core for cores in self._cores.values() for core in cores}
        return sorted(os.sched_getaffinity(0) - used)

    def _send(self, **message: Any) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()


def log_of(run: RunDirectory) -> Path:
    """Return the file with the output of a member's process."""
    return run.path.parent / f"{run.name}.log"


def failure_of(run: RunDirectory) -> str:
    """Return the last words of a member that failed."""
    try:
        return last_line(log_of(run).read_text(errors="replace"), "no message", limit=None)
    except OSError:
        return "no message"


def train_member(member: Member, on_status: OnStatus = None, trust_code: TrustCode = False) -> Run | None:
    """Start a run or, if it has a checkpoint, resume it. Returns None if it has finished already."""
    run, options = member.run, member.options
    if (job := job_of(run.path / CLUSTER)) and is_active(job):
        return followed(run, job, on_status)
    if run.path.is_dir():
        with run.locked(ENDING_SECONDS):  # the process of an earlier sweep that was killed may still be ending
            if is_finished(run.read_status()):
                return None
            if checkpoints.latest(run.checkpoints) is None:  # it was interrupted before its first checkpoint
                run.remove()
    if not run.path.is_dir():
        own = trust_code is True or read_group(run.path.parent)[1]
        return start(member.env, options, run.name, run.path.parent, on_status, own=own)
    try:
        return resume(run, on_status=on_status, trust_code=trust_code)
    except NothingToTrain as error:  # it was killed between its last checkpoint and its last status
        last = RunStatus(run.name, member.env, options.algo, str(run.path), "finished", str(error), steps=error.steps)
        run.write_status(last)
        return Run(run.path, last.state, last.reason, last)


def is_finished(status: RunStatus | None) -> bool:
    return status is not None and status.state == "finished"


def serve() -> int:
    """Fork a process for each run that standard input names, and report their exit codes on standard output."""
    _preload()
    gc.collect()
    gc.freeze()  # garbage collection in the children does not copy the memory that they share with this process
    members: dict[int, dict[str, Any]] = {}
    unread = b""
    while True:
        if select.select([0], [], [], POLL_SECONDS)[0]:
            part = os.read(0, 1 << 16)
            if not part:
                break
            *lines, unread = (unread + part).split(b"\n")
            for message in map(json.loads, lines):
                if "start" in message:
                    members[_fork(message)] = message
                for pid, member in members.items():
                    if member["start"] == message.get("stop"):
                        os.kill(pid, signal.SIGTERM)
        while members and (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended = [members.pop(found[0])["start"], os.waitstatus_to_exitcode(found[1])]
            os.write(1, json.dumps(ended).encode() + b"\n")
    for pid, member in members.items():
        os.kill(pid, member["at_end"])
    for pid in members:
        os.waitpid(pid, 0)
    return 0


def _preload() -> None:
    """Import what the first moments of a run need."""
    import safetensors.numpy  # noqa: F401
    import tensorboard.plugins.hparams.summary_v2
    import tensorboard.plugins.text.metadata
    import tensorboard.summary.writer.record_writer  # noqa: F401

    import srl.algorithms.ppo.trainer
    import srl.environments.adapters.gymnasium
    import srl.workers.actor.worker
    import srl.workers.trainer.worker  # noqa: F401


def _fork(message: dict[str, Any]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    try:
        signal_on_parent_death(message["at_end"])
        if os.getppid() == parent:
            code = _conduct(message)
    finally:
        os._exit(code)


def _conduct(message: dict[str, Any]) -> int:
    """Conduct the run of a message in this process, with its output in a file. Return the exit code."""
    run = RunDirectory(Path(message["path"]))
    log = os.open(log_of(run), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
        os.dup2(descriptor, target)
    sys.path += [entry for entry in message["search_path"] if entry not in sys.path]
    if message["cores"]:
        os.sched_setaffinity(0, message["cores"])
    try:
        with recorded_stop_requests():
            member = Member(run, message["env"], from_data(message["options"]))
            ended = train_member(member, trust_code=message["trust_code"])
        return FINISHED if ended is None or ended.state == "finished" else STOPPED
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        print(explain(error), file=sys.stderr)
        return FAILED
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(serve())
