"""The dashboard's pages in a real browser: `make test-browser`, with Debian's chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from dashboard.conftest import MakeRun, rows, status_of
from playwright.sync_api import Browser, Dialog, Locator, Page, sync_playwright
from support.http_client import TOKEN, HttpClient, dashboard_at

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
FLAGS += ["--disable-component-update", "--disable-quic"]
EVIL = "<img src=x onerror=alert(1)>"

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")]


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HttpClient]:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    (tmp_path / "runs").mkdir()
    with dashboard_at(tmp_path / "runs") as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(client: HttpClient, browser: Browser) -> Iterator[Page]:
    """An open page. The test fails if it reports an error or asks another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    page = context.new_page()
    problems: list[str] = []

    def refuse(dialog: Dialog) -> None:
        problems.append(dialog.message)
        dialog.dismiss()

    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", refuse)
    own = (client.base, "data:", "blob:")
    page.on("request", lambda request: None if request.url.startswith(own) else problems.append(request.url))
    yield page
    context.close()
    assert problems == []


def show(page: Page, client: HttpClient, place: str = "/") -> None:
    page.goto(f"{client.base}/?token={TOKEN}#{place}")


def see(page: Page, text: str) -> Locator:
    found = page.get_by_text(text).first
    found.wait_for(timeout=20_000)
    return found


def test_the_table_of_runs_filters_sorts_and_follows_changes(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    make_run("apple", return_mean=3.0)
    pear = make_run("pear", return_mean=20.0)
    show(page, client)
    see(page, "apple")
    assert TOKEN not in page.url
    names = page.locator("tbody td.name a")
    page.get_by_role("button", name="Return").click()
    assert names.all_inner_texts() == ["apple", "pear"]
    page.get_by_role("button", name="Return").click()
    assert names.all_inner_texts() == ["pear", "apple"]
    page.get_by_label("Filter runs").fill("PEA cartpole")
    assert names.all_inner_texts() == ["pear"]
    page.get_by_label("Filter runs").fill("")
    page.get_by_label("Filter runs").blur()
    make_run("plum")
    see(page, "plum")
    pear.status.write_bytes(msgspec.json.encode(status_of(pear.path, return_mean=77.5)))
    see(page, "77.5")
    shutil.rmtree(pear.path)
    page.get_by_text("pear").wait_for(state="detached", timeout=20_000)


def test_a_run_shows_its_graph_curves_events_and_files(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    run = make_run("mine", updates=50)
    (run.path / "league.json").write_text(json.dumps({"players": ["a", "b"], "points": [[None, 0.9], [0.1, None]]}))
    show(page, client, "/run/mine")
    see(page, "actors/0 died")
    assert page.locator("svg.graph .node").count() == 2
    assert page.locator("svg.graph path.push").count() == 1
    see(page, "1 dropped")
    page.locator("canvas").first.wait_for()
    see(page, "League")
    page.locator("svg.graph [data-group=trainers]").press("Enter")
    see(page, "trainers/0")
    page.get_by_role("button", name="actors").click()
    see(page, "actors/1")
    page.get_by_role("button", name="Log", exact=True).first.click()
    see(page, "hello from the actor")
    page.get_by_role("tab", name="Config").click()
    see(page, "algorithm.gamma")
    page.get_by_role("tab", name="Checkpoints and videos").click()
    see(page, "None yet.")


def test_curves_have_axes_smoothing_and_files(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    make_run("mine", updates=50)
    show(page, client, "/run/mine")
    page.get_by_role("tab", name="Curves").click()
    page.get_by_text("Metrics (").click()
    page.get_by_label("policy_loss").check()
    see(page, "policy_loss")
    page.locator(".chart h3", has_text="policy_loss").wait_for()
    page.get_by_label("logarithmic").check()
    page.get_by_label("Against").select_option("time")
    card = page.locator(".chart", has=page.locator("h3", has_text="policy_loss"))
    card.locator("canvas").wait_for()
    for kind, begin in (("CSV", "curve,time,value"), ("SVG", "<svg"), ("PNG", "\x89PNG")):
        with page.expect_download() as waiting:
            card.get_by_role("button", name=kind).click()
        content = Path(waiting.value.path()).read_bytes()
        assert content.decode("latin-1").startswith(begin), kind
        if kind == "CSV":
            assert content.decode().splitlines()[1] == "policy_loss,0.5,1,,"


def test_runs_are_compared(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(f"seed{seed}", seed=seed)
    show(page, client)
    for seed in (0, 1):
        page.get_by_label(f"Select seed{seed}").check()
    see(page, "2 selected")
    page.get_by_role("button", name="Compare").click()
    see(page, "Compare 2 runs")
    see(page, "the same options")
    page.locator("canvas").first.wait_for()
    assert page.locator(".u-legend .u-series:visible").count() == 2
    page.get_by_label("over seeds").uncheck()
    page.get_by_label("Add a metric").select_option("policy_loss")
    page.locator(".chart h3", has_text="policy_loss").wait_for()


def test_actions_ask_first_and_say_what_happened(
    page: Page, client: HttpClient, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("mine")
    (run.checkpoints / "0001-step-1000").mkdir()
    show(page, client, "/run/mine")
    see(page, "Workers and streams")
    assert page.get_by_role("button", name="Stop …").is_disabled()
    page.get_by_role("button", name="Record video").click()
    see(page, "Record a video")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Record a video of").wait_for(state="hidden")


def test_names_are_shown_as_text(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    run = make_run(EVIL, environment=EVIL, reason=EVIL, bottleneck=EVIL)
    run.metrics.write_text("".join(json.dumps({**row, EVIL: 1.0}) + "\n" for row in rows(5)))
    show(page, client)
    see(page, EVIL).click()
    page.locator("h1", has_text=EVIL).wait_for()
    page.get_by_role("tab", name="Curves").click()
    page.get_by_text("Metrics (").click()
    page.get_by_label(EVIL).check()
    page.locator(".chart h3", has_text=EVIL).wait_for()
    assert page.locator("img[src=x]").count() == 0


def test_a_lost_connection_is_said_and_comes_back(
    tmp_path: Path, browser: Browser, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    make_run("mine")
    page = browser.new_page()
    with dashboard_at(tmp_path / "runs") as client:
        show(page, client)
        see(page, "live")
    see(page, "connection lost")
    with dashboard_at(tmp_path / "runs", port=client.port):
        page.locator("#connection", has_text="live").wait_for(timeout=30_000)
    page.close()


def test_it_works_on_a_phone_by_keyboard_and_in_the_dark(
    client: HttpClient, browser: Browser, make_run: MakeRun
) -> None:
    make_run("mine")
    context = browser.new_context(viewport={"width": 380, "height": 800}, color_scheme="dark", is_mobile=True)
    page = context.new_page()
    show(page, client)
    see(page, "mine")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.get_by_label("Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    show(page, client, "/run/mine")
    see(page, "Workers and streams")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    context.close()
