"""A server of the dashboard in a thread, and requests to it over a real socket."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from srl.dashboard.access import Access, host_names
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

    def _request(self, method: str, path: str, headers: Mapping[str, str], content: str | None) -> Answer:
        own = {"X-SRL": "1", "Host": f"localhost:{self.port}", **headers}
        if self.cookies:
            own["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
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
def dashboard_at(root: Path, port: int = 0) -> Iterator[HttpClient]:
    """Serve the runs below `root`. Every question reads the files again."""
    import uvicorn

    listener = listening("127.0.0.1", port)
    port = listener.getsockname()[1]
    access = Access(TOKEN, host_names("127.0.0.1"))
    ticks = iter(range(0, 10**9, 10))
    dashboard = Dashboard(Catalog(root, clock=lambda: float(next(ticks))), access)
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
