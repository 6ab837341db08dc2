"""A server of the dashboard in a thread, and requests to it over a real socket."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from srl.dashboard.access import Access, host_names
from srl.dashboard.answers import Answers
from srl.dashboard.catalog import Catalog
from srl.dashboard.serve import listening
from srl.dashboard.server import Dashboard

TOKEN = "token-of-the-test"


@dataclass(frozen=True)
class Answer:
    status_code: int
    headers: dict[str, str]
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class HttpClient:
    """A client that keeps cookies, as a browser does."""

    port: int
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def base(self) -> str:
        return f"http://localhost:{self.port}"

    def get(
        self, path: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        query = f"?{urlencode(params, doseq=True)}" if params else ""
        return self._request("GET", path + query, headers or {}, None)

    def post(self, path: str, content: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self._request("POST", path, headers or {}, content)

    def events(self, path: str, headers: Mapping[str, str] | None = None) -> Generator[tuple[str, Any], None, None]:
        """Yield the server-sent events at a path, each with its name and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={**self._headers(), **(headers or {})})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            found: dict[str, str] = {}
            for line in answer:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                found[name] = value
                if not name:
                    yield found.get("event", ""), json.loads(found.get("data", "null"))
                    found = {}
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        own = {"X-SRL": "1", "Host": f"localhost:{self.port}"}
        if self.cookies:
            own["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return own

    def _request(self, method: str, path: str, headers: Mapping[str, str], content: str | None) -> Answer:
        own = {**self._headers(), **headers}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, content, own)
            answer = connection.getresponse()
            found = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()
        if cookie := found.headers.get("set-cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return found


@contextmanager
def dashboard_at(root: Path, port: int = 0, token: str = TOKEN, answers: Answers | None = None) -> Iterator[HttpClient]:
    """Serve the runs below `root`. Every question reads the files again."""
    import uvicorn

    listener = listening("127.0.0.1", port)
    port = listener.getsockname()[1]
    access = Access(token, host_names("127.0.0.1"))
    ticks = iter(range(0, 10**9, 10))
    dashboard = Dashboard(Catalog(root, clock=lambda: float(next(ticks)), answers=answers), access)
    server = uvicorn.Server(
        uvicorn.Config(dashboard.app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield HttpClient(port)
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
