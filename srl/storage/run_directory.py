"""Run directories: their files, run names, and lookup of runs by name."""

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
from srl.base.config import is_config
from srl.base.errors import nearest
from srl.base.files import explain_os_error, write_whole

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LATEST = "latest"
CONFIG_KEYS = ("environment", "lanes", "options", "policies")  # keys that a run's config must have
GROUP = "group.json"  # file that marks a directory of related runs, such as those of a seed sweep


class RunDirectoryError(OSError):
    """A run directory cannot be created, found, read or written; the message says what to do."""


class _Inside:
    """A path inside a run directory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: RunDirectory, owner: type) -> Path:
        return run.path / self._name


@dataclass(frozen=True)
class RunDirectory:
    path: Path

    config = _Inside("config.json")
    metrics = _Inside("metrics.jsonl")
    journal = _Inside("journal.jsonl")  # one line per update, with `--journal`
    status = _Inside("status.json")  # written when the run ends
    controller = _Inside("controller.json")  # for a takeover by another controller
    tensorboard = _Inside("tensorboard")
    checkpoints = _Inside("checkpoints")
    logs = _Inside("logs")

    @property
    def name(self) -> str:
        return self.path.name

    def log(self, worker: str) -> Path:
        """Return the log file of a worker: logs/actors-0.log for `actors/0`."""
        return self.logs / f"{slug(worker)}.log"

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Prevent other processes from running in this directory. The kernel releases the lock if this process dies.
        Waits up to `patience` seconds for another process to release the lock."""
        deadline = time.monotonic() + patience
        with _explained(self.path, "open"):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= deadline:
                        raise RunDirectoryError(
                            f"{self.name} is already running in {self.path}; see it with `srl ps`, stop it with "
                            f"`srl stop {self.name}`"
                        ) from error
                    time.sleep(0.5)
            yield
        finally:
            os.close(descriptor)

    def write_config(self, data: Any) -> None:
        """Write plain data, as returned by `srl.base.config.to_data`."""
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        with _explained(self.config, "write"):
            write_whole(self.config, text.encode(), sync=True)

    def read_config(self) -> Any:
        """Return the config of an SRL run. Raises RunDirectoryError if another program wrote config.json."""
        config = self.read_raw_config()
        missing = [key for key in CONFIG_KEYS if key not in config]
        broken = [key for key in ("lanes", "options") if key not in missing and not is_config(config[key])]
        if missing or broken:
            what = f"it has no {missing[0]!r}" if missing else f"its {broken[0]!r} cannot be read"
            raise RunDirectoryError(f"{self.config} was not written by a run of SRL, or was changed since: {what}")
        return config

    def read_raw_config(self) -> dict[str, Any]:
        """Return config.json without checking its keys: other programs may write one to have their curves plotted."""
        with _explained(self.config, "read"):
            content = self.config.read_bytes()
        try:
            config = json.loads(content)
        except ValueError as error:
            raise RunDirectoryError(f"{self.config} is not valid JSON ({error}); restore it from a copy") from error
        if not isinstance(config, dict):
            raise RunDirectoryError(f"{self.config} must contain the options of a run, found a {type(config).__name__}")
        return config

    def write_status(self, status: RunStatus) -> None:
        with _explained(self.status, "write"):
            write_whole(self.status, msgspec.json.encode(status))

    def clear_status(self) -> None:
        """Remove an earlier final status when the run starts or resumes."""
        with _explained(self.status, "remove"):
            self.status.unlink(missing_ok=True)

    def read_status(self) -> RunStatus | None:
        """Return the run's final status, or None if it never ran, is running, or was killed."""
        try:
            return msgspec.json.decode(self.status.read_bytes(), type=RunStatus)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise RunDirectoryError(f"{self.status} is not the status of a run: {error}; remove it") from error

    @property
    def ended_without_update(self) -> bool:
        """Whether the run ended before its first update, so that its directory contains nothing but logs."""
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
    """Return a name like `CartPole-v1-ppo-1-20260131-235959`; unusual characters become dashes."""
    tail = f"-{slug(algorithm)[:16]}-{seed}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(wall))}"
    return f"{slug(environment)[: 64 - len(tail)]}{tail}"


def create(root: Path, name: str) -> RunDirectory:
    """Create the run directory `root/name` with its folders. Replaces a run that ended before its first update."""
    run = RunDirectory(root.expanduser().resolve() / check_name(name))
    if run.ended_without_update:
        with run.locked():
            if run.ended_without_update:  # checked again under the lock: another process may have been faster
                run.remove()
    with _explained(run.path, "create"):
        root.expanduser().mkdir(parents=True, exist_ok=True)
        try:
            run.path.mkdir()
        except FileExistsError as error:
            raise RunDirectoryError(f"{run.path} exists; choose another --name{_alternative(run)}") from error
        for folder in (run.tensorboard, run.checkpoints, run.logs):
            folder.mkdir()
    return run


def _alternative(run: RunDirectory) -> str:
    """Return a hint for the error about an existing run directory."""
    if any(run.checkpoints.glob("*")):
        return f", or continue that run: `srl resume {run.name}`"
    return ", or remove it: it has no checkpoint to resume from" if run.config.is_file() else ""


def create_default(root: Path, environment: str, algorithm: str, seed: int, wall: float) -> RunDirectory:
    """Create a run directory with the default name, advancing the time in it by seconds until the name is free."""
    for later in range(100):
        name = default_name(environment, algorithm, seed, wall + later)
        if not (root.expanduser() / name).exists():
            try:
                return create(root, name)
            except RunDirectoryError as error:
                if not isinstance(error.__cause__, FileExistsError) or not (root.expanduser() / name).is_dir():
                    raise
    raise RunDirectoryError(f"{root} contains a hundred runs with names like this; choose a --name")


def open_directory(path: Path) -> RunDirectory:
    """Return the run directory at `path`, which must contain a config."""
    path = path.expanduser().resolve()
    if not path.is_dir():
        raise RunDirectoryError(f"no run directory at {path}; `srl ps --all` lists all runs")
    if not (path / "config.json").is_file():
        raise RunDirectoryError(f"{path} is not a run directory: it has no config.json")
    return RunDirectory(path)


def create_group(root: Path, name: str, description: Any) -> Path:
    """Create the directory `root/name` for related runs, with a description for :func:`read_group`."""
    path = root.expanduser().resolve() / check_name(name)
    with _explained(path, "create"):
        root.expanduser().mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir()
        except FileExistsError as error:
            raise RunDirectoryError(f"{path} exists; choose another --name") from error
        write_whole(path / GROUP, (json.dumps(description, indent=2) + "\n").encode())
    return path


def find_group(what: str | Path, root: Path) -> Path | None:
    """Return the directory of the run group with this path or name, or None."""
    found = [path.resolve() for path in (Path(what), root.expanduser() / what) if (path / GROUP).is_file()]
    return found[0] if found else None


def read_group(path: Path) -> Any:
    """Return the description of a run group."""
    try:
        return json.loads((path / GROUP).read_text())
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{path / GROUP} cannot be read: {error}") from error


def all_runs(root: Path) -> list[RunDirectory]:
    """Return all runs below the root, including those in groups, oldest first."""
    dated = []
    try:
        for path in root.expanduser().resolve().iterdir():
            try:
                dated.append(((path / "config.json").stat().st_mtime_ns, path.name, RunDirectory(path)))
            except FileNotFoundError:
                if (path / GROUP).is_file():
                    dated += [(run.config.stat().st_mtime_ns, run.name, run) for run in all_runs(path)]
            except NotADirectoryError:
                continue
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise RunDirectoryError(f"cannot read {root}: {explain_os_error(error)}") from error
    return [run for _, _, run in sorted(dated, key=lambda entry: entry[:2])]


def find_all(what: str | Path, root: Path) -> list[RunDirectory]:
    """Return all runs in a group or in another directory of runs, or else the one run found by :func:`find`."""
    for path in (Path(what), root / what):
        if str(what) != LATEST and path.is_dir() and not (path / "config.json").is_file():
            runs = all_runs(path)
            if not runs:
                raise RunDirectoryError(f"{path} contains no runs")
            return runs
    return [find(what, root)]


def find(what: str | Path, root: Path, include_empty: bool = False) -> RunDirectory:
    """Return the run given by a path, a name, a unique prefix of a name, or `latest`.

    `latest` skips runs that ended before their first update, unless there are no others or `include_empty` is set.
    """
    text = str(what)
    runs = all_runs(root)
    if text == LATEST:
        if not runs:
            raise RunDirectoryError(f"no runs in {root}; start one: `srl train CartPole-v1`")
        return next((run for run in reversed(runs) if include_empty or not run.ended_without_update), runs[-1])
    for run in runs:
        if run.name == text:
            return run
    if (group := find_group(what, root)) is not None:
        members = ", ".join(sorted(run.name for run in all_runs(group))) or "none yet"
        raise RunDirectoryError(f"{text} is a sweep of several runs; choose one of them: {members}")
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


def slug(text: str) -> str:
    """Return the text with characters that are unusual in file names replaced by dashes."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._") or "run"


@contextmanager
def _explained(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except RunDirectoryError:
        raise
    except OSError as error:
        raise RunDirectoryError(f"cannot {verb} {path}: {explain_os_error(error)}") from error
