"""The page of one run in a browser."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from dashboard.browser.conftest import opened
from dashboard.conftest import MakeRun, status_of
from playwright.sync_api import Browser, Page
from support.controllers import Controllers
from support.http_client import HttpClient
from support.live_runs import live_run
from support.pages import chart, curve, picture, saved, see, show, tab, wait_until

from srl.api.status import StreamStatus, WorkerStatus


def test_a_run_shows_its_graph_curves_events_and_files(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    run = make_run("mine", updates=50)
    league = {"players": ["a", "b"], "points": [[None, 0.9], [0.1, None]], "ratings": {"b": -3.5, "a": 21.25}}
    (run.path / "league.json").write_text(json.dumps(league))
    show(page, client, "/run/mine")
    see(page, "actors/0 died")
    assert page.locator("svg.graph .node").count() == 2
    assert page.locator("svg.graph path.push").count() == 1
    see(page, "1 dropped")
    see(page, "replay 50 of 100, ratio 0.9 of 1")
    page.locator("canvas").first.wait_for()
    see(page, "Ratings: a 21.3, b -3.5")
    assert page.locator("table.heat tbody tr").all_inner_texts() == ["a\t–\t0.9", "b\t0.1\t–"]
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
    assert page.title() == "mine · SRL"
    page.reload()  # the address names the tab
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
    card = chart(page, "policy_loss")
    for kind, begin in (("CSV", "curve,time,value"), ("SVG", "<svg"), ("PNG", "\x89PNG")):
        assert saved(page, card, kind).decode("latin-1").startswith(begin), kind
    assert curve(page, card)[0] == "policy_loss,0.5,1,,"
    page.get_by_label("logarithmic").uncheck()
    seen = [picture(card)]
    for change in (
        lambda: page.get_by_label("logarithmic").check(),
        lambda: page.get_by_label("Smoothing").fill("0.9"),
        lambda: page.get_by_label("events").uncheck(),
    ):
        change()
        page.wait_for_timeout(200)
        seen.append(picture(chart(page, "policy_loss")))
    assert len(set(seen)) == 4  # each changes what is drawn
    assert b"stroke" in saved(page, card, "SVG")


def test_a_live_run_is_followed_in_place(page: Page, client: HttpClient, root: Path) -> None:
    with live_run(root, eval_every=10**8, eval_episodes=1):
        show(page, client, "/run/live")
        card = chart(page, "return")  # also if the page was opened before the first update
        record = page.get_by_role("button", name="Record video")
        assert record.is_disabled()
        see(page, "hello from a callback")
        card.locator("canvas").evaluate("canvas => { canvas.dataset.mark = 1 }")
        before = len(curve(page, card))
        wait_until(page, lambda: len(curve(page, card)) > before + 10)
        assert page.locator("canvas[data-mark]").count() == 1
        page.get_by_role("button", name="Save checkpoint").click()
        page.locator("[data-action=confirm]").click()
        see(page, "writes a checkpoint")
        page.locator("[data-action=record]:not([disabled])").wait_for(timeout=30_000)
        page.locator("dialog").wait_for(state="hidden")
        page.get_by_role("button", name="Evaluate").click()
        page.locator("[data-action=confirm]").click()
        page.locator(".figures span:text-is('evaluation')").wait_for(timeout=30_000)
        page.locator("dialog").wait_for(state="hidden")
        chart(page, "eval/return")
        tab(page, "Workers")
        page.locator("tbody button", has_text="actors").click()
        steps = page.locator(".figures").inner_text()
        wait_until(page, lambda: page.locator(".figures").inner_text() != steps)
        page.wait_for_timeout(1500)
        assert page.evaluate("document.activeElement.textContent") == "actors"
        page.get_by_role("button", name="Scale …").click()
        page.get_by_label("Group of workers").select_option("actors")
        page.get_by_label("Number of workers").fill("2")
        page.locator("[data-action=confirm]").click()
        see(page, "actors: 1 -> 2")
        page.locator("dialog").wait_for(state="hidden")
        page.locator("tbody td", has_text="actors/1").wait_for(timeout=30_000)
        tab(page, "Curves")
        card = chart(page, "return")
        check_zoom_and_legend(page)
        page.get_by_role("button", name="Stop …").click()
        page.locator("[data-action=confirm]").click()
        page.locator("h1 .stopped").wait_for(timeout=30_000)
        assert page.get_by_role("button", name="Stop …").is_disabled()
        pytest.importorskip("imageio")
        record.click()
        page.locator("[data-action=confirm]").click()
        page.locator("dialog").wait_for(state="hidden", timeout=300_000)
        tab(page, "Checkpoints and videos")
        page.locator("video, .media img").wait_for(timeout=30_000)


def check_zoom_and_legend(page: Page) -> None:
    """Zoom into the first chart and hide its curve; both stay while the run goes on."""
    box = page.locator(".u-over").first.bounding_box()
    assert box is not None
    x, y = box["x"], box["y"] + box["height"] / 2
    page.mouse.move(x + 0.2 * box["width"], y)
    page.mouse.down()
    page.mouse.move(x + 0.5 * box["width"], y, steps=5)
    page.mouse.up()
    page.mouse.move(x + 0.99 * box["width"], y)
    end = page.locator(".u-legend .u-series:first-child .u-value").first
    shown = end.inner_text()
    page.locator(".u-legend .u-series:nth-child(2) th").first.click()
    before = len(curve(page, chart(page, "return")))
    wait_until(page, lambda: len(curve(page, chart(page, "return"))) > before + 10)
    page.mouse.move(x + 0.98 * box["width"], y)
    page.mouse.move(x + 0.99 * box["width"], y)
    assert end.inner_text() == shown
    assert "u-off" in (page.locator(".u-legend .u-series:nth-child(2)").first.get_attribute("class") or "")


def test_the_bottleneck_is_framed_with_flows_and_advice(
    browser: Browser, controlled: HttpClient, controllers: Controllers, make_run: MakeRun
) -> None:
    run = make_run("mine", ended=False)

    def status(consumed: int) -> None:
        streams = [StreamStatus(f"samples/{n}", "push", 0.5, 10_000, consumed) for n in range(100)]
        words = {"bottleneck": "trainer: updates take all of the time", "advice": "--epochs 5"}
        now = {"state": "running", "elapsed": consumed / 10, "streams": streams, "target_steps": 2000}
        controllers.add("mine", status_of(run.path, **words, **now))

    status(100)
    with opened(browser) as page:
        show(page, controlled, "/run/mine")
        see(page, "trainer: updates take all of the time")
        see(page, "--epochs 5")
        assert page.locator("svg.graph .bottleneck").get_attribute("data-group") == "trainers"
        see(page, "blocks")
        status(200)  # 100 consumers, 10 each per second
        see(page, "1.00k blocks/s")
        sizes = page.locator("svg.graph").evaluate(
            "svg => [svg.getBoundingClientRect().width, svg.viewBox.baseVal.width]"
        )
        assert sizes[0] <= sizes[1]  # its text is not larger than elsewhere
        controllers.frozen.add("mine")
        see(page, "This run does not answer")
        controllers.released.set()


def test_workers_are_shown_page_by_page(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    workers = [WorkerStatus(f"actors/{n}", "actors", 100 + n, n % 3, "running", {"env": 0.5}) for n in range(120)]
    make_run("mine", workers=workers)
    show(page, client, "/run/mine")
    tab(page, "Workers")
    see(page, "1–50 of 120")
    page.get_by_role("button", name="Next").click()
    see(page, "51–100 of 120")
    assert page.locator("td", has_text="actors/99").count() == 1
    page.get_by_role("button", name="Next").click()
    see(page, "101–120 of 120")
    assert page.get_by_role("button", name="Next").is_disabled()
    page.get_by_role("button", name="Previous").click()
    see(page, "51–100 of 120")


def test_the_config_shows_recipe_and_differences_from_another_run(
    page: Page, client: HttpClient, make_run: MakeRun
) -> None:
    make_run("mine", seed=3)
    make_run("other", seed=4)
    show(page, client, "/run/mine")
    tab(page, "Config")
    see(page, "algorithm.gamma")
    names = page.locator("tbody tr td:first-child code")
    page.get_by_label("all options").check()
    page.get_by_label("Find an option").fill("gamma")
    assert names.all_inner_texts() == ["algorithm.gamma"]
    assert page.locator("tbody tr", has_text="algorithm.gamma").inner_text().split() == [
        "algorithm.gamma",
        "0.5",
        "0.99",
    ]
    page.get_by_label("Find an option").fill("")
    page.get_by_label("Compare with another run").select_option("other")
    row = page.locator("tbody tr", has_text="run.seed")
    row.wait_for()
    page.locator("th", has_text="Other run").wait_for()
    assert names.all_inner_texts() == ["run.seed"]
    assert row.inner_text().split()[1:2] + row.inner_text().split()[-1:] == ["3", "4"]


def test_a_video_is_played(page: Page, client: HttpClient, make_run: MakeRun, tmp_path: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    import numpy as np

    run = make_run("mine")
    show(page, client, "/run/mine")
    tab(page, "Checkpoints and videos")
    see(page, "“Record video” plays the newest checkpoint")
    frames = np.random.default_rng(0).integers(0, 255, (20, 64, 64, 3), np.uint8)
    imageio.imwrite(tmp_path / "video.mp4", frames, fps=10)
    (tmp_path / "video.mp4").rename(run.path / "video.mp4")  # at once, as `srl record` does
    player = page.locator("video")
    player.wait_for(timeout=30_000)
    player.evaluate("video => video.play()")
    wait_until(page, lambda: player.evaluate("video => video.currentTime > 0.1"))


def test_what_cannot_be_read_and_a_run_that_is_deleted_are_said(
    page: Page, client: HttpClient, make_run: MakeRun
) -> None:
    run = make_run("mine")
    run.metrics.unlink()
    run.metrics.mkdir()
    show(page, client, "/run/mine")
    see(page, "metrics.jsonl cannot be read")
    run.metrics.rmdir()
    (run.checkpoints / "0001-step-1").mkdir()
    page.get_by_text("metrics.jsonl cannot be read").wait_for(state="detached", timeout=30_000)
    run.status.write_text("{")
    see(page, "is not the status of a run")
    shutil.rmtree(run.path)
    see(page, "This run's directory is gone.")
    run = make_run("mine")
    page.get_by_text("This run's directory is gone.").wait_for(state="detached", timeout=30_000)
    run.status.write_bytes(msgspec.json.encode(status_of(run.path, return_mean=77.5)))
    see(page, "77.5")


def test_actions_ask_first(page: Page, client: HttpClient, make_run: MakeRun) -> None:
    run = make_run("mine")
    (run.checkpoints / "0001-step-1000").mkdir()
    show(page, client, "/run/mine")
    see(page, "Workers and streams")
    assert page.get_by_role("button", name="Stop …").is_disabled()
    page.get_by_role("button", name="Record video").click()
    see(page, "Record a video")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Record a video of").wait_for(state="hidden")
