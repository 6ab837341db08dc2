"""Replay of updates that several data-parallel trainers made: a process for each of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import msgspec
import numpy as np

from srl.api.trainer import TrainerGroup
from srl.base.process import signal_on_parent_death
from srl.results.replay import Replayed, ReplayedUpdate, Route, Source, Step, replayed
from srl.storage.run_directory import RunDirectory

TIMEOUT = 120.0
"""Seconds in which all ranks must make an update."""
COMMAND = "from srl.results.replay_ranks import main; main()"


class _Work(msgspec.Struct):
    """What a process does, from its standard input."""

    run: str
    policy: str
    route: Route
    rank: int
    rendezvous: str
    parent: int
    trust_code: bool


class _Made(msgspec.Struct):
    """An update, on the standard output of rank 0."""

    update: ReplayedUpdate
    distance: float | None


def replay_ranks(source: Source, route: Route) -> Replayed:
    """Make the updates of a route again, in as many processes as the run had trainers. Raises RuntimeError with the
    message of a process that fails."""
    for rank in range(route.ranks):  # errors in files, and code that is not trusted, are found here
        source.algorithm(source.stream.segment(route.version + 1, rank))
    # What the algorithm names was trusted above, maybe as functions and classes, which a process cannot be given.
    trusted = source.trust_code if isinstance(source.trust_code, bool) else True
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with tempfile.TemporaryDirectory(prefix="srl-replay-") as directory, contextlib.ExitStack() as undo:
        processes: list[subprocess.Popen[bytes]] = []
        outputs: list[tuple[bytes, bytes]] = [(b"", b"")] * route.ranks
        for _ in range(route.ranks):
            process = subprocess.Popen(
                [sys.executable, "-c", COMMAND, directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            )
            undo.callback(_end, process)
            processes.append(process)
        path, place = str(source.run.path), f"file://{directory}/ranks"
        works = [
            msgspec.json.encode(_Work(path, source.policy, route, rank, place, os.getpid(), trusted))
            for rank in range(route.ranks)
        ]

        def talk(rank: int) -> None:
            outputs[rank] = processes[rank].communicate(works[rank])

        threads = [threading.Thread(target=talk, args=(rank,)) for rank in range(route.ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for process, (_, errors) in zip(processes, outputs, strict=True):
            if process.returncode:
                text = errors.decode(errors="replace").strip().splitlines() or [f"exit code {process.returncode}"]
                raise RuntimeError(f"a trainer of the replay failed: {text[-1]}")
        parameters = np.load(Path(directory) / "parameters.npy")
    made = [msgspec.json.decode(line, type=_Made) for line in outputs[0][0].splitlines()]
    return replayed(source, route, [Step(one.update, one.distance, parameters) for one in made])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def main() -> None:
    """Be one of the trainers of a replay."""
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=_Work)
    signal_on_parent_death(signal.SIGKILL)
    if os.getppid() != work.parent:
        return
    source = Source.open(RunDirectory(Path(work.run)), work.policy, work.trust_code)
    group = TrainerGroup(work.rank, work.route.ranks, work.rendezvous, TIMEOUT)
    parameters = None
    for step in source.play(work.route, group):
        parameters = step.parameters
        if work.rank == 0:
            sys.stdout.buffer.write(msgspec.json.encode(_Made(step.update, step.distance)) + b"\n")
    if work.rank == 0 and parameters is not None:
        np.save(Path(sys.argv[1]) / "parameters.npy", parameters)
