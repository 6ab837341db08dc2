"""The dashboard in a real browser: `make test-browser`, with Debian's chromium."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright
from support.controllers import Controllers
from support.http_client import HttpClient, dashboard_at

from srl.dashboard.answers import Answers

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--disable-quic"]
OpenPage = Callable[..., Page]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed"))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "runs").mkdir()
    with tempfile.TemporaryDirectory(prefix="srl-") as runtime:  # its path is short: the kernel allows 107 bytes
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        yield tmp_path / "runs"


@pytest.fixture
def client(root: Path) -> Iterator[HttpClient]:
    with dashboard_at(root) as client:
        yield client


@pytest.fixture
def controllers() -> Iterator[Controllers]:
    found = Controllers()
    yield found
    found.released.set()


@pytest.fixture
def controlled(root: Path, controllers: Controllers) -> Iterator[HttpClient]:
    """A dashboard whose live runs are the `controllers`."""
    with dashboard_at(root, answers=Answers(controllers.ask)) as client:
        yield client


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, forgiven: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
    """Open a page. The test fails if it reports an error or asks another host."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True, **options})
    page = context.new_page()
    problems: list[str] = []

    def note(text: str) -> None:
        if not any(words in text for words in forgiven):
            problems.append(text)

    def refuse(dialog: Dialog) -> None:
        note(dialog.message)
        dialog.dismiss()

    page.on("console", lambda message: note(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: note(str(error)))
    page.on("dialog", refuse)
    own = ("http://localhost:", "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(own) else note(request.url))
    try:
        yield page
    finally:
        context.close()
    assert problems == []


@pytest.fixture
def page(browser: Browser, client: HttpClient) -> Iterator[Page]:
    with opened(browser) as page:
        yield page
