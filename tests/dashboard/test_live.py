"""The dashboard and live runs: a real one, and controllers that are frozen, elsewhere or have the same name."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from dashboard.conftest import MakeRun, status_of
from support.controllers import Controllers
from support.http_client import TOKEN, dashboard_at
from support.live_runs import live_run
from support.waiting import wait_for

from srl.api.status import ReplayStatus, RunStatus, StreamStatus, WorkerStatus
from srl.dashboard import detail
from srl.dashboard.answers import KEPT_SECONDS, Answers
from srl.dashboard.catalog import Catalog
from srl.dashboard.feeds import RunFeed, TableFeed
from srl.dashboard.series import SeriesCache
from srl.storage.run_directory import RunDirectory


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "runs").mkdir()
    with tempfile.TemporaryDirectory(prefix="srl-") as runtime:  # its path is short: the kernel allows 107 bytes
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)  # no other live runs of this machine
        yield tmp_path / "runs"


@pytest.fixture
def controllers() -> Iterator[Controllers]:
    found = Controllers()
    yield found
    found.released.set()


def ticks() -> Iterator[float]:
    return map(float, range(0, 10**9, 10))


def catalog_of(root: Path, controllers: Controllers, **options: Any) -> Catalog:
    moments = ticks()
    return Catalog(root, clock=lambda: next(moments), answers=Answers(controllers.ask, **options))


def running(path: Path, **changes: Any) -> RunStatus:
    return status_of(path, state="running", **changes)


def test_a_frozen_controller_delays_no_other_and_keeps_its_last_figures(
    root: Path, make_run: MakeRun, controllers: Controllers
) -> None:
    now = 0.0
    for name in ("good", "frozen"):
        controllers.add(name, running(make_run(name, ended=False).path))
    catalog = catalog_of(root, controllers, clock=lambda: now, patience=0.5)
    assert {one.key: one.state for one in catalog.summaries()} == {"good": "running", "frozen": "running"}
    controllers.frozen.add("frozen")
    for steps in (2000, 3000):  # would not return if it waited for the frozen one
        now += 10.0
        controllers.answers["good"] = running(root / "good", steps=steps)
        found = {one.key: one for one in catalog.summaries()}
        assert (found["good"].steps, found["good"].error) == (steps, "")
        assert (found["frozen"].state, found["frozen"].steps) == ("running", 1000)
    assert found["frozen"].error == "it has not answered for 20 s"
    now += KEPT_SECONDS
    assert {one.key: one.live for one in catalog.summaries()} == {"good": True, "frozen": False}


def test_runs_elsewhere_have_keys_of_their_own_and_stay_when_they_end(
    root: Path, tmp_path: Path, make_run: MakeRun, controllers: Controllers
) -> None:
    make_run("live/same")  # a group called `live`
    make_run("same", ended=False)
    elsewhere = [tmp_path / folder / "same" for folder in ("a", "b")]
    for path in (root / "same", *elsewhere):
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text("{}")
        controllers.add(path.parent.name, running(path))
    (root / "live" / "group.json").write_text("{}")
    catalog = catalog_of(root, controllers)
    keys = {"same", "live/same", *map(str, elsewhere)}
    assert {one.key for one in catalog.summaries()} == keys
    assert sum(one.live for one in catalog.summaries()) == 3
    assert catalog.find(str(elsewhere[1])).directory.path == elsewhere[1]
    controllers.remove("b")
    status = running(elsewhere[1])
    RunDirectory(elsewhere[1]).write_status(msgspec.structs.replace(status, state="stopped"))
    assert {one.key: one.state for one in catalog.summaries()}[str(elsewhere[1])] == "stopped"


def content(message: bytes | None) -> Any:
    assert message is not None
    return json.loads(message.partition(b"data: ")[2])


def test_a_page_gets_the_changes_since_it_was_loaded(root: Path, make_run: MakeRun) -> None:
    for name in ("one", "two"):
        make_run(name)
    moments = ticks()
    catalog = Catalog(root, clock=lambda: next(moments))
    loaded = catalog.snapshot()[0]
    make_run("three")
    feed = TableFeed(catalog, loaded)
    news = content(feed.next())
    assert (news["all"], [run["key"] for run in news["runs"]]) == (False, ["three"])
    assert feed.next() is None
    (root / "one" / "config.json").unlink()
    news = content(feed.next())
    assert (news["all"], {run["key"] for run in news["runs"]}) == (True, {"two", "three"})
    assert content(TableFeed(catalog, 57).next())["all"]  # a page of an earlier server


def add_event(run: RunDirectory, step: int, text: str) -> None:
    row = {"step": step, "time": 1.0, "kind": "event", "elapsed": step / 10, "event": "worker", "text": text}
    with run.system.open("a") as file:
        file.write(json.dumps(row) + "\n")


def test_no_event_of_a_run_is_lost_or_told_twice(root: Path, make_run: MakeRun) -> None:
    run = make_run("mine")
    moments, series = ticks(), SeriesCache()
    catalog = Catalog(root, clock=lambda: next(moments))
    add_event(run, 600, "second")  # between loading the page and its first message
    feed = RunFeed(catalog, series, "mine", after=1)

    def told() -> tuple[int, list[str]]:
        news = content(feed.next())
        return news["events_begin"], [event["text"] for event in news["events"]]

    assert told() == (1, ["second"])
    assert feed.next() is None
    for number in range(3):
        add_event(run, 700 + number, f"event {number}")
    assert told() == (2, ["event 0", "event 1", "event 2"])
    content_of_all = content(RunFeed(catalog, series, "mine", after=0).next())
    assert [event["step"] for event in content_of_all["events"]] == [500, 600, 700, 701, 702]
    for number in range(1000):
        add_event(run, 1000 + number, "x" * 10_000)
    assert len(feed.next() or b"") < 1_100_000
    (run.checkpoints / "0001-step-1000").mkdir()
    stamp = content(RunFeed(catalog, series, "mine", after=0).next())["stamp"]
    (run.checkpoints / "0002-step-2000").mkdir()
    assert content(RunFeed(catalog, series, "mine", after=0).next())["stamp"] != stamp


def test_messages_of_a_run_with_10_000_workers_are_small(tmp_path: Path) -> None:
    workers = [
        WorkerStatus(f"actors/{n}", "actors", 100 + n, 0, "running", {"env": 0.5}, 50.0, 100.0, host=f"host-{n // 100}")
        for n in range(10_000)
    ]
    streams = [StreamStatus(f"samples/{n}", "push", n / 100, 20, 10, 1) for n in range(100)]
    memories = [ReplayStatus(f"replay/{n}", 50, 100, 1000, 1.0, 0.9) for n in range(100)]
    status = running(tmp_path, workers=workers, streams=streams, replay=memories)
    shown, groups = detail.shown_status(status), detail.groups_of(status.workers)
    assert len(msgspec.json.encode([shown, groups])) < 5000
    (flow,) = shown["streams"]  # the sum over all of them, not over the first ones
    assert (flow["name"], flow["consumed"], flow["dropped"], flow["filled"]) == ("samples", 1000, 100, 0.99)
    assert [(one["name"], one["size"], one["capacity"]) for one in shown["replay"]] == [("replay", 5000, 10_000)]
    page = detail.workers_page(workers, "actors", 9_990)
    assert (page["total"], len(page["workers"]), page["workers"][0]["log"]) == (10_000, 10, "actors-9990")


def test_a_live_run_is_followed_and_every_action_is_carried_out(root: Path) -> None:
    with dashboard_at(root) as client, live_run(root, eval_every=10**8, eval_episodes=1) as path:
        client.get(f"/?token={TOKEN}")

        def run() -> Any:
            return client.get("/api/run", params={"key": "live"}).json()

        def act(**action: Any) -> str:
            answer = client.post("/api/action", content=json.dumps({"key": "live", **action}))
            assert answer.status_code == 200, answer.text
            return str(answer.json()["text"])

        events = client.events("/api/events?key=live")
        (_, first), (_, second) = next(events), next(events)
        assert first["live"]
        assert second["status"]["steps"] > first["status"]["steps"] or second["stamp"] != first["stamp"]
        wait_for(lambda: "return" in run()["metrics"], "the first metrics")
        assert run()["checkpoints"] == []
        assert "writes a checkpoint" in act(action="save")
        wait_for(lambda: run()["checkpoints"], "a checkpoint")
        assert "evaluated" in act(action="evaluate")
        wait_for(lambda: "eval/return" in run()["metrics"], "an evaluation")
        assert act(action="scale", group="actors", count=2) == "actors: 1 -> 2"
        wait_for(lambda: {one["name"]: one["count"] for one in run()["groups"]}["actors"] == 2, "the second actor")
        refused = client.post("/api/action", content=json.dumps({"key": "live", "action": "scale", "group": "x"}))
        assert (refused.status_code, "x" in refused.json()["error"]) == (409, True)
        metrics = client.get("/metrics").text
        assert "srl_run_info{" in metrics
        assert 'run="live"' in metrics
        assert "is stopping" in act(action="stop")
        wait_for(lambda: not run()["live"], "the end of the run")
        _, last = next(news for news in events if news[0] == "run" and not news[1]["live"])
        assert last["status"]["state"] == run()["status"]["state"] == "stopped"
        events.close()
        kinds = [event["event"] for event in run()["events"]]
        assert {"callback", "checkpoint", "change"} <= set(kinds)
        assert RunDirectory(path).read_status() is not None


@pytest.mark.slow
def test_a_video_is_recorded(root: Path) -> None:
    pytest.importorskip("imageio")
    with dashboard_at(root) as client:
        client.get(f"/?token={TOKEN}")
        with live_run(root):
            pass
        answer = client.post("/api/action", content=json.dumps({"key": "live", "action": "record"}))
        assert answer.status_code == 200, answer.text
        (video,) = client.get("/api/run", params={"key": "live"}).json()["videos"]
        assert len(client.get(f"/{video['url']}").content) > 1000
