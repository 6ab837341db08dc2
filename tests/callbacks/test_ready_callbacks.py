"""The callbacks that come with SRL, driven by records written by hand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from srl.api.control import OptionValue
from srl.api.status import RunStatus
from srl.callbacks import Curriculum, EarlyStopping, OptionSchedule, Webhook
from srl.callbacks.callback import Callback
from srl.experiments.session.callback_runner import load_callback


class FakeRun:
    def __init__(self, steps: int = 0) -> None:
        self.name, self.path, self.steps = "run", Path("run"), steps
        self.stopped: list[str] = []
        self.changed: list[tuple[str, OptionValue]] = []
        self.logged: list[dict[str, float]] = []
        self.messages: list[str] = []

    def log(self, **figures: float) -> None:
        self.logged.append(figures)

    def notify(self, text: str) -> None:
        self.messages.append(text)

    def stop(self, reason: str) -> None:
        self.stopped.append(reason)

    def save_checkpoint(self) -> None: ...

    def evaluate(self) -> None: ...

    def change(self, name: str, value: OptionValue) -> None:
        self.changed.append((name, value))


def started(callback: Callback, steps: int = 0) -> FakeRun:
    run = FakeRun(steps)
    callback.run = run
    callback.on_start(run)
    return run


def test_a_run_stops_when_its_metric_has_not_improved_for_as_many_steps_as_allowed() -> None:
    callback = EarlyStopping(patience=100, window=2)
    run = started(callback)
    for step, value in ((10, 1.0), (20, 3.0), (30, 5.0), (60, 3.0), (90, None), (120, 5.0)):
        callback.on_update({"step": step, "return": value})
    assert run.stopped == []
    callback.on_update({"step": 130, "return": 3.0})  # the best mean, 4, is from step 30
    assert run.stopped == ["return has not improved on 4 for 100 steps"]


def test_early_stopping_continues_in_a_resumed_run_and_can_prefer_low_values() -> None:
    callback = EarlyStopping(patience=50, window=1, metric="value_loss", lower_is_better=True)
    started(callback)
    callback.on_update({"step": 10, "value_loss": 2.0})
    again = EarlyStopping(patience=50, window=1, metric="value_loss", lower_is_better=True)
    again.restore(json.loads(json.dumps(callback.state())))
    run = started(again, 10)
    again.on_update({"step": 59, "value_loss": 3.0})
    assert run.stopped == []
    again.on_update({"step": 60, "value_loss": 2.5})
    assert run.stopped == ["value_loss has not improved on 2 for 50 steps"]


def test_a_metric_or_fact_that_does_not_exist_is_an_error() -> None:
    callback = EarlyStopping(patience=50, window=2, metric="retrn")
    started(callback)
    callback.on_update({"step": 5, "policy_loss": 0.5})  # no episode has ended yet
    callback.on_update({"step": 10, "return": 2.0})
    with pytest.raises(ValueError, match="no update has the metric 'retrn'; did you mean 'return'"):
        callback.on_update({"step": 20, "return": 2.0})
    curriculum = Curriculum("env.difficulty", (1, 2), fact="succes", window=2)
    started(curriculum)
    record = {"update": 1, "success": 1.0, "env.difficulty": 1.0}
    curriculum.on_episode(record)
    with pytest.raises(ValueError, match="no episode has the fact 'succes'; did you mean 'success'"):
        curriculum.on_episode(record)


def test_an_option_of_a_callback_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="early-stopping: patience must be a number, found 'soon'"):
        load_callback("early-stopping,patience=soon")


def test_a_schedule_follows_its_points_and_is_constant_outside_of_them() -> None:
    callback = OptionSchedule("learning_rate", ((100, 1.0), (200, 0.5), (400, 0.1)))
    run = started(callback, 50)
    for step in (150, 200, 300, 1000):
        callback.on_update({"step": step})
    assert [name for name, _ in run.changed] == ["learning_rate"] * 5
    assert [value for _, value in run.changed] == pytest.approx([1.0, 0.75, 0.5, 0.3, 0.1])
    with pytest.raises(ValueError, match="growing steps"):
        OptionSchedule("learning_rate", ((200, 1.0), (100, 0.5)))


def test_a_curriculum_moves_on_after_enough_successes_and_remembers_its_level() -> None:
    callback = Curriculum("env.difficulty", (1, 2, 3), threshold=0.5, window=4)
    run = started(callback)
    for success in (0, 0, 1, 0, 1):  # the last four: two successes
        callback.on_episode({"update": 1, "is_success": success, "env.difficulty": 1.0})
    for _ in range(20):  # began before the change: in the same update, and in later ones
        callback.on_episode({"update": 2, "is_success": 1.0, "env.difficulty": 1.0})
        callback.on_episode({"update": 2, "is_success": 1.0})
    assert run.changed == [("env.difficulty", 1), ("env.difficulty", 2)]
    assert run.logged == [{"curriculum_level": 1}]
    again = Curriculum("env.difficulty", (1, 2, 3), threshold=0.5, window=4)
    again.restore(json.loads(json.dumps(callback.state())))
    run = started(again)
    for _ in range(8):
        again.on_episode({"update": 3, "is_success": True, "env.difficulty": 2.0})
        again.on_episode({"update": 3, "return": 1.0, "env.difficulty": 2.0})  # does not count
    assert run.changed == [("env.difficulty", 2), ("env.difficulty", 3)]


def test_a_curriculum_of_another_option_counts_episodes_from_the_next_update_on() -> None:
    callback = Curriculum("clip", (0.3, 0.2, 0.1), threshold=0.5, window=2, fact="return")
    run = started(callback)
    for update, length in ((1, 6), (2, 1)):
        for _ in range(length):
            callback.on_episode({"update": update, "return": 1.0})
    assert run.changed == [("clip", 0.3), ("clip", 0.2)]
    callback.on_episode({"update": 3, "return": 1.0})
    assert run.changed[-1] == ("clip", 0.1)


@pytest.fixture
def posts() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Address of a server, and the messages that were posted to it."""
    found: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook", found
    server.shutdown()
    server.server_close()


def test_a_webhook_gets_the_begin_and_the_end(posts: tuple[str, list[dict[str, Any]]]) -> None:
    url, found = posts
    callback = Webhook(url, field="content")
    started(callback, 1000)
    callback.on_end(RunStatus("run", "CartPole-v1", "ppo", "", "finished", "done", steps=5000, return_mean=475.25))
    assert found == [
        {"content": "run begins at 1,000 steps"},
        {"content": "run: finished (done) after 5,000 steps, return 475.2"},
    ]


def test_a_webhook_that_cannot_be_reached_is_a_message() -> None:
    run = started(Webhook("http://127.0.0.1:9/"))
    (message,) = run.messages
    assert message.startswith("the webhook could not be reached: ")
    with pytest.raises(ValueError, match="https://"):
        Webhook("file:///etc/passwd")
