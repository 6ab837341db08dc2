"""Callbacks of a run, through `srl.train`, `srl.resume` and the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.terminals import GENTLE, Terminal

import srl
from srl.cli.main import main
from srl.testing.environments import Tracer

SMALL: dict[str, Any] = {
    "recipe": "none",
    "scheduler": "inline",
    "lanes": 4,
    "horizon": 16,
    "batch": 64,
    "sinks": (),
    "algorithm": {"num_minibatches": 1, "epochs": 1},
}


def rows(run: srl.Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]


def timeless(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in ("time", "elapsed")} for row in found]


class Everything(srl.Callback):
    """Notes the events, logs, changes two options, saves, evaluates, and stops after `last` updates."""

    def __init__(self, last: int = 6) -> None:
        self.last, self.num_updates = last, 0
        self.events: list[str] = []
        self.episodes: list[Mapping[str, Any]] = []

    def on_start(self, run: Any) -> None:
        self.events.append(f"start {run.steps}")
        run.notify("hello from a callback")
        run.change("env.length", 3)

    def on_update(self, record: Mapping[str, Any]) -> None:
        self.num_updates += 1
        self.events.append(f"update {record['update']}")
        self.run.log(doubled=2 * record["update"])
        self.run.change("learning_rate", 0.5 ** record["update"])
        if record["update"] == 2:
            self.run.save_checkpoint()
            self.run.evaluate()
        if record["update"] == self.last:
            self.run.stop(f"enough after {self.num_updates}")

    def on_episode(self, record: Mapping[str, Any]) -> None:
        self.episodes.append(record)

    def on_evaluation(self, result: Any) -> None:
        self.events.append("evaluation")

    def on_checkpoint(self, path: Path) -> None:
        self.events.append("checkpoint")

    def on_end(self, report: Any) -> None:
        self.events.append(f"end {report.state} {report.reason}")

    def state(self) -> dict[str, Any]:
        return {"num_updates": self.num_updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.num_updates = state["num_updates"]


def train(root: Path, callback: srl.Callback, **options: Any) -> srl.Run:
    tracer = "srl.testing.environments:Tracer"
    settings = {**SMALL, "callbacks": [callback], **options}
    return srl.train(tracer, env_args={"length": 8}, root=root, **settings)


def test_a_callback_sees_every_event_and_changes_the_run(tmp_path: Path) -> None:
    callback = Everything()
    run = train(tmp_path, callback, steps=1_000_000, eval_every=999_000, eval_episodes=1, eval_share=1.0)
    assert (run.state, run.reason) == ("finished", "enough after 6")
    updates = [row for row in rows(run) if row["kind"] == "update"]
    assert [row["update"] for row in updates] == [1, 2, 3, 4, 5, 6]
    # A change that a callback makes after one update takes effect in the next.
    assert [row["learning_rate"] for row in updates[1:]] == [0.5, 0.25, 0.125, 0.0625, 0.03125]
    assert [row["option/env.length"] for row in updates] == [3] * 6
    assert {episode["length"] for episode in callback.episodes} <= {3.0, 8.0}
    assert callback.episodes[-1]["length"] == 3.0
    assert {episode["length"] for episode in callback.episodes if "env.length" in episode} == {3.0}
    assert callback.episodes[-1]["env.length"] == 3.0
    assert {row["doubled"] for row in rows(run) if "doubled" in row} == {2, 4, 6, 8, 10, 12}
    assert callback.events[0] == "start 0"
    assert callback.events[-1] == "end finished enough after 6"
    assert callback.events.count("evaluation") >= 2  # the first one, and the one on request
    assert "checkpoint" in callback.events[: callback.events.index("update 4")]
    system = [json.loads(line) for line in (run.path / "system.jsonl").read_text().splitlines()]
    events = [(row["event"], row["text"]) for row in system if row.get("kind") == "event"]
    assert ("callback", "hello from a callback") in events
    assert {"checkpoint"} <= {kind for kind, _ in events}

    again = train(tmp_path, Everything(), name="again", steps=1_000_000, eval_every=999_000, eval_episodes=1)
    kinds = ("update", "report")
    same = [[row for row in timeless(rows(one)) if row["kind"] in kinds] for one in (run, again)]
    assert same[0] == same[1]

    resumed = Everything(last=8)
    more = srl.resume(run.path, callbacks=[resumed])
    assert more.reason == "enough after 8"
    assert resumed.events[0] == f"start {run.status.steps}"
    first = next(row for row in rows(more) if row["kind"] == "update" and row["update"] == 7)
    assert first["learning_rate"] == 0.5**6  # the last change before the run was resumed


class Named(Tracer):
    name = ""


def test_the_last_row_of_several_updates_has_the_changed_options(tmp_path: Path) -> None:
    class Change(srl.Callback):
        def on_start(self, run: Any) -> None:
            run.change("learning_rate", 0.25)
            run.change("env.name", "a text")

    run = srl.train(Named, root=tmp_path, callbacks=[Change()], steps=192, record_every=3, **SMALL)
    found = [(row["update"], row["option/learning_rate"], row["option/env.name"]) for row in rows(run)]
    assert found == [(3, 0.25, "a text"), (4, 0.25, "a text")]


def test_callbacks_on_the_command_line_add_up_and_are_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "import srl\n\nclass Log(srl.Callback):\n    def __init__(self, **figure):\n        self.figure = figure\n\n"
    (tmp_path / "mine.py").write_text(f"{text}    def on_update(self, record):\n        self.run.log(**self.figure)\n")
    monkeypatch.chdir(tmp_path)
    words = "train CartPole-v1 --root runs --name run --steps 64 --scheduler inline --recipe none --sinks"
    sizes = ["--lanes", "4", "--horizon", "16", "--batch", "64"]
    named = ["--callback", "mine.py:Log,one=1", "--callback=mine.py:Log,two=2,three=3"]
    assert main([*words.split(), *sizes, *named]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["resume", "../runs/run", "--steps", "128"]) == 0
    logged = [row for row in rows(srl.load_run(tmp_path / "runs" / "run")) if row["kind"] == "report"]
    for name, value in (("one", 1), ("two", 2), ("three", 3)):
        assert [row[name] for row in logged if name in row] == [value] * 3  # two updates, then one


class Broken(srl.Callback):
    def on_update(self, record: Mapping[str, Any]) -> None:
        raise KeyError("no such metric")


@pytest.mark.parametrize("scheduler", ["inline", "processes"])
def test_an_error_in_a_callback_ends_the_run_with_its_traceback(tmp_path: Path, scheduler: str) -> None:
    with pytest.raises(srl.RunFailed) as raised:
        train(tmp_path, Broken(), steps=100_000_000, scheduler=scheduler)
    text = str(raised.value)
    assert "callback Broken.on_update failed" in text
    assert 'raise KeyError("no such metric")' in text


def test_an_error_in_a_callback_can_be_a_warning(tmp_path: Path) -> None:
    run = train(tmp_path, Broken(), steps=256, callback_errors="warn")
    assert run.state == "finished"
    assert any("callback Broken.on_update failed; the run continues" in text for text in run.status.messages)


class BrokenEnd(srl.Callback):
    def on_end(self, report: Any) -> None:
        raise KeyError("at the end")


def test_an_error_at_the_end_fails_the_run_or_is_a_warning(tmp_path: Path) -> None:
    with pytest.raises(srl.RunFailed, match=r"callback BrokenEnd\.on_end failed:\nTraceback") as raised:
        train(tmp_path, BrokenEnd(), steps=64)
    assert raised.value.status is not None
    assert raised.value.status.state == "failed"
    seen: list[Any] = []
    run = train(tmp_path, BrokenEnd(), steps=64, name="warns", callback_errors="warn", on_status=seen.append)
    assert run.state == "finished"
    assert "callback BrokenEnd.on_end failed; the run continues" in seen[-1].messages[-1]


@pytest.mark.parametrize(
    ("callback", "texts"),
    [
        ("early-stoping", ("early-stoping", "early-stopping")),
        ("early-stopping,patiense=3", ("early-stopping", "patiense")),
        ("srl.testing.environments:Tracer,length=3", ("no callback", "srl.Callback")),
    ],
)
def test_a_callback_that_cannot_be_made_is_refused_before_the_run_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], callback: str, texts: tuple[str, ...]
) -> None:
    assert main(["train", "CartPole-v1", "--root", str(tmp_path), "--callback", callback]) == 2
    error = capsys.readouterr().err
    assert all(text in error for text in texts), error
    assert list(tmp_path.iterdir()) == []


def test_a_change_that_is_not_possible_names_what_is(tmp_path: Path) -> None:
    class Wrong(srl.Callback):
        def on_start(self, run: Any) -> None:
            run.change("gamma", 0.9)

    with pytest.raises(srl.RunFailed, match="gamma cannot change during this run; what can is clip, entropy"):
        train(tmp_path, Wrong(), steps=1000)

    class Unknown(srl.Callback):
        def on_start(self, run: Any) -> None:
            run.change("env.lenght", 2)

    with pytest.raises(
        srl.RunFailed, match=r"env\.lenght cannot be changed: Tracer has no attribute 'lenght'; .* 'length'"
    ):
        train(tmp_path, Unknown(), steps=1_000_000)


@pytest.mark.parametrize("scheduler", ["processes", pytest.param("hosts", marks=pytest.mark.slow)])
def test_a_callback_on_the_command_line_logs_changes_an_option_and_stops_a_run(
    terminal: Terminal, tmp_path: Path, scheduler: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "import srl\n\n"
        "class Limit(srl.Callback):\n"
        "    def __init__(self, updates):\n"
        "        self.updates = updates\n\n"
        "    def on_update(self, record):\n"
        "        self.run.log(doubled=2 * record['update'])\n"
        "        self.run.change('learning_rate', 0.25)\n"
        "        if record['update'] >= self.updates and record['learning_rate'] == 0.25:\n"
        "            self.run.stop('my limit')\n"
    )
    callback = ("--callback", f"{tmp_path}/mine.py:Limit,updates=5")
    command = terminal.train(*GENTLE, "--steps", "1000000000", "--scheduler", scheduler, *callback)
    ended = command.end()
    assert ended.code == 0, ended.text
    assert "my limit" in ended.out
    found = rows(srl.load_run(terminal.root / "run"))
    assert {2, 4, 6} <= {row.get("doubled") for row in found}
    assert [row for row in found if row["kind"] == "update"][-1]["option/learning_rate"] == 0.25
