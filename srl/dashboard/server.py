"""The web server: checks who asks, answers with JSON, and sends events while a page is open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srl.controller.prometheus import exposition
from srl.dashboard import detail
from srl.dashboard.access import HEADERS, Access
from srl.dashboard.actions import Action, ActionError, carry_out
from srl.dashboard.catalog import Catalog, Entry, Summary
from srl.dashboard.series import SeriesCache

ASSETS = Path(__file__).parent / "assets"
EVENT_SECONDS = 1.0
BEAT_EVENTS = 3
"""Seconds without a change after which the server sends a sign of life."""
MAX_NAMES = 24
MAX_COMPARED = 200
MAX_BODY = 10_000
MAX_STREAMS = 64
"""Pages that are open at the same time."""
MEDIA = {".mp4": "video/mp4", ".gif": "image/gif"}


class RefusedError(Exception):
    """The request is not valid; the message says why."""


class Guard:
    """Middleware that refuses requests without a token or from other sites, and adds headers to every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        token = request.query_params.get("token")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if token is not None and self._access.knows(token):
                    headers["Set-Cookie"] = self._access.set_cookie()
            await send(message)

        reason = self._access.refusal(request.method, request.headers, request.cookies, token)
        if reason:
            wants_page = request.url.path == "/" and request.method == "GET"
            page = PlainTextResponse(f"SRL dashboard: {reason}.\n", 403)
            answer = page if wants_page else _json({"error": reason}, 403)
            await answer(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


class Dashboard:
    """The routes. Whatever reads files or asks controllers runs in a thread."""

    def __init__(self, catalog: Catalog, access: Access) -> None:
        self.catalog = catalog
        self._series = SeriesCache()
        self._open_streams = 0
        answers: Mapping[str, Callable[[Request], Any]] = {
            "runs": self.runs,
            "run": self.run,
            "workers": self.workers,
            "series": self.series,
            "compare": self.compare,
            "log": self.log,
        }
        routes = [
            Route("/", self.page),
            *(Route(f"/api/{name}", partial(self._answer, find)) for name, find in answers.items()),
            Route("/api/events", self.events),
            Route("/api/action", self.action, methods=["POST"]),
            Route("/api/video", self.video),
            Route("/metrics", self.metrics),
            Mount("/", StaticFiles(directory=ASSETS)),
        ]
        self.app: ASGIApp = Guard(Starlette(routes=routes), access)

    async def page(self, request: Request) -> Response:
        return HTMLResponse((ASSETS / "index.html").read_text())

    async def _answer(self, find: Callable[[Request], Any], request: Request) -> Response:
        try:
            return _json(await run_in_threadpool(find, request))
        except (LookupError, RefusedError) as error:
            return _json({"error": str(error.args[0])}, 404 if isinstance(error, LookupError) else 400)
        except (OSError, ValueError, TypeError) as error:  # files that are half-written, damaged or not readable
            return _json({"error": f"this cannot be read: {error}"}, 422)

    def _entry(self, request: Request) -> Entry:
        return self.catalog.find(request.query_params.get("key", ""))

    def runs(self, request: Request) -> Any:
        return {"root": str(self.catalog.root), "runs": self.catalog.summaries()}

    def run(self, request: Request) -> Any:
        entry = self._entry(request)
        run = entry.directory
        problems: list[str] = []

        def tried(find: Callable[[], Any], otherwise: Any) -> Any:
            try:
                return find()
            except (OSError, ValueError, TypeError, LookupError) as error:
                problems.append(str(error))
                return otherwise

        names = detail.videos_of(run)
        return {
            "key": entry.summary.key,
            "live": entry.runtime is not None,
            **self._state(entry),
            "options": tried(lambda: detail.options_of(run), []),
            "metrics": self._series.names(run),
            "events": self._series.events(run),
            "checkpoints": tried(lambda: detail.checkpoints_of(run), []),
            "videos": [
                {"name": n, "url": f"api/video?{urlencode({'key': entry.summary.key, 'name': n})}"} for n in names
            ],
            "logs": detail.logs_of(run),
            "machine": run.read_machine(),
            "league": detail.league_of(run),
            "problems": problems,
        }

    def _state(self, entry: Entry) -> dict[str, Any]:
        """Return what changes while a run is active."""
        status = entry.status
        if status is None:
            try:
                status = entry.directory.read_status()
            except OSError:
                status = None
        if status is None:  # killed, on another host, or damaged
            summary = entry.summary
            known = {"run": summary.name, "environment": summary.environment, "algorithm": summary.algorithm}
            figures = {"state": summary.state, "steps": summary.steps, "return_mean": summary.return_mean}
            blank = {"path": str(entry.directory.path), "reason": summary.error, "policies": {}, "streams": []}
            more = {"replay": [], "edges": [], "bottleneck": "", "advice": "", "restarts": 0, "elapsed": None}
            return {"status": {**known, **figures, **blank, **more}, "groups": []}
        return {"status": detail.shown_status(status), "groups": detail.groups_of(status.workers)}

    def workers(self, request: Request) -> Any:
        entry = self._entry(request)
        status = entry.status or entry.directory.read_status()
        workers = status.workers if status is not None else []
        return detail.workers_page(workers, request.query_params.get("group", ""), _number(request, "offset"))

    def series(self, request: Request) -> Any:
        names = request.query_params.getlist("name")
        if len(names) > MAX_NAMES:
            raise RefusedError(f"at most {MAX_NAMES} metrics at once, found {len(names)}")
        return {"series": self._series.series(self._entry(request).directory, names, _axis(request))}

    def compare(self, request: Request) -> Any:
        keys = request.query_params.getlist("key")[:MAX_COMPARED]
        metrics = request.query_params.getlist("metric")[:MAX_NAMES]
        if not keys or not metrics:
            raise RefusedError("expected at least one key and one metric")
        runs = [self.catalog.find(key).directory for key in keys]
        grouped = request.query_params.get("grouped") == "1"
        return self._series.compare(runs, metrics, _axis(request), grouped)

    def log(self, request: Request) -> Any:
        return {"text": detail.log_tail(self._entry(request).directory, request.query_params.get("name", ""))}

    async def video(self, request: Request) -> Response:
        try:
            run = (await run_in_threadpool(self._entry, request)).directory
        except LookupError as error:
            return _json({"error": str(error.args[0])}, 404)
        name = request.query_params.get("name", "")
        if name not in detail.videos_of(run):
            return _json({"error": "there is no such video"}, 404)
        return FileResponse(run.path / name, media_type=MEDIA[Path(name).suffix])

    async def metrics(self, request: Request) -> Response:
        """Prometheus text of all live runs; Prometheus sends the token as a bearer token."""
        entries = await run_in_threadpool(self.catalog.entries)
        statuses = [entry.status for entry in entries.values() if entry.status is not None]
        content, kind = exposition(statuses)
        return Response(content, headers={"Content-Type": kind})

    async def action(self, request: Request) -> Response:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return _json({"error": "the request is too long"}, 413)
        try:
            action = msgspec.json.decode(body, type=Action)
            entry = await run_in_threadpool(self.catalog.find, action.key)
            return _json({"text": await run_in_threadpool(carry_out, entry, action)})
        except msgspec.MsgspecError as error:
            return _json({"error": f"not an action: {error}"}, 400)
        except LookupError as error:
            return _json({"error": str(error.args[0])}, 404)
        except ActionError as error:
            return _json({"error": str(error)}, 409)

    async def events(self, request: Request) -> Response:
        if self._open_streams >= MAX_STREAMS:
            return _json({"error": f"{MAX_STREAMS} pages are open already"}, 503)
        stream = self._events(request, request.query_params.get("key", ""))
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _events(self, request: Request, key: str) -> AsyncIterator[bytes]:
        self._open_streams += 1
        try:
            known: dict[str, Summary] = {}
            last, num_events, quiet = b"", -1, BEAT_EVENTS
            while not await request.is_disconnected():
                entries = await run_in_threadpool(self.catalog.entries)
                summaries = {name: entry.summary for name, entry in entries.items()}
                messages: list[bytes] = []
                if not key:
                    changed = [one for name, one in summaries.items() if known.get(name) != one]
                    removed = [name for name in known if name not in summaries]
                    if known and (changed or removed):
                        messages.append(_event("runs", {"changed": changed, "removed": removed}))
                    known = summaries
                elif key not in entries:
                    messages += [_event("run", {"gone": True})] if last != b"gone" else []
                    last = b"gone"
                else:
                    state = self._state(entries[key])
                    happened = await run_in_threadpool(self._series.events, entries[key].directory)
                    state["events"] = happened[num_events:] if 0 <= num_events < len(happened) else []
                    num_events = len(happened)
                    content = _event("run", state)
                    messages += [content] if content != last else []
                    last = content
                quiet += 1
                if not messages and quiet >= BEAT_EVENTS:
                    messages.append(_event("beat", {}))
                for message in messages:
                    quiet = 0
                    yield message
                await asyncio.sleep(EVENT_SECONDS)
        finally:
            self._open_streams -= 1


def _axis(request: Request) -> str:
    axis: str = request.query_params.get("x", "steps")
    if axis not in ("steps", "time", "episodes"):
        raise RefusedError(f"x must be steps, time or episodes; found {axis!r}")
    return axis


def _number(request: Request, name: str) -> int:
    try:
        return int(request.query_params.get(name, "0"))
    except ValueError:
        raise RefusedError(f"{name} must be a number") from None


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _event(name: str, content: Any) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"
