"""Our own errors are a line; those of other people's code show where they come from."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from srl.base import error_report
from srl.base.importing import load_object

USER = """
import json
from srl.base.importing import load_object

def bare():
    return {}["hidden"]

def deep():
    json.loads("{")

def misuse():
    load_object("make")

def broken():
    return len(5)
"""


@pytest.fixture
def user(tmp_path: Path) -> ModuleType:
    path = tmp_path / "mine.py"
    path.write_text(USER)
    spec = importlib.util.spec_from_file_location("mine_to_blame", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(work: Callable[[], object]) -> Exception:
    """As `srl` sees it, which is not on the traceback itself."""
    with pytest.raises((ValueError, LookupError, TypeError)) as caught:
        work()
    outermost = caught.value.__traceback__
    return caught.value.with_traceback(outermost.tb_next if outermost else None)


def test_our_own_message_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    error = error_of(partial(load_object, "no_such_module:make"))
    assert error_report.explained(error).startswith("srl: no module 'no_such_module'")
    monkeypatch.setenv("SRL_DEBUG", "1")
    whole = error_report.explained(error)
    assert whole.startswith("Traceback")
    assert "importing.py" in whole
    assert whole.splitlines()[-1].startswith("srl: no module 'no_such_module'")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bare", "srl: KeyError: 'hidden'"),
        ("deep", "srl: JSONDecodeError: Expecting property name"),
        ("misuse", "srl: ValueError: 'make' names no object"),
        ("broken", "srl: TypeError: object of type 'int' has no len()"),
    ],
)
def test_an_error_in_code_of_a_user_shows_his_frames_and_ours_below_them(
    user: ModuleType, name: str, line: str
) -> None:
    lines = error_report.explained(error_of(getattr(user, name))).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "mine.py" in lines[1]
    assert lines[1].endswith(f"in {name}")
    assert lines[-1].startswith(line)


def test_what_a_message_of_ours_stands_for_is_shown_unless_it_says_so_itself(user: ModuleType) -> None:
    cause = error_of(user.bare)
    error = RuntimeError("the graph cannot be made")
    error.__cause__ = cause
    assert "in bare" in error_report.explained(error)
    error = RuntimeError(f"the environment broke:\n{error_report.foreign_trace(cause)}")
    error.__cause__ = cause
    assert error_report.foreign_trace(error) == ""


def test_a_key_alone_is_never_the_message() -> None:
    assert error_report.explained(KeyError("hidden")) == "srl: KeyError: 'hidden' (SRL_DEBUG=1 shows where)"
    assert error_report.explained(KeyError("no version is tagged 'x'")) == "srl: no version is tagged 'x'"
    assert error_report.explained(ValueError()) == "srl: ValueError"


def test_what_was_tried_elsewhere_brings_its_traceback_along() -> None:
    error = ValueError("wrong shape")
    error.add_note('Traceback (most recent call last):\n  File "mine.py", line 3, in make\nValueError: wrong shape\n')
    text = error_report.explained(error)
    assert text.count("Traceback") == 1
    assert text.endswith("ValueError: wrong shape\nsrl: ValueError: wrong shape")
