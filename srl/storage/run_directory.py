"""Run directories: their files, run names, and lookup of runs by name."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from srl.api.lanes import LanesConfig
from srl.api.status import RunStatus
from srl.base.config import TrustCode, from_file, is_config, parse_json
from srl.base.errors import nearest
from srl.base.files import explain_os_error, read_regular, write_whole
from srl.base.object_names import load_part
from srl.storage.machine import describe_machine
from srl.storage.run_ownership import Owned, Ownership, acquire
from srl.storage.signatures import is_own, sign

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
LATEST = "latest"
CONFIG_KEYS = ("environment", "lanes", "options", "policies")  # keys that a run's config must have
MAX_CONFIG_BYTES = 16 << 20
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
    metrics = _Inside("metrics.jsonl")  # one row per update
    episodes = _Inside("episodes.bin")  # every episode
    system = _Inside("system.jsonl")  # speed and workers, one row about every second
    machine = _Inside("machine.json")  # versions and hardware
    journal = _Inside("journal.jsonl")  # one line per update, with `--journal`
    status = _Inside("status.json")  # written when the run ends
    controller = _Inside("controller.json")  # for a takeover by another controller
    tensorboard = _Inside("tensorboard")
    checkpoints = _Inside("checkpoints")
    replay = _Inside("replay")  # with `--save-replay`
    streams = _Inside("streams")  # with `--record-streams`
    league = _Inside("league.json")  # result of the last `srl league`
    logs = _Inside("logs")

    @property
    def name(self) -> str:
        return self.path.name

    def log(self, worker: str) -> Path:
        """Return the log file of a worker: logs/actors-0.log for `actors/0`."""
        return self.logs / f"{slug(worker)}.log"

    @contextlib.contextmanager
    def locked(self, patience: float = 0.0, force: bool = False) -> Iterator[Ownership]:
        """Keep all other processes, also on hosts that share the file system, from running in this directory.

        Waits up to `patience` seconds for the other process to end; with `force`, takes the directory from it then."""
        try:
            with _explained(self.path, "lock"):
                ownership = acquire(self.path, patience, force)
        except Owned as error:
            where = "" if error.owner is None or error.owner.is_local else f" on host {error.owner.host}"
            raise RunDirectoryError(
                f"{self.name} is already running{where} in {self.path}; see it with `srl ps`, stop it with "
                f"`srl stop {self.name}`"
            ) from error
        try:
            yield ownership
        finally:
            ownership.release()

    def write_config(self, data: Any, own: bool = True) -> None:
        """Write plain data, as returned by `srl.base.config.to_data`. Sign it if the run is the user's `own`: one that
        the user starts now, had started, or trusts."""
        content = (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()
        with _explained(self.config, "write"):
            if not own and self.config.exists() and content == self._content():
                return  # with the signature of whoever wrote it
            write_whole(self.config, content, sync=True)
        sign(self.config, content, own=own)

    def load_config(self, trust_code: TrustCode = False, writing: bool = False) -> dict[str, Any]:
        """Return the config with its `lanes` and `options` rebuilt, importing nothing but SRL unless the user started
        this run or trusts its code. Raises RunDirectoryError if this is not the config of a run, and UntrustedCode.

        With `writing`, a run of someone else must contain only regular files (:func:`refuse_special_files`).
        """
        config: dict[str, Any] = self.read_config()
        trusted = self.trusted(trust_code)
        if writing and trusted is not True:
            refuse_special_files(self.path)
        kinds = {"lanes": LanesConfig, "options": load_part("train-options"), "environment": str}
        kinds["sizes"] = Mapping[str, int]
        if not isinstance(config["policies"], dict):
            raise RunDirectoryError(f"{self.config}: policies must be described by name")
        return config | from_file({"sizes": {}, **config}, kinds, str(self.config), trusted)

    def trusted(self, trust_code: TrustCode) -> TrustCode:
        """Return what the user trusts of this run: all of it after `trust_code` or if the user started it."""
        return trust_code or is_own(self.config, self._content())

    def read_config(self) -> Any:
        """Return the config of an SRL run. Raises RunDirectoryError if another program wrote config.json."""
        config = self.read_raw_config()
        missing = [key for key in CONFIG_KEYS if key not in config]
        broken = [key for key in ("lanes", "options") if key not in missing and not is_config(config[key])]
        if missing or broken:
            what = f"it has no {missing[0]!r}" if missing else f"its {broken[0]!r} cannot be read"
            raise RunDirectoryError(f"{self.config} was not written by a run of SRL, or was changed since: {what}")
        return config

    def write_machine(self, version: str) -> None:
        """Write what the run is made with. A full disk loses it."""
        with contextlib.suppress(OSError):
            write_whole(self.machine, (json.dumps(describe_machine(version), indent=2) + "\n").encode())

    def read_machine(self) -> dict[str, str]:
        """Return what the run was made with; empty if that is not known."""
        try:
            found = parse_json(self.machine.read_bytes(), str(self.machine))
        except (OSError, ValueError):
            return {}
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}

    def read_raw_config(self) -> dict[str, Any]:
        """Return config.json without checking its keys: other programs may write one to have their curves plotted."""
        try:
            config = parse_json(self._content(), str(self.config))
        except ValueError as error:
            raise RunDirectoryError(f"{error}; restore it from a copy") from error
        if not isinstance(config, dict):
            raise RunDirectoryError(f"{self.config} must contain the options of a run, found a {type(config).__name__}")
        return config

    def _content(self) -> bytes:
        with _explained(self.config, "read"):
            return read_regular(self.config, MAX_CONFIG_BYTES)

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
            return msgspec.json.decode(read_regular(self.status, MAX_CONFIG_BYTES), type=RunStatus)
        except FileNotFoundError:
            return None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
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


def refuse_special_files(path: Path) -> None:
    """Raise RunDirectoryError if a directory of someone else contains anything but files and directories: through a
    symbolic link, its run would write elsewhere, and at a pipe, it would wait forever."""
    for found in path.rglob("*"):
        mode = found.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            kind = "symbolic link" if stat.S_ISLNK(mode) else "pipe, socket or device"
            raise RunDirectoryError(
                f"{found} is a {kind} in a run that you did not start; remove it, or add --trust-code"
            )


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


def write_group(path: Path, description: Any, own: bool = True) -> None:
    """Write the description of a directory of related runs for :func:`read_group`, creating the directory. Sign it if
    it is the user's `own`, as for :meth:`RunDirectory.write_config`."""
    check_name(path.name)
    content = (json.dumps(description, indent=2) + "\n").encode()
    with _explained(path, "create"):
        path.mkdir(parents=True, exist_ok=True)
        write_whole(path / GROUP, content, sync=True)
    sign(path / GROUP, content, own=own)


def find_group(what: str | Path, root: Path) -> Path | None:
    """Return the directory of the run group with this path or name, or None."""
    found = [path.resolve() for path in (Path(what), root.expanduser() / what) if (path / GROUP).is_file()]
    return found[0] if found else None


def read_group(path: Path) -> tuple[Any, bool]:
    """Return the description of a run group, and whether the user of this process created the group."""
    file = path / GROUP
    try:
        content = read_regular(file, MAX_CONFIG_BYTES)
        return parse_json(content, str(file)), is_own(file, content)
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{file} cannot be read: {error}") from error


def all_runs(root: Path) -> list[RunDirectory]:
    """Return all runs below the root, including those in groups, oldest first. What cannot be read is left out; see
    :func:`scan`."""
    return scan(root)[0]


def scan(root: Path) -> tuple[list[RunDirectory], dict[Path, str]]:
    """Return all runs below the root, including those in groups, oldest first; and the entries that cannot be read,
    each with the reason. Raises RunDirectoryError if the root itself cannot be read."""
    dated: list[tuple[int, str, RunDirectory]] = []
    unreadable: dict[Path, str] = {}
    try:
        entries = list(root.expanduser().resolve().iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return [], {}
    except OSError as error:
        raise RunDirectoryError(f"cannot read {root}: {explain_os_error(error)}") from error
    for path in entries:
        try:
            if (when := _written(path)) is not None:
                dated.append((when, path.name, RunDirectory(path)))
            elif (path / GROUP).is_file():
                runs, others = scan(path)
                unreadable |= others
                dated += [(_written(run.path) or 0, run.name, run) for run in runs]
        except OSError as error:
            unreadable[path] = str(error) if isinstance(error, RunDirectoryError) else explain_os_error(error)
    return [run for _, _, run in sorted(dated, key=lambda entry: entry[:2])], unreadable


def _written(path: Path) -> int | None:
    """Return the time at which the config of a run was written, or None if this is not the directory of a run."""
    try:
        return (path / "config.json").stat().st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link to itself
            return None
        raise


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


def as_text(path: Path | str) -> str:
    """Return a path as text that can be printed and sent. Bytes that are not UTF-8 become `\\xff`."""
    return os.fsencode(path).decode(errors="backslashreplace")


def slug(text: str) -> str:
    """Return the text with characters that are unusual in file names replaced by dashes."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-._") or "run"


@contextlib.contextmanager
def _explained(path: Path, verb: str) -> Iterator[None]:
    try:
        yield
    except RunDirectoryError:
        raise
    except OSError as error:
        raise RunDirectoryError(f"cannot {verb} {path}: {explain_os_error(error)}") from error
