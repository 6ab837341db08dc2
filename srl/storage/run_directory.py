"""Run directories: what lies where, how a run gets its name, and how it is found again."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from srl.api.status import RunStatus
from srl.base.errors import nearest
from srl.base.files import write_whole
from srl.storage.disk import explain

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LATEST = "latest"
CONFIG_KEYS = ("environment", "lanes", "options", "policies")
"""What the config of a run of ours has at the least."""
GROUP = "group.json"
"""What marks a directory of runs that belong together: those of a seed sweep."""


class RunDirectoryError(OSError):
    """A run directory cannot be made, found, read or written; the message says what to do."""


@dataclass(frozen=True)
class RunDirectory:
    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def journal(self) -> Path:
        """Of every update, where one is kept (`--journal`)."""
        return self.path / "journal.jsonl"

    @property
    def controller(self) -> Path:
        return self.path / "controller.json"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def status(self) -> Path:
        return self.path / "status.json"

    def log(self, worker: str) -> Path:
        """`actors/0` logs into logs/actors-0.log."""
        return self.logs / f"{slug(worker)}.log"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else may run in this directory meanwhile; the kernel lets go of it when we die."""
        with _explained(self.path, "open"):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunDirectoryError(
                    f"{self.name} is going on in {self.path}; see it with `srl ps`, end it with `srl stop {self.name}`"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def write_config(self, data: Any) -> None:
        """Keep plain data, as `srl.base.config.to_data` makes it."""
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        with _explained(self.config, "write"):
            write_whole(self.config, text.encode(), sync=True)

    def read_config(self) -> Any:
        """What `write_config` kept of a run of ours; whoever else may have left a config.json there is told so."""
        config = self.read_facts()
        missing = [key for key in CONFIG_KEYS if key not in config]
        broken = [key for key in ("lanes", "options") if key not in missing and not _is_config(config[key])]
        if missing or broken:
            what = f"it has no {missing[0]!r}" if missing else f"its {broken[0]!r} can not be read"
            raise RunDirectoryError(f"{self.config} was not written by a run of srl, or was changed since: {what}")
        return config

    def read_facts(self) -> dict[str, Any]:
        """What config.json says, whoever wrote it: enough for curves beside those of other programs."""
        with _explained(self.config, "read"):
            content = self.config.read_bytes()
        try:
            facts = json.loads(content)
        except ValueError as error:
            raise RunDirectoryError(
                f"{self.config} is not readable as JSON ({error}); restore it from a copy"
            ) from error
        if not isinstance(facts, dict):
            raise RunDirectoryError(f"{self.config} holds no options of a run, but a {type(facts).__name__}")
        return facts

    def write_status(self, status: RunStatus) -> None:
        with _explained(self.status, "write"):
            write_whole(self.status, msgspec.json.encode(status))

    def write_controller(self, state: msgspec.Struct) -> None:
        """What another controller needs to take this one's place."""
        with _explained(self.controller, "write"):
            write_whole(self.controller, msgspec.json.encode(state))

    def forget_status(self) -> None:
        """A run begins, or goes on: what its directory says of its end does not hold any more."""
        with _explained(self.status, "remove"):
            self.status.unlink(missing_ok=True)

    def read_status(self) -> RunStatus | None:
        """How it ended, or None: it never ran, is going on, or was killed."""
        try:
            return msgspec.json.decode(self.status.read_bytes(), type=RunStatus)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise RunDirectoryError(f"{self.status} holds no status of a run: {error}; remove it") from error

    @property
    def is_barren(self) -> bool:
        """Did its run end before its first update? Then there is nothing in it but the logs of that."""
        try:
            status = self.read_status()
        except OSError:
            return False
        return status is not None and status.updates == 0

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def check_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} cannot name a run; use up to 64 letters, digits, '.', '_' and '-', a letter or digit first"
        )
    if name == LATEST:
        raise ValueError(f"{LATEST!r} means the newest run; choose another --name")
    return name


def default_name(environment: str, algorithm: str, seed: int, wall: float) -> str:
    """`CartPole-v1-ppo-1-20260131-235959`; whatever a file name should not hold becomes a dash."""
    tail = f"-{slug(algorithm)[:16]}-{seed}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(wall))}"
    return f"{slug(environment)[: 64 - len(tail)]}{tail}"


def create(root: Path, name: str) -> RunDirectory:
    """A new run directory `root/name`, with the folders inside. Replaces one whose run never made an update."""
    run = RunDirectory(root.expanduser().resolve() / check_name(name))
    if run.is_barren:
        with run.held():
            if run.is_barren:  # still: nobody else was faster
                run.remove()
    with _explained(run.path, "make"):
        root.expanduser().mkdir(parents=True, exist_ok=True)
        try:
            run.path.mkdir()
        except FileExistsError as error:
            raise RunDirectoryError(f"{run.path} exists; choose another --name{_or_else(run)}") from error
        for folder in (run.tensorboard, run.checkpoints, run.logs):
            folder.mkdir()
    return run


def _or_else(run: RunDirectory) -> str:
    """What can be done with a directory that is in the way."""
    if any(run.checkpoints.glob("*")):
        return f", or go on with that run: `srl resume {run.name}`"
    return ", or remove it: it has no checkpoint to go on from" if run.config.is_file() else ""


def create_default(root: Path, environment: str, algorithm: str, seed: int, wall: float) -> RunDirectory:
    """A new run directory under the default name; runs that start in one second get names a second apart."""
    for later in range(100):
        name = default_name(environment, algorithm, seed, wall + later)
        if not (root.expanduser() / name).exists():
            try:
                return create(root, name)
            except RunDirectoryError as error:
                if not isinstance(error.__cause__, FileExistsError) or not (root.expanduser() / name).is_dir():
                    raise
    raise RunDirectoryError(f"{root} holds a hundred runs of this very moment; choose a --name")


def open_directory(path: Path) -> RunDirectory:
    """The run directory at `path`; it must hold a config."""
    path = path.expanduser().resolve()
    if not path.is_dir():
        raise RunDirectoryError(f"no run directory at {path}; `srl ps --all` lists the runs there are")
    if not (path / "config.json").is_file():
        raise RunDirectoryError(f"{path} is no run directory: it has no config.json")
    return RunDirectory(path)


def create_group(root: Path, name: str, facts: Any) -> Path:
    """A new directory `root/name` for runs that belong together."""
    path = root.expanduser().resolve() / check_name(name)
    with _explained(path, "make"):
        root.expanduser().mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir()
        except FileExistsError as error:
            raise RunDirectoryError(f"{path} exists; choose another --name") from error
        write_whole(path / GROUP, (json.dumps(facts, indent=2) + "\n").encode())
    return path


def find_group(what: str | Path, root: Path) -> Path | None:
    """The group of runs that the user means by a path or a name; None if it is none."""
    found = (path for path in (Path(what), root.expanduser() / what) if (path / GROUP).is_file())
    path = next(found, None)
    return None if path is None else path.resolve()


def read_group(path: Path) -> Any:
    """What :func:`create_group` was told."""
    try:
        return json.loads((path / GROUP).read_text())
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path / GROUP} cannot be read: {error}") from error


def all_runs(root: Path) -> list[RunDirectory]:
    """Every run below the root, also those in groups, oldest first."""
    dated = []
    try:
        for path in root.expanduser().resolve().iterdir():
            try:
                dated.append(((path / "config.json").stat().st_mtime_ns, path.name, RunDirectory(path)))
            except FileNotFoundError:
                if (path / GROUP).is_file():
                    inside = [(run.config.stat().st_mtime_ns, run.name, run) for run in all_runs(path)]
                    dated += inside
            except NotADirectoryError:
                continue
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunDirectoryError(f"cannot read {root}: {explain(error)}") from error
    return [run for _, _, run in sorted(dated, key=lambda entry: entry[:2])]


def find_all(what: str | Path, root: Path) -> list[RunDirectory]:
    """The runs that the user means: all of a group, or of any directory of runs, or the one that :func:`find` finds."""
    for path in (Path(what), root / what):
        if str(what) != LATEST and path.is_dir() and not (path / "config.json").is_file():
            runs = all_runs(path)
            if not runs:
                raise RunDirectoryError(f"{path} holds no runs")
            return runs
    return [find(what, root)]


def find(what: str | Path, root: Path, barren: bool = False) -> RunDirectory:
    """The run that the user means: by path, by name, by the beginning of a name that only one run has, or `latest`: the
    newest that has learned anything (or, with `barren`, the newest of all)."""
    text = str(what)
    runs = all_runs(root)
    if text == LATEST:
        if not runs:
            raise RunDirectoryError(f"no runs in {root}; start one: `srl train CartPole-v1`")
        return next((run for run in reversed(runs) if barren or not run.is_barren), runs[-1])
    for run in runs:
        if run.name == text:
            return run
    if isinstance(what, Path) or "/" in text or (Path(text) / "config.json").is_file():
        return open_directory(Path(what))
    begin = [run for run in runs if text and run.name.startswith(text)]
    if len(begin) == 1:
        return begin[0]
    if begin:
        names = ", ".join(run.name for run in begin[-5:])
        raise RunDirectoryError(f"{len(begin)} runs begin with {text!r}: {names}; write more of the name, or 'latest'")
    if not runs:
        raise RunDirectoryError(f"no run {text!r}: there are no runs in {root}; start one: `srl train CartPole-v1`")
    raise RunDirectoryError(f"no run {text!r} in {root}{nearest(text, [run.name for run in runs])}")


def _is_config(data: Any) -> bool:
    """Is this what `srl.base.config.to_data` makes of a dataclass?"""
    return isinstance(data, dict) and set(data) == {"type", "fields"} and isinstance(data["fields"], dict)


def slug(text: str) -> str:
    """The text as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._") or "run"


@contextmanager
def _explained(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except RunDirectoryError:
        raise
    except OSError as error:
        raise RunDirectoryError(f"cannot {verb} {path}: {explain(error)}") from error
