"""The calls of callbacks, in the run's thread and in one of their own."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from support.waiting import wait_for

import srl
from srl.callbacks.callback import Callback
from srl.experiments.session import callback_runner
from srl.experiments.session.callback_runner import CallbackRunner, LiveRun


class FailedRun:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def fail(self, reason: str) -> None:
        self.reasons.append(reason)


@dataclass
class Counter(Callback):
    """A dataclass, as the callbacks that come with SRL: it has no hash, and two of them may be equal."""

    calls: int = 0
    error: BaseException | None = None

    def on_update(self, record: Mapping[str, Any]) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error

    def on_end(self, report: Any) -> None:
        self.calls += 100

    def state(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.calls = state["calls"]


def called(
    callbacks: list[Any], threaded: bool, only_warn: bool = False
) -> tuple[CallbackRunner, list[str], list[str]]:
    """Call two updates and the end. Return the runner, the reasons of failures, and the messages."""
    run, messages = FailedRun(), list[str]()
    runner = CallbackRunner(callbacks, cast(LiveRun, run), threaded, messages.append, only_warn)
    for event in ("on_update", "on_update"):
        runner.call(event, {})
    runner.close({})
    return runner, run.reasons, messages


@pytest.mark.parametrize("threaded", [False, True])
def test_a_slow_dataclass_is_named_once_and_called_until_the_end(
    monkeypatch: pytest.MonkeyPatch, threaded: bool
) -> None:
    monkeypatch.setattr(callback_runner, "SLOW_SECONDS", -1.0)
    callback = Counter()
    _, reasons, messages = called([callback], threaded)
    assert callback.calls == 102
    assert reasons == []
    assert [text.split(":")[0] for text in messages] == [
        "callback Counter.on_update is slow",
        "callback Counter.on_end is slow",
    ]


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize("error", [KeyError("mine"), SystemExit("mine")], ids=repr)
def test_an_error_is_reported_once_and_ends_the_run_or_only_warns(error: BaseException, threaded: bool) -> None:
    callback = Counter(error=error)
    _, reasons, messages = called([callback], threaded)
    assert callback.calls == 101  # none after the error, except for the end
    assert len(reasons) == 1
    assert reasons[0].startswith("callback Counter.on_update failed:\nTraceback")
    assert messages == []

    callback = Counter(error=error)
    _, reasons, messages = called([callback], threaded, only_warn=True)
    assert callback.calls == 102
    assert reasons == []
    assert len(messages) == 1
    assert messages[0].startswith("callback Counter.on_update failed; the run continues:\nTraceback")


def test_a_slow_callback_loses_updates_and_never_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is announced when it begins, and what was not called is counted."""
    monkeypatch.setattr(callback_runner, "END_SECONDS", 0.1)
    monkeypatch.setattr(callback_runner, "WAIT_SECONDS", 0.01)
    ended, messages, shown = list[str](), list[str](), list[list[str]]()

    class Slow(Callback):
        def on_update(self, record: Mapping[str, Any]) -> None:
            wait_for(lambda: runner.lost, "lost calls")

        def on_end(self, report: Any) -> None:
            ended.append(report)

    runner = CallbackRunner([Slow()], cast(LiveRun, FailedRun()), True, messages.append)
    for _ in range(3):
        runner.call("on_update", {})
    runner.close("report", lambda: shown.append(list(messages)))
    assert ended == ["report"]
    assert "3 calls are left, Slow.on_update is running" in shown[0][0]
    assert runner.lost == {"Slow.on_update": 2}
    assert "callbacks were too slow: 2 calls were not made" in messages


def test_ctrl_c_during_a_call_is_no_error_of_the_callback() -> None:
    with pytest.raises(KeyboardInterrupt):
        called([Counter(error=KeyboardInterrupt())], threaded=False)


def test_equal_callbacks_have_their_own_states_which_later_calls_do_not_change() -> None:
    runner, _, _ = called([Counter(), Counter()], threaded=False)
    states = runner.states()
    assert states == {"Counter-0": {"calls": 102}, "Counter-1": {"calls": 102}}
    callbacks = [Counter(), Counter()]
    runner = CallbackRunner(callbacks, cast(LiveRun, FailedRun()), False, print)
    runner.restore({"Counter-0": {"calls": 3}, "Counter-1": {"calls": 4}})
    assert [callback.calls for callback in callbacks] == [3, 4]


def test_a_state_that_is_no_json_or_cannot_be_restored_names_the_callback() -> None:
    class Mean(Counter):
        def state(self) -> dict[str, Any]:
            return {"mean": np.float32(1.0)}

    runner, reasons, _ = called([Mean()], threaded=False)
    assert reasons[0].startswith("callback Mean.state failed:\nTraceback")
    assert "float32 is not JSON serializable" in reasons[0]
    assert runner.states() == {}
    with pytest.raises(ValueError, match=r"callback Mean\.restore failed:\nTraceback"):
        runner.restore({"Mean-0": {}})


def test_a_callback_that_exits_the_interpreter_fails() -> None:
    class Exits(Callback):
        def on_end(self, report: Any) -> None:
            sys.exit()

    _, reasons, _ = called([Exits()], threaded=True)
    assert "sys.exit()" in reasons[0]


def test_a_misspelled_option_of_a_callback_is_refused_with_the_nearest() -> None:
    assert isinstance(callback_runner.load_callback(f"{__name__}:Counter,calls=3"), Counter)
    with pytest.raises(ValueError, match=r"Counter has no option 'cals'; did you mean 'calls'\?"):
        callback_runner.load_callback(f"{__name__}:Counter,cals=3")


class Misspelled(Callback):
    def on_updat(self, record: Mapping[str, Any]) -> None:
        pass


class Stepping(Callback):
    def on_step(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("callback", "text"),
    [
        (Misspelled(), "Misspelled.on_updat is never called by a run; did you mean 'on_update'?"),
        (f"{__name__}:Stepping", "Stepping.on_step is never called by a run; did you mean 'on_start'?"),
    ],
)
def test_a_method_that_no_event_calls_is_refused_before_the_run(callback: Any, text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        srl.train("CartPole-v1", steps=100, root=tmp_path, callbacks=[callback])
    assert not list(tmp_path.iterdir())
