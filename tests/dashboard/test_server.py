"""The dashboard's server, asked as a browser asks it, with runs that are whole, half-written, damaged or deleted."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard.conftest import MakeRun
from support.http_client import TOKEN, HttpClient, dashboard_at

from srl.dashboard.series import SeriesCache


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))  # no live runs of this machine
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def client(root: Path) -> Iterator[HttpClient]:
    with dashboard_at(root) as client:
        assert client.get(f"/?token={TOKEN}").status_code == 200
        yield client


def get(client: HttpClient, path: str, **parameters: Any) -> Any:
    answer = client.get(f"/api/{path}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_page_sets_a_cookie_and_keeps_other_sites_out(client: HttpClient) -> None:
    page = client.get("/")
    assert "<title>SRL</title>" in page.text
    for asset in ("app.js", "style.css", "vendor/uPlot.esm.js", "icon.svg"):
        assert client.get(f"/{asset}").status_code == 200, asset
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert list(client.cookies.values()) == [TOKEN]
    client.cookies.clear()
    for path in ("/", "/app.js", "/api/runs", "/metrics", "/api/events"):
        refused = client.get(path)
        assert (refused.status_code, TOKEN in refused.text) == (403, False), path
    assert client.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/api/runs", headers={"Host": "evil.example:6070"}).status_code == 403


def test_runs_and_groups_are_listed(client: HttpClient, make_run: MakeRun) -> None:
    make_run("plain")
    make_run("sweep/one", ended=False, updates=3)
    (make_run("sweep/one").path.parent / "group.json").write_text("{}")
    make_run("sweep/one").status.unlink()
    found = {run["key"]: run for run in get(client, "runs")["runs"]}
    assert set(found) == {"plain", "sweep/one"}
    plain = found["plain"]
    assert (plain["state"], plain["return_mean"], plain["steps"]) == ("finished", 10.0, 1000)
    assert (plain["environment"], plain["algorithm"], plain["curve"]) == ("CartPole-v1", "ppo", [1.0, 5.0, 10.0])
    assert (found["sweep/one"]["group"], found["sweep/one"]["state"]) == ("sweep", "killed")


def test_a_run_has_its_graph_events_options_and_files(client: HttpClient, make_run: MakeRun) -> None:
    run = make_run("mine")
    (run.path / "video.mp4").write_bytes(b"not really")
    league = {"players": ["100", "random"], "points": [[None, 0.9], [0.1, None]], "ratings": {"100": 30.0}}
    (run.path / "league.json").write_text(json.dumps(league))
    found = get(client, "run", key="mine")
    assert found["status"]["edges"] == [
        {"source": "actors", "target": "trainers", "stream": "samples", "kind": "push", "where": "host"}
    ]
    assert [(group["name"], group["count"], group["busy"]["env"]) for group in found["groups"]] == [
        ("actors", 2, 0.5),
        ("trainers", 1, 0.5),
    ]
    assert [(event["step"], event["text"]) for event in found["events"]] == [(500, "actors/0 died")]
    options = {option["name"]: option for option in found["options"]}
    assert options["algorithm.gamma"] == {"name": "algorithm.gamma", "value": "0.5", "default": "0.99", "changed": True}
    assert {"return", "policy_loss", "env_fps"} <= set(found["metrics"])
    assert found["league"]["values"] == [[None, 0.9], [0.1, None]]
    (video,) = found["videos"]
    assert client.get(f"/{video['url']}").content == b"not really"
    assert get(client, "log", key="mine", name="actors-0")["text"] == "hello from the actor\n"
    page = get(client, "workers", key="mine", group="actors", offset=1)
    assert (page["total"], [worker["name"] for worker in page["workers"]]) == (2, ["actors/1"])


def test_long_curves_are_thinned_and_keep_their_extremes(client: HttpClient, make_run: MakeRun) -> None:
    run = make_run("long", updates=0)
    values = [1.0] * 20_000
    values[12_345], values[777] = 99.0, -99.0
    with run.metrics.open("w") as file:
        for n, value in enumerate(values, 1):
            file.write(json.dumps({"step": n, "kind": "update", "policy": "p", "update": n, "loss": value}) + "\n")
    loss = get(client, "series", key="long", name="loss")["series"]["loss"]
    assert len(loss["x"]) <= 1602
    assert (max(loss["y"]), min(loss["y"])) == (99.0, -99.0)
    assert (loss["x"][0], loss["x"][-1]) == (1, 20_000)
    assert loss["x"][loss["y"].index(99.0)] == 12_346
    assert get(client, "series", key="long", name="no such metric")["series"] == {}


def test_runs_are_compared_over_seeds(client: HttpClient, make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(f"seed{seed}", seed=seed, updates=10 + seed)
    found = get(client, "compare", key=["seed0", "seed1"], metric="return", grouped="1")
    ((label, seeds),) = [(group["label"], group["seeds"]) for group in found["groups"]]
    assert seeds == 2
    (curve,) = found["curves"]["return"]
    assert curve["label"] == label
    assert len(curve["low"]) == len(curve["y"]) == len(curve["high"])
    alone = get(client, "compare", key=["seed0", "seed1"], metric="return", grouped="0")
    assert [one["label"] for one in alone["curves"]["return"]] == ["seed0", "seed1"]


def test_long_runs_are_compared_by_few_rows_that_keep_extremes(client: HttpClient, make_run: MakeRun) -> None:
    for seed in (0, 1):
        run = make_run(f"long{seed}", seed=seed)
        with run.metrics.open("w") as file:
            for n in range(1, 5001):
                value = 1000.0 if n == 3333 else float(10 * seed + n % 2)
                file.write(json.dumps({"step": n, "kind": "update", "policy": "p", "update": n, "loss": value}) + "\n")
    options = {"key": ["long0", "long1"], "metric": "loss"}
    alone = get(client, "compare", **options, grouped="0")
    for curve in alone["curves"]["loss"]:
        assert 400 < len(curve["x"]) <= 802
        assert curve["x"][curve["y"].index(1000.0)] == 3333
        assert (curve["x"][0], curve["x"][-1]) == (1, 5000)
    assert [group["final"] for group in alone["groups"]] == [
        pytest.approx(0.5, abs=0.01),
        pytest.approx(10.5, abs=0.01),
    ]
    for axis in ("steps", "time"):
        (band,) = get(client, "compare", **options, grouped="1", x=axis)["curves"]["loss"]
        middle = sorted(band["y"])[len(band["y"]) // 2]
        assert 5 <= middle <= 6
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 5001, "kind": "update", "policy": "p", "update": 5001, "loss": -7.0}) + "\n")
    assert get(client, "compare", **options, grouped="0")["curves"]["loss"][1]["y"][-1] == -7.0


def test_more_curves_than_fit_into_memory_are_refused(client: HttpClient, make_run: MakeRun) -> None:
    keys = [make_run(f"run{n}", updates=1).path.name for n in range(26)]
    answer = client.get("/api/compare", params={"key": keys, "metric": [f"m{n}" for n in range(24)]})
    assert answer.status_code == 400
    assert "26 runs with 24 metrics each are too many curves" in answer.json()["error"]
    assert get(client, "compare", key=keys, metric=["return", "length"])["curves"]["length"] == []


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("status.json", b'{"run": '),
        ("config.json", b"\xff\xfe"),
        ("config.json", b"[]"),
        ("status.json", b"[" * 100_000),
    ],
)
def test_a_damaged_run_is_named_and_hides_no_other(
    client: HttpClient, make_run: MakeRun, name: str, content: bytes
) -> None:
    make_run("whole")
    (make_run("broken", ended=name == "status.json").path / name).write_bytes(content)
    found = {run["key"]: run for run in get(client, "runs")["runs"]}
    assert found["whole"]["state"] == "finished"
    assert found["broken"]["state"] in ("damaged", "killed")
    assert get(client, "run", key="broken")["status"]["run"] == "broken"


def test_names_and_rows_that_are_no_text_or_too_deep_hide_nothing(
    client: HttpClient, make_run: MakeRun, root: Path
) -> None:
    make_run("whole")
    os.rename(make_run("old").path, os.fsencode(root) + b"/bad\xff")
    (root / os.fsdecode(b"bad\xff") / "logs" / os.fsdecode(b"\xfe.log")).touch()
    make_run("deep", ended=False).metrics.write_text("[" * 200_000 + "\n")
    os.mkfifo(make_run("pipe", ended=False).path / "x")
    make_run("pipe").metrics.unlink()
    os.mkfifo(make_run("pipe").metrics.with_name("status.tmp"))
    (root / "loop").symlink_to("loop")
    found = {run["key"]: run["state"] for run in get(client, "runs")["runs"]}
    assert found == {"whole": "finished", "bad\\xff": "finished", "deep": "killed", "pipe": "finished"}
    assert "\\xfe" in get(client, "run", key="bad\\xff")["logs"]
    assert get(client, "log", key="bad\\xff", name="\\xfe")["text"] == ""
    assert get(client, "series", key="deep", name="return")["series"] == {}


def test_what_cannot_be_read_is_said(
    client: HttpClient, make_run: MakeRun, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("whole")
    make_run("closed")
    for name in ("metrics", "system"):
        run = make_run(name)
        getattr(run, name).unlink()
        getattr(run, name).mkdir()
    stat = Path.stat

    def refused(path: Path, **options: bool) -> os.stat_result:  # tests may run as root, which reads everything
        if path.parent.name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refused)
    found = {run["key"]: run for run in get(client, "runs")["runs"]}
    assert found["whole"]["state"] == "finished"
    assert (found["closed"]["state"], "permission denied" in found["closed"]["error"]) == ("damaged", True)
    monkeypatch.undo()
    for name in ("metrics", "system"):
        (problem,) = get(client, "run", key=name)["problems"]
        assert problem.startswith(f"{name}.jsonl cannot be read")
    assert get(client, "series", key="system", name="return")["series"]["return"]["y"]  # the other file is shown


def test_the_memory_for_rows_is_bounded(root: Path, make_run: MakeRun) -> None:
    runs = [make_run(f"run{n}", updates=2000) for n in range(6)]
    series = SeriesCache(max_bytes=600_000)
    for _ in range(2):
        for run in runs:
            assert len(series.series(run, ["return"], "steps")["return"]["y"]) > 1000
            assert series.num_bytes < 800_000
    alone = SeriesCache(max_bytes=1)  # the newest table stays
    assert alone.series(runs[0], ["return"], "steps") == alone.series(runs[0], ["return"], "steps")


def test_many_requests_are_all_answered(client: HttpClient, make_run: MakeRun) -> None:
    """10^4 requests are a matter of `benchmarks/dashboard_pages.py --requests`."""
    make_run("mine")
    paths = ["/api/runs", "/api/run?key=mine", "/api/series?key=mine&name=return", "/api/workers?key=mine&group=actors"]
    wrong: list[int] = []

    def ask_all() -> None:
        for number in range(40):
            if (code := client.get(paths[number % len(paths)]).status_code) != 200:
                wrong.append(code)

    threads = [threading.Thread(target=ask_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_half_written_row_and_a_deleted_run(client: HttpClient, make_run: MakeRun) -> None:
    run = make_run("mine", ended=False)
    with run.metrics.open("a") as file:
        file.write('{"step": 999999, "kind": "upda')
    assert get(client, "series", key="mine", name="return")["series"]["return"]["x"][-1] == 1000
    shutil.rmtree(run.path)
    gone = client.get("/api/run", params={"key": "mine"})
    assert (gone.status_code, "no run 'mine' any more" in gone.json()["error"]) == (404, True)


@pytest.mark.parametrize(
    "key", ["../secret", "/etc", "mine/../../secret", "..", ".", "", "mine\x00", "%2e%2e/secret", "a" * 10_000]
)
def test_nothing_outside_of_the_runs_is_served(client: HttpClient, make_run: MakeRun, root: Path, key: str) -> None:
    make_run("mine")
    secret = root.parent / "secret"
    secret.mkdir()
    (secret / "config.json").write_text('{"secret": 1}')
    for path in ("run", "series", "log", "workers", "video"):
        assert client.get(f"/api/{path}", params={"key": key, "name": "config"}).status_code in (404, 422), path
    for name in ("../config", "config.json", "../../secret/config", "actors-0.log"):
        assert client.get("/api/log", params={"key": "mine", "name": name}).status_code == 404
        assert client.get("/api/video", params={"key": "mine", "name": name}).status_code == 404
    assert client.get("/../../etc/passwd").status_code == 404
    assert client.get("/%2e%2e/server.py").status_code == 404


def test_a_link_to_a_file_elsewhere_is_no_log_and_no_video(client: HttpClient, make_run: MakeRun, root: Path) -> None:
    (root.parent / "secret.txt").write_text("secret")
    run = make_run("mine")
    (run.logs / "x.log").symlink_to(root.parent / "secret.txt")
    (run.path / "x.mp4").symlink_to(root.parent / "secret.txt")
    assert client.get("/api/log", params={"key": "mine", "name": "x"}).status_code == 404
    assert client.get("/api/video", params={"key": "mine", "name": "x.mp4"}).status_code == 404


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"key": "mine", "action": "stop"}, 409, "not active"),
        ({"key": "none", "action": "stop"}, 404, "no run"),
        ({"key": "mine", "action": "format"}, 400, "Invalid enum value"),
        ({"key": "mine", "action": "stop", "force": True}, 400, "unknown field"),
        ("{", 400, "not an action"),
        ("x" * 20_000, 413, "too long"),
    ],
)
def test_actions_are_checked(client: HttpClient, make_run: MakeRun, body: Any, code: int, text: str) -> None:
    make_run("mine")
    answer = client.post("/api/action", content=body if isinstance(body, str) else json.dumps(body))
    assert (answer.status_code, text in answer.json()["error"]) == (code, True), answer.text
    assert client.post("/api/action", content="{}", headers={"X-SRL": "0"}).status_code == 403


def test_bad_parameters_are_explained(client: HttpClient, make_run: MakeRun) -> None:
    make_run("mine")
    for path, parameters in (
        ("series", {"key": "mine", "name": "return", "x": "moon"}),
        ("series", {"key": "mine", "name": ["return"] * 100}),
        ("workers", {"key": "mine", "offset": "many"}),
        ("compare", {}),
    ):
        answer = client.get(f"/api/{path}", params=parameters)
        assert answer.status_code == 400, path
        assert answer.json()["error"]
