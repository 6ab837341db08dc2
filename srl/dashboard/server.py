"""The web server: checks who asks, answers with JSON, and sends events while a page is open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio
import anyio.to_thread
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
from srl.dashboard.catalog import Catalog, Entry
from srl.dashboard.comparisons import Comparisons, TooManyCurvesError
from srl.dashboard.feeds import RunFeed, TableFeed, encoded, event, page_stamp, state_of
from srl.dashboard.series import SeriesCache

ASSETS = Path(__file__).parent / "assets"
EVENT_SECONDS = 1.0
BEAT_EVENTS = 3
"""Seconds without a change after which the server sends a sign of life."""
SERIES_SECONDS = 1.5
"""Time after which a page asks again for the curves of a run that is live."""
MAX_THREADS = 6
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
        self._comparisons = Comparisons(self._series)
        self._open_streams = 0
        self._is_closing = False
        self._limiter: anyio.CapacityLimiter | None = None
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

    def close(self) -> None:
        """End the streams of events, so that the server can end."""
        self._is_closing = True

    async def page(self, request: Request) -> Response:
        return HTMLResponse((ASSETS / "index.html").read_text())

    async def _answer(self, find: Callable[[Request], Any], request: Request) -> Response:
        try:
            return _json(await self._in_thread(partial(find, request)))
        except (LookupError, RefusedError, TooManyCurvesError) as error:
            return _json({"error": str(error.args[0])}, 404 if isinstance(error, LookupError) else 400)
        except (OSError, ValueError, TypeError, RecursionError) as error:  # files that are damaged or not readable
            return _json({"error": f"this cannot be read: {error}"}, 422)

    def _entry(self, request: Request) -> Entry:
        return self.catalog.find(request.query_params.get("key", ""))

    def runs(self, request: Request) -> Any:
        revision, _, entries = self.catalog.snapshot()
        runs = [entry.summary for entry in entries.values()]
        return {"root": str(self.catalog.root), "revision": revision, "runs": runs}

    def run(self, request: Request) -> Any:
        entry = self._entry(request)
        run = entry.directory
        problems: list[str] = []

        def tried(find: Callable[[], Any], otherwise: Any) -> Any:
            try:
                return find()
            except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
                problems.append(str(error))
                return otherwise

        names = detail.videos_of(run)
        begin, events = self._series.events(run)
        return {
            "key": entry.summary.key,
            **state_of(entry),
            "stamp": page_stamp(entry, self._series),
            "options": tried(lambda: detail.options_of(run), []),
            "metrics": self._series.names(run),
            "events_begin": begin,
            "events": events,
            "checkpoints": tried(lambda: detail.checkpoints_of(run), []),
            "videos": [
                {"name": n, "url": f"api/video?{urlencode({'key': entry.summary.key, 'name': n})}"} for n in names
            ],
            "logs": detail.logs_of(run)[: detail.MAX_LOGS],
            "machine": run.read_machine(),
            "league": detail.league_of(run),
            "problems": problems + self._series.problems(run),
        }

    def workers(self, request: Request) -> Any:
        entry = self._entry(request)
        status = entry.status or entry.directory.read_status()
        workers = status.workers if status is not None else []
        return detail.workers_page(workers, request.query_params.get("group", ""), _number(request, "offset"))

    def series(self, request: Request) -> Any:
        names = request.query_params.getlist("name")
        if len(names) > MAX_NAMES:
            raise RefusedError(f"at most {MAX_NAMES} metrics at once, found {len(names)}")
        run, began = self._entry(request).directory, time.thread_time()
        found = self._series.series(run, names, _axis(request))
        return {"series": found, "seconds": _pause(began), "problems": self._series.problems(run)}

    def compare(self, request: Request) -> Any:
        keys = request.query_params.getlist("key")[:MAX_COMPARED]
        metrics = request.query_params.getlist("metric")[:MAX_NAMES]
        if not keys or not metrics:
            raise RefusedError("expected at least one key and one metric")
        runs = [self.catalog.find(key).directory for key in keys]
        grouped = request.query_params.get("grouped") == "1"
        began = time.thread_time()
        found = self._comparisons.compare(runs, metrics, _axis(request), grouped)
        return {**found, "seconds": _pause(began)}

    def log(self, request: Request) -> Any:
        return {"text": detail.log_tail(self._entry(request).directory, request.query_params.get("name", ""))}

    async def video(self, request: Request) -> Response:
        try:
            run = (await self._in_thread(partial(self._entry, request))).directory
        except LookupError as error:
            return _json({"error": str(error.args[0])}, 404)
        name = request.query_params.get("name", "")
        if name not in detail.videos_of(run):
            return _json({"error": "there is no such video"}, 404)
        return FileResponse(run.path / name, media_type=MEDIA[Path(name).suffix])

    async def metrics(self, request: Request) -> Response:
        """Prometheus text of all live runs; Prometheus sends the token as a bearer token."""
        entries = await self._in_thread(self.catalog.entries)
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
            entry = await self._in_thread(partial(self.catalog.find, action.key))
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
        try:
            after = int(request.headers.get("last-event-id") or request.query_params.get("after") or 0)
        except ValueError:
            return _json({"error": "after must be a number"}, 400)
        key = request.query_params.get("key", "")
        feed = RunFeed(self.catalog, self._series, key, after) if key else TableFeed(self.catalog, after)
        return StreamingResponse(
            self._events(request, feed), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    async def _events(self, request: Request, feed: TableFeed | RunFeed) -> AsyncIterator[bytes]:
        self._open_streams += 1
        try:
            quiet = BEAT_EVENTS
            while not self._is_closing and not await request.is_disconnected():
                try:
                    message = await self._in_thread(feed.next)
                except (OSError, ValueError, TypeError, RecursionError):  # the page asks for the reason
                    message = None
                quiet = quiet + 1 if message is None else 0
                if quiet > BEAT_EVENTS:
                    message, quiet = event("beat", {}), 0
                if message is not None:
                    yield message
                await asyncio.sleep(EVENT_SECONDS)
        finally:
            self._open_streams -= 1

    async def _in_thread(self, find: Callable[[], Any]) -> Any:
        """Call a function that reads files in one of a few threads: each thread keeps memory of its own."""
        self._limiter = self._limiter or anyio.CapacityLimiter(MAX_THREADS)
        return await anyio.to_thread.run_sync(find, limiter=self._limiter)


def _pause(began: float) -> float:
    """Return the seconds after which a page may repeat a request that took the time since `began`. Requests of one
    page thus take at most 2 % of the server's time."""
    return max(SERIES_SECONDS, 50 * (time.thread_time() - began))


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
    return Response(encoded(content), status, media_type="application/json")
