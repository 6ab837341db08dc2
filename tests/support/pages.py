"""Steps of tests in a browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Locator, Page

from support.http_client import TOKEN, HttpClient
from support.waiting import PATIENCE


def show(page: Page, client: HttpClient, place: str = "/") -> None:
    page.goto(f"{client.base}/?token={TOKEN}#{place}")


def see(page: Page, text: str) -> Locator:
    found = page.get_by_text(text).first
    found.wait_for(timeout=30_000)
    return found


def wait_until(page: Page, condition: Callable[[], object]) -> None:
    """Wait for a condition. The page's own waiting evaluates texts, which its policy forbids."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        page.wait_for_timeout(200)


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def chart(page: Page, metric: str) -> Locator:
    """Return the card of a metric, with its curve drawn."""
    card = page.locator(".chart", has=page.locator(f"h3:text-is('{metric}')"))
    card.locator("canvas").wait_for(timeout=30_000)
    return card


def saved(page: Page, card: Locator, kind: str) -> bytes:
    with page.expect_download() as waiting:
        card.get_by_role("button", name=kind).click()
    return Path(waiting.value.path()).read_bytes()


def curve(page: Page, card: Locator) -> list[str]:
    """Return the rows of a card's curve."""
    return saved(page, card, "CSV").decode().splitlines()[1:]


def picture(card: Locator) -> str:
    return str(card.locator("canvas").evaluate("canvas => canvas.toDataURL()"))
