"""Updates of an open page: changes of the table of runs, or the state of one run. One feed serves one page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from srl.dashboard import detail
from srl.dashboard.catalog import Catalog, Entry
from srl.dashboard.series import SeriesCache


class TableFeed:
    """Changes of the table after a revision of the catalog that the page knows (0: none)."""

    def __init__(self, catalog: Catalog, after: int) -> None:
        self._catalog = catalog
        self._after = after

    def next(self) -> bytes | None:
        """Return an event with the runs that have changed. After one was removed, it has all runs."""
        revision, removed, entries = self._catalog.snapshot()
        is_all = removed > self._after
        changed = [entry.summary for entry in entries.values() if is_all or entry.revision > self._after]
        self._after = revision
        return event("runs", {"all": is_all, "runs": changed}, revision) if is_all or changed else None


class RunFeed:
    """The state of a run whenever it changes, with the events after those that the page knows."""

    def __init__(self, catalog: Catalog, series: SeriesCache, key: str, after: int) -> None:
        self._catalog = catalog
        self._series = series
        self._key = key
        self._after = after
        self._mark: Any = None
        self._state: dict[str, Any] = {}
        self._sent: tuple[int, list[dict[str, Any]]] | None = None
        self._last = b""

    def next(self) -> bytes | None:
        entry = self._catalog.entries().get(self._key)
        if entry is None:
            return self._changed(event("run", {"gone": True}), b"")
        if (mark := (id(entry.status), entry.stamp, entry.summary)) != self._mark:
            self._mark, self._state = mark, state_of(entry)
        begin, happened = self._series.events(entry.directory)
        first = self._first_new(begin, happened)
        self._sent = begin, happened
        end = begin + len(happened)
        state = self._state | {"stamp": page_stamp(entry, self._series)}
        news = {"events_begin": first, "events": happened[first - begin :]}
        # Two states that differ only in what was told before are the same.
        return self._changed(event("run", {**state, **news}, end), event("run", {**state, "end": end}))

    def _changed(self, message: bytes, content: bytes) -> bytes | None:
        content = content or message
        if content == self._last:
            return None
        self._last = content
        return message

    def _first_new(self, begin: int, happened: list[dict[str, Any]]) -> int:
        """Return the number of the first event that the page does not know. A resumed run repeats some."""
        end = begin + len(happened)
        if self._sent is None:
            return min(max(self._after, begin), end)
        sent_begin, sent = self._sent
        first = max(begin, sent_begin)
        while first < min(end, sent_begin + len(sent)) and happened[first - begin] == sent[first - sent_begin]:
            first += 1
        return first


def state_of(entry: Entry) -> dict[str, Any]:
    """Return what changes while a run is active."""
    status = entry.status
    if status is None:
        try:
            status = entry.directory.read_status()
        except OSError:
            status = None
    now = {"live": entry.runtime is not None, "note": entry.note}
    if status is not None:
        return {**now, "status": detail.shown_status(status), "groups": detail.groups_of(status.workers)}
    summary = entry.summary  # killed, on another host, or damaged
    known = {"run": summary.name, "environment": summary.environment, "algorithm": summary.algorithm}
    figures = {"state": summary.state, "steps": summary.steps, "return_mean": summary.return_mean}
    blank = {"path": str(entry.directory.path), "reason": summary.error, "policies": {}, "streams": []}
    more = {"replay": [], "edges": [], "bottleneck": "", "advice": "", "restarts": 0, "elapsed": None}
    return {**now, "status": {**known, **figures, **blank, **more}, "groups": []}


def page_stamp(entry: Entry, series: SeriesCache) -> str:
    """Return a text that changes when a page has to load the details of its run again."""
    return f"{detail.files_stamp(entry.directory)} {len(series.names(entry.directory))}"


def event(name: str, content: Any, number: int | None = None) -> bytes:
    """Return a server-sent event. A browser that connects again sends the number of the last one."""
    head = f"event: {name}\n" + ("" if number is None else f"id: {number}\n")
    return head.encode() + b"data: " + encoded(content) + b"\n\n"


def encoded(content: Any) -> bytes:
    """Return JSON. Names of files are not always valid text."""
    try:
        return msgspec.json.encode(content)
    except UnicodeEncodeError:
        return msgspec.json.encode(_printable(msgspec.to_builtins(content)))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, Mapping):
        return {_printable(name): _printable(one) for name, one in value.items()}
    return [_printable(one) for one in value] if isinstance(value, (list, tuple)) else value
