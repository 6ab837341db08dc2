"""The table of runs, comparisons, and what all pages have in common, in a browser."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from dashboard.browser.conftest import opened
from dashboard.conftest import MakeRun, rows, status_of
from PIL import Image
from playwright.sync_api import Browser, Page
from support.http_client import TOKEN, HttpClient, dashboard_at
from support.pages import chart, curve, saved, see, show, wait_until

from srl.api.status import PolicyStatus

EVIL = "<img src=x onerror=alert(1)>"


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
    _, *rows = saved(page, chart(page, "return"), "CSV").decode().splitlines()
    assert [row.split(",")[2] for row in rows] == [row.split(",")[3] for row in rows]  # two equal seeds: no interval
    page.get_by_label("over seeds").uncheck()
    wait_until(page, lambda: {row.split(",")[0] for row in curve(page, chart(page, "return"))} == {"seed0", "seed1"})
    page.get_by_label("Add a metric").select_option("policy_loss")
    page.locator(".chart h3", has_text="policy_loss").wait_for()
    other = page.context.new_page()
    other.goto(page.url)  # a link that was sent shows the same
    for metric in ("return", "policy_loss"):
        chart(other, metric)


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_saved_pictures_have_names_and_a_white_background(
    browser: Browser, client: HttpClient, make_run: MakeRun, color_scheme: str
) -> None:
    for seed in (0, 1):
        make_run(f"seed{seed}", seed=seed)
    with opened(browser, color_scheme=color_scheme) as page:
        show(page, client, "/compare?run=seed0&run=seed1")
        page.get_by_label("over seeds").uncheck()
        wait_until(page, lambda: len({row.split(",")[0] for row in curve(page, chart(page, "return"))}) == 2)
        svg = saved(page, chart(page, "return"), "SVG").decode()
        for text in (">seed0<", ">seed1<", ">return<", ">400<", ">10<"):
            assert text in svg, text
        image = Image.open(io.BytesIO(saved(page, chart(page, "return"), "PNG"))).convert("RGB")
        assert image.width == 1280
        assert image.getpixel((0, 0)) == image.getpixel((1279, image.height - 1)) == (255, 255, 255)
        colors = {color for _, color in image.getcolors(1 << 20) or []}
        assert {(0, 0x72, 0xB2), (0xD5, 0x5E, 0)} <= colors  # both curves


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


def test_a_lost_connection_is_said_and_comes_back(root: Path, browser: Browser, make_run: MakeRun) -> None:
    make_run("mine")
    with opened(
        browser, forgiven=("ERR_CONNECTION_", "ERR_INCOMPLETE_CHUNKED", "ERR_EMPTY", "403 (Forbidden)")
    ) as page:
        with dashboard_at(root) as client:
            show(page, client)
            page.locator("#connection", has_text="live").wait_for(timeout=30_000)
        see(page, "connection lost")
        with dashboard_at(root, port=client.port):
            page.locator("#connection", has_text="live").wait_for(timeout=30_000)
            make_run("later")
            see(page, "later")
        with dashboard_at(root, port=client.port, token="another-token-of-it"):
            see(page, "the server has another token now")


def test_it_works_on_a_phone_by_keyboard_and_in_the_dark(
    client: HttpClient, browser: Browser, make_run: MakeRun
) -> None:
    make_run("mine")
    make_run("sweep-with-a-long-name-whose-runs-have-longer-names-learning_rate-0.0005-epochs-8-0")
    size = {"width": 380, "height": 800}
    with opened(browser, viewport=size, color_scheme="dark", is_mobile=True) as page:
        show(page, client)
        see(page, "mine")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.get_by_label("Switch between light and dark").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        for place, text in (
            ("/run/mine", "Workers and streams"),
            ("/compare?run=mine", "Options that differ"),
            ("/", "mine"),
        ):
            show(page, client, place)
            see(page, text)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), place
        show(page, client, "/compare?run=mine")
        chart(page, "return")
        for name in ("Curves", "Workers", "Config", "Checkpoints and videos", "Logs"):
            show(page, client, f"/run/mine?tab={quote(name)}")
            page.locator(f"[role=tab][aria-selected=true]:text-is('{name}')").wait_for()
            page.wait_for_load_state("networkidle")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name


def test_two_dashboards_are_open_at_once(root: Path, browser: Browser, make_run: MakeRun) -> None:
    make_run("mine")
    with dashboard_at(root) as one, dashboard_at(root, token="token-of-another") as two, opened(browser) as page:
        show(page, one)
        see(page, "mine")
        other = page.context.new_page()
        other.goto(f"{two.base}/?token=token-of-another")
        see(other, "mine")
        for again in (page, other):
            again.reload()
            see(again, "mine")


def test_runs_of_sweeps_and_leagues_are_folded_and_selected_together(
    page: Page, client: HttpClient, make_run: MakeRun
) -> None:
    for seed in range(3):
        make_run(f"sweep/sweep-seed-{seed}", seed=seed, return_mean=10.0 * seed)
    several = {name: PolicyStatus(return_mean=value) for name, value in (("red", 3.5), ("blue", -1.25))}
    make_run("league/member", policies=several, return_mean=None)
    for group in ("sweep", "league"):
        (make_run(f"{group}/x").path.parent / "group.json").write_text("{}")
        shutil.rmtree(make_run(f"{group}/x").path)
    show(page, client)
    see(page, "red 3.5")
    row = page.locator("tr.group", has_text="sweep")
    assert "3 runs: 3 finished, mean return 10" in row.inner_text()
    assert {"seed-0", "seed-1", "seed-2"} <= set(page.locator("tr.member a").all_inner_texts())
    row.get_by_role("button").click()
    page.locator("a", has_text="seed-1").wait_for(state="detached")
    page.get_by_label("Select all runs of sweep").check()
    see(page, "3 selected")
    row.get_by_role("button").click()
    assert page.get_by_label("Select sweep-seed-1").is_checked()
    page.get_by_label("Select sweep-seed-1").uncheck()
    see(page, "2 selected")
    page.get_by_role("button", name="Clear").click()
    page.get_by_text("2 selected").wait_for(state="detached")


def test_a_table_that_changes_keeps_the_focus_and_filters_every_state(
    page: Page, client: HttpClient, make_run: MakeRun
) -> None:
    make_run("mine")
    make_run("broken").status.write_text("{")
    show(page, client)
    page.get_by_label("Select mine").focus()
    make_run("another")
    see(page, "another")
    assert page.evaluate("document.activeElement.ariaLabel") == "Select mine"
    for state in ("starting", "submitted", "queued", "killed"):
        page.get_by_label("State", exact=True).select_option(state)
        see(page, "No run matches.")
    page.get_by_label("State", exact=True).select_option("damaged")
    assert page.locator("tbody td.name a").all_inner_texts() == ["broken"]


def test_a_comparison_follows_its_runs(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    make_run("a", seed=0)
    run = make_run("b", seed=1, ended=False)
    show(page, client, "/compare?run=a&run=b")
    before = curve(page, chart(page, "return"))
    chart(page, "return").locator("canvas").evaluate("canvas => { canvas.dataset.mark = 1 }")
    see(page, "final return")
    with run.metrics.open("a") as file:
        for row in rows(14)[10:]:
            file.write(json.dumps(row) + "\n")
    make_run("a", seed=0, updates=14)
    wait_until(page, lambda: curve(page, chart(page, "return"))[-1] != before[-1])
    assert page.locator("canvas[data-mark]").count() == 1
