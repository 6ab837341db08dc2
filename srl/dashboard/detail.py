"""What the page of one run shows besides its curves: workers by group, options, checkpoints, videos and logs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from srl.api.status import ReplayStatus, RunStatus, StreamStatus, WorkerStatus
from srl.base.config import to_data
from srl.base.files import open_regular, read_regular
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class
from srl.experiments.options.keywords import ALGO
from srl.experiments.options.train_options import TrainOptions
from srl.experiments.recipes.apply import settings_for
from srl.experiments.recipes.single_agent import RECIPES
from srl.storage import checkpoints
from srl.storage.curves import flat_options
from srl.storage.run_directory import RunDirectory, as_text, slug

MAX_POLICIES = 40
"""Largest number of policies, and of policies whose streams are shown, in an event."""
MAX_CHECKPOINTS = 200
MAX_LOGS = 1000
"""Checkpoints and logs that are listed; the log of any worker can be asked for."""
PAGE = 50
LOG_BYTES = 200_000
VIDEO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(mp4|gif)")
MAX_LEAGUE_BYTES = 1 << 20


def groups_of(workers: Sequence[WorkerStatus]) -> list[dict[str, Any]]:
    """Return each group of workers: their number, states, mean share of time in each phase, processors and memory."""
    found: dict[str, list[WorkerStatus]] = {}
    for worker in workers:
        found.setdefault(worker.group, []).append(worker)
    result = []
    for name, members in found.items():
        phases = dict.fromkeys(phase for worker in members for phase in worker.busy)
        states = [worker.state for worker in members]
        # In an inline run, all workers are one process.
        each = list({worker.pid: worker for worker in members if worker.pid}.values()) or members
        result.append(
            {
                "name": name,
                "count": len(members),
                "states": {state: states.count(state) for state in dict.fromkeys(states)},
                "busy": {p: round(sum(w.busy.get(p, 0.0) for w in members) / len(members), 4) for p in phases},
                "cpu_percent": round(sum(worker.cpu_percent for worker in each), 1),
                "rss_mb": round(sum(worker.rss_mb for worker in each), 1),
            }
        )
    return result


def shown_status(status: RunStatus) -> dict[str, Any]:
    """Return a status as data of bounded size: without its workers (see `groups_of` and `workers_page`), and with one
    stream and one replay memory for each edge of the graph."""
    few = msgspec.structs.replace(
        status,
        workers=[],
        return_curve=[],
        streams=[],
        replay=[],
        messages=[],
        policies={
            name: msgspec.structs.replace(policy, return_curve=[])
            for name, policy in list(status.policies.items())[:MAX_POLICIES]
        },
    )
    data: dict[str, Any] = msgspec.to_builtins(few)
    return {**data, "streams": _flows(status.streams), "replay": _memories(status.replay)}


def _flows(streams: Sequence[StreamStatus]) -> list[dict[str, Any]]:
    """Return the sum over the consumers of each stream: `samples/0` and `samples/1` are `samples`."""
    found: dict[tuple[str, str], list[StreamStatus]] = {}
    for stream in streams:
        found.setdefault((stream.name.rpartition("/")[0], stream.kind), []).append(stream)
    return [
        {
            "name": name,
            "kind": kind,
            "filled": max(one.filled for one in same),
            "posted": sum(one.posted for one in same),
            "consumed": sum(one.consumed for one in same),
            "dropped": sum(one.dropped for one in same),
            "batch_mean": sum(one.batch_mean for one in same) / len(same),
        }
        for (name, kind), same in list(found.items())[:MAX_POLICIES]
    ]


def _memories(memories: Sequence[ReplayStatus]) -> list[dict[str, Any]]:
    """Return the sum over the replay memories of each policy."""
    found: dict[str, list[ReplayStatus]] = {}
    for memory in memories:
        found.setdefault(memory.name.rpartition("/")[0], []).append(memory)
    return [
        {
            "name": name,
            "size": sum(one.size for one in same),
            "capacity": sum(one.capacity for one in same),
            "wanted": same[0].wanted,
            "reached": next((one.reached for one in same if one.reached is not None), None),
        }
        for name, same in list(found.items())[:MAX_POLICIES]
    ]


def workers_page(workers: Sequence[WorkerStatus], group: str, offset: int) -> dict[str, Any]:
    """Return one page of the workers of a group."""
    members = [worker for worker in workers if worker.group == group]
    offset = max(0, min(offset, len(members) - 1))
    page = members[offset : offset + PAGE]
    rows = [{**msgspec.to_builtins(worker), "log": slug(worker.name)} for worker in page]
    return {"total": len(members), "offset": offset, "size": PAGE, "workers": rows}


def options_of(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the options of a run: value, default, value of its recipe, and whether the value is another than both."""
    config = run.read_raw_config()
    values = flat_options(config)
    algo = str(values.get("algo", ""))
    defaults: dict[str, Any] = {}
    recipe: dict[str, Any] = {}
    if algo in ALGORITHMS:
        options = TrainOptions(algo=algo, algorithm=algorithm_class(algo)())
        defaults = flat_options({"options": to_data(options)})
        used = next((one for one in RECIPES if one.name == values.get("run.recipe")), None)
        for setting in settings_for(used, algo) if used else ():
            recipe[setting.option.replace(ALGO, "algorithm.", 1)] = setting.value
    found = []
    for name, value in values.items():
        section, _, last = name.rpartition(".")
        tuned = recipe.get(name if section == "algorithm" else last)
        shown = {"name": name, "value": _text(value), "default": _text(defaults.get(name, ""))}
        changed = name in ("environment", "algo") or name not in defaults or shown["value"] != shown["default"]
        found.append({**shown, "changed": changed, **({} if tuned is None else {"recipe": _text(_plain(tuned))})})
    return found


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def checkpoints_of(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the checkpoints of a run, newest first."""
    known = checkpoints.checkpoints(run.checkpoints)
    best = checkpoints.best_of(known)
    found = []
    for path in list(reversed(known))[:MAX_CHECKPOINTS]:
        with contextlib.suppress(OSError):  # removed meanwhile
            size = sum(file.stat().st_size for file in path.iterdir())
            step, when = checkpoints.step_of(path), path.stat().st_mtime
            found.append({"name": path.name, "step": step, "when": when, "bytes": size, "best": path == best})
    return found


def videos_of(run: RunDirectory) -> list[str]:
    """Return the names of the videos of a run, as :func:`srl.record` writes them."""
    return sorted(entry.name for entry in _files(run.path) if VIDEO.fullmatch(entry.name))


def logs_of(run: RunDirectory) -> list[str]:
    return sorted(_log_files(run))


def _log_files(run: RunDirectory) -> dict[str, str]:
    """Return the path of each log by the name that is shown."""
    logs = (entry for entry in _files(run.logs) if entry.name.endswith(".log"))
    return {as_text(entry.name.removesuffix(".log")): entry.path for entry in logs}


def _files(path: Path) -> list[os.DirEntry[str]]:
    """Return the regular files in a directory, without links."""
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return []


def log_tail(run: RunDirectory, name: str) -> str:
    """Return the end of a worker's log. Raises LookupError for a name that is not one of `logs_of`."""
    if (path := _log_files(run).get(name)) is None:
        raise LookupError(f"there is no log {name!r}")
    with open_regular(Path(path)) as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - LOG_BYTES))
        text = file.read(LOG_BYTES).decode(errors="replace")
    if end <= LOG_BYTES:
        return text
    return f"... ({end - LOG_BYTES:,} earlier bytes are not shown)\n{text.partition(chr(10))[2]}"


def files_stamp(run: RunDirectory) -> str:
    """Return a text that changes when a checkpoint, video, log or league is added or removed."""
    stamps: list[object] = [videos_of(run)]
    for path in (run.checkpoints, run.logs, run.league):
        try:
            stamps.append(path.stat().st_mtime_ns)
        except OSError:
            stamps.append(0)
    return hashlib.sha1(repr(stamps).encode(), usedforsecurity=False).hexdigest()


def league_of(run: RunDirectory) -> dict[str, Any] | None:
    """Return the players, mean points and ratings of the last `srl league` of a run, if there was one."""
    try:
        league = json.loads(read_regular(run.league, MAX_LEAGUE_BYTES))
        if not isinstance(league, dict):
            return None
        names, points, ratings = list(map(str, league["players"])), league["points"], league.get("ratings", {})
        values = [[float(v) if isinstance(v, (int, float)) else None for v in row] for row in points]
        if len(values) != len(names) or any(len(row) != len(names) for row in values):
            return None
        return {"names": names, "values": values, "ratings": {str(n): float(v) for n, v in dict(ratings).items()}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
