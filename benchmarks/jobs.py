"""Training runs in the background, for benchmarks that observe or disturb them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from srl.api.status import RunStatus, WorkerStatus
from srl.controller.control_socket import StatusReply, StatusRequest, ask

PATIENCE = 60.0
START_PATIENCE = 240.0  # on a busy machine, each host needs a minute to import torch
SRL = str(Path(sys.executable).with_name("srl"))
SLEEPY = "srl.testing.environments:Slow"
SLEEPING = (
    *("--env-arg", "seconds=0.002", "--recipe", "none", "--lanes", "4", "--horizon", "16"),
    *("--ppo.num-minibatches", "1"),
)
"""Options of a run that leaves the machine mostly idle, so that its load does not affect the measurement."""


class Job:
    """A run that continues until it is killed."""

    def __init__(self, home: Path, *options: str, env: str = "CartPole-v1", enter: Sequence[str] = ()) -> None:
        """`enter` is a command prefix that runs the command in another place."""
        self.home = home
        self._enter = enter
        self._begin(SRL, "train", env, "--steps", "1000000000000", "--root", str(home / "runs"), *options)

    def _begin(self, *command: str) -> None:
        with (self.home / "output").open("ab") as output:
            own = {**os.environ, "XDG_RUNTIME_DIR": str(self.home)}
            self.process = subprocess.Popen((*self._enter, *command), env=own, stdout=output, stderr=output)

    def attach(self) -> None:
        """Take over the run with another command, after its own was killed."""
        name = next((self.home / "runs").iterdir()).name
        self._begin(SRL, "attach", name, "--root", str(self.home / "runs"))

    def status(self) -> RunStatus | None:
        for runtime in self.home.glob("srl-*/*"):
            answer = ask(runtime, StatusRequest()) if (runtime / "address").exists() else None
            if isinstance(answer, StatusReply):
                return answer.status
        return None

    def wait(self, condition: Callable[[RunStatus], bool], patience: float = PATIENCE) -> RunStatus:
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            status = self.status()
            if status is not None and condition(status):
                return status
            time.sleep(0.005)
        raise TimeoutError(
            f"the expected status did not come within {patience:.0f} s: {self.status()}\n{self.output()[-1000:]}"
        )

    def output(self) -> str:
        return (self.home / "output").read_text()

    def close(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


@contextmanager
def job(*options: str, env: str = "CartPole-v1", enter: Sequence[str] = (), updates: int = 20) -> Iterator[Job]:
    """Start a run and wait until it has made some updates."""
    home = Path(tempfile.mkdtemp(prefix="srl"))
    made = Job(home, *options, env=env, enter=enter)
    try:
        made.wait(lambda status: status.state == "running" and status.version >= updates, START_PATIENCE)
        yield made
    finally:
        made.close()
        shutil.rmtree(home)


def member(status: RunStatus, name: str) -> WorkerStatus:
    return next(worker for worker in status.workers if worker.name == name)


def rate(run: Job, warmup: float, seconds: float) -> float:
    """Return the steps consumed by training per second."""
    time.sleep(warmup)
    first = run.wait(lambda status: True)
    time.sleep(seconds)
    last = run.wait(lambda status: True)
    return (last.steps - first.steps) / (last.elapsed - first.elapsed)
