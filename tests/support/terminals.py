"""The `srl` command for tests, which start it, query it, inject faults, and check that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.waiting import PATIENCE, wait_for

SRL = str(Path(sys.executable).parent / "srl")
TESTS = str(Path(__file__).parent.parent)
SLEEPY = (
    *("srl.testing.environments:Slow", "--env-arg", "seconds=0.002", "--lanes", "4", "--horizon", "16"),
    *("--recipe", "none", "--ppo.num-minibatches", "1"),
)
GENTLE = (*SLEEPY, "--actors", "1")
"""Arguments of a run that mostly sleeps, for tests of faults that do not need speed."""


def wait_until_gone(look: Callable[[], list[Any]]) -> None:
    """Wait until `look` finds nothing; fail with what it still finds."""
    wait_for(lambda: not look(), lambda: f"the end of {look()}")


@dataclass
class Terminal:
    """Starts commands with their own run directories and sockets, and recognizes their processes among all others."""

    root: Path
    runtime: Path
    commands: list[Command] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), TESTS)))  # commands import `support`, too
        runtime = str(self.runtime)
        return {**os.environ, "PYTHONPATH": path, "XDG_RUNTIME_DIR": runtime, "SRL_TERMINAL": runtime}

    def start(self, *arguments: str, **options: Any) -> Command:
        return self.launch([SRL, *arguments], **options)

    def train(self, environment: str, *arguments: str, name: str = "run", **options: Any) -> Command:
        return self.start("train", environment, "--root", str(self.root), "--name", name, *arguments, **options)

    @property
    def join_file(self) -> Path:
        """Join file of this terminal's run over hosts."""
        return self.root / "run" / "join"

    def train_over_hosts(self, environment: str, *arguments: str) -> Command:
        """Start a run over hosts. This machine is the first of them; others `join`."""
        return self.train(environment, *arguments, "--scheduler", "hosts")

    def controller_record(self) -> dict[str, Any] | None:
        """Return what a run over hosts has recorded for the next controller, or None."""
        path = self.root / "run" / "controller.json"
        return json.loads(path.read_text()) if path.exists() else None

    def join(self, command: Command, host: str, *arguments: str, enter: Sequence[str] = ()) -> Command:
        """Start the agent of another host, and wait until the run has admitted it. The run's own host always joins
        first, because the first host gets the first worker. `enter` is a command prefix that runs the agent elsewhere.
        """
        command.wait(lambda status: " joined: " in " ".join(status["messages"]), "the run's own host")
        agent = self.launch([*enter, SRL, "agent", str(self.join_file), "--host", host, *arguments])
        command.wait(lambda status: f"host {host} joined" in " ".join(status["messages"]), f"host {host}")
        return agent

    def launch(self, arguments: list[str], **options: Any) -> Command:
        process = subprocess.Popen(
            arguments,
            env=self.environment,
            cwd=self.root.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        command = Command(self, process)
        self.commands.append(command)
        return command

    def run(self, *arguments: str) -> Ended:
        """Run a command until it ends."""
        return self.start(*arguments).end()

    def call(self, *arguments: str) -> Ended:
        """Run a command in this process, which saves more than a second for imports."""
        from srl.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setenv("XDG_RUNTIME_DIR", str(self.runtime))
            patch.chdir(self.root.parent)
            code = main(list(arguments))
        return Ended(code, out.getvalue(), err.getvalue())

    def run_program(self, *arguments: str) -> Ended:
        """Run another program until it ends."""
        return self.launch(list(arguments)).end()

    def processes(self) -> list[psutil.Process]:
        """Return all living processes that descend from commands of this terminal, including orphans."""
        mark = f"SRL_TERMINAL={self.runtime}".encode()
        found = []
        for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
            with contextlib.suppress(OSError, psutil.Error):
                if pid != os.getpid() and mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    process = psutil.Process(pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
        return found

    def leftovers(self) -> list[str]:
        """Return the runtime directories of runs."""
        return [str(path) for path in self.runtime.glob("srl-*/*")]

    def close(self) -> None:
        for command in self.commands:
            command.process.kill()
            command.process.communicate()
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Command:
    terminal: Terminal
    process: subprocess.Popen[str]

    def end(self) -> Ended:
        """Wait until the command ends."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.process.args!r} is not over after {PATIENCE} s: {self.statuses()}") from None
        return Ended(self.process.returncode, out, err)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def statuses(self) -> list[dict[str, Any]]:
        """Return the statuses that `srl ps --json` would print."""
        return list(self._ask())

    def _ask(self) -> Iterator[dict[str, Any]]:
        import msgspec

        from srl.controller.control_socket import StatusReply, StatusRequest, ask

        for runtime in self.terminal.runtime.glob("srl-*/*"):
            if (runtime / "address").exists():
                answer = ask(runtime, StatusRequest())
                if isinstance(answer, StatusReply):
                    yield json.loads(msgspec.json.encode(answer.status))

    def status(self) -> dict[str, Any] | None:
        """Return the status of the one run of this terminal, or None while it does not answer."""
        assert self.process.poll() is None, f"the command has ended: {self.process.communicate()}"
        return next(iter(self.statuses()), None)

    def wait(self, condition: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """Return the first status for which the condition holds."""

        def holds() -> dict[str, Any] | None:
            status = self.status()
            return status if status is not None and condition(status) else None

        return wait_for(holds, what)

    def wait_for_steps(self, steps: int) -> dict[str, Any]:
        return self.wait(lambda status: status["steps"] >= steps, f"{steps} steps")

    def zygotes(self) -> list[psutil.Process]:
        return [child for child in psutil.Process(self.process.pid).children() if "zygote" in str(child.cmdline())]

    def zygote(self) -> psutil.Process:
        (found,) = self.zygotes()
        return found


def worker(status: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [worker for worker in status["workers"] if worker["name"] == name]
    return found


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    assert pid > 1
    os.kill(pid, number)
