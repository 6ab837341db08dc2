"""An error of SRL is one line; an error of user code shows its traceback."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

import srl
from srl.base import errors
from srl.base.errors import innermost, nearest
from srl.base.object_names import load_object
from srl.storage.run_directory import RunDirectoryError

USER = """
import json
from srl.base.object_names import load_object

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
    spec = importlib.util.spec_from_file_location("user_module", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(work: Callable[[], object]) -> Exception:
    """The error of `work`, without the frame of this function."""
    with pytest.raises((ValueError, LookupError, TypeError)) as caught:
        work()
    outermost = caught.value.__traceback__
    return caught.value.with_traceback(outermost.tb_next if outermost else None)


def test_an_error_of_srl_is_one_line_unless_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    error = error_of(partial(load_object, "no_such_module:make"))
    assert errors.explain(error).startswith("srl: no module 'no_such_module'")
    monkeypatch.setenv("SRL_DEBUG", "1")
    text = errors.explain(error)
    assert text.startswith("Traceback")
    assert "object_names.py" in text
    assert text.splitlines()[-1].startswith("srl: no module 'no_such_module'")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bare", "srl: KeyError: 'hidden'"),
        ("deep", "srl: JSONDecodeError: Expecting property name"),
        ("misuse", "srl: ValueError: 'make' does not name an object"),
        ("broken", "srl: TypeError: object of type 'int' has no len()"),
    ],
)
def test_an_error_in_user_code_shows_the_traceback_from_there(user: ModuleType, name: str, line: str) -> None:
    lines = errors.explain(error_of(getattr(user, name))).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "mine.py" in lines[1]
    assert lines[1].endswith(f"in {name}")
    assert lines[-1].startswith(line)
    assert not any("srl/base" in shown for shown in lines), "frames of SRL are left out"


@pytest.mark.parametrize(
    ("file", "module"), [("<stdin>", "__main__"), ("<string>", "__main__"), ("<ipython-input-1-2>", "x")]
)
def test_code_that_was_typed_in_is_the_users(file: str, module: str) -> None:
    names: dict[str, object] = {"__name__": module}
    exec(compile("def typed(): return {}['x']", file, "exec"), names)
    assert errors.user_traceback(error_of(cast(Any, names["typed"]))).startswith(
        f'Traceback (most recent call last):\n  File "{file}", line 1, in typed\n'
    )


def test_the_cause_of_an_error_is_shown_unless_the_message_contains_it(user: ModuleType) -> None:
    cause = error_of(user.bare)
    error = RuntimeError("the graph cannot be built")
    error.__cause__ = cause
    assert "in bare" in errors.explain(error)
    error = RuntimeError(f"the environment broke:\n{errors.user_traceback(cause)}")
    error.__cause__ = cause
    assert errors.user_traceback(error) == ""


def test_an_error_of_srl_shows_only_the_callers_line_in_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def files(function: Callable[..., object]) -> list[str]:
        with pytest.raises(RunDirectoryError, match="no run 'latestt'") as raised:
            function("latestt")
        return [Path(each.path).name for each in raised.traceback]

    assert files(srl.load) == ["test_errors.py", "errors.py"]
    monkeypatch.setenv(errors.DEBUG, "1")
    assert "run_directory.py" in files(srl.load)


def test_an_error_in_the_users_code_keeps_its_lines_in_a_script(user: ModuleType) -> None:
    with pytest.raises(TypeError) as raised:
        errors.short_traceback(user.broken)()
    assert Path(raised.traceback[-1].path).name == "mine.py"


def test_a_bare_key_is_never_the_text_message() -> None:
    assert errors.explain(KeyError("hidden")) == "srl: KeyError: 'hidden' (SRL_DEBUG=1 shows where)"
    assert errors.explain(KeyError("no version has the tag 'x'")) == "srl: no version has the tag 'x'"
    assert errors.explain(ValueError()) == "srl: ValueError"


def test_an_error_from_another_process_shows_the_traceback_in_its_notes() -> None:
    error = ValueError("wrong shape")
    error.add_note('Traceback (most recent call last):\n  File "mine.py", line 3, in make\nValueError: wrong shape\n')
    text = errors.explain(error)
    assert text.count("Traceback") == 1
    assert text.endswith("ValueError: wrong shape\nsrl: ValueError: wrong shape")


def test_a_similar_word_is_suggested_regardless_of_case_and_dashes() -> None:
    assert nearest("cartpol", ["cartpole", "pong"]) == "; did you mean 'cartpole'?"
    assert nearest("num-minibatchs", ["num_minibatches", "num_epochs"]) == "; did you mean 'num_minibatches'?"
    assert nearest("PONG", ["Pong"]) == "; did you mean 'Pong'?"


def test_valid_words_are_listed_if_none_is_similar() -> None:
    assert nearest("xyz", ["b", "a"]) == "; valid ones: a, b"
    assert nearest("xyz", []) == "; there are none"
    assert nearest("zzz", [f"name{i:02d}" for i in range(25)]).endswith("name19 and 5 more")


DUMP = f"""Thread 0x00007f01 (most recent call first):
  File "/home/me/other.py", line 3 in wait

Current thread 0x00007f7d (most recent call first):
  File "{threading.__file__}", line 320 in wait
  File "/home/me/physics.py", line 12 in simulate
  File "/home/me/env.py", line 8 in step
  File "<frozen runpy>", line 198 in _run_module_as_main
"""


def test_a_stack_dump_is_summarized_by_the_innermost_line_of_the_users_code():
    assert innermost(DUMP) == " at /home/me/physics.py:12 in simulate"
    only_installed = 'Current thread 0x0 (most recent call first):\n  File "/x/site-packages/a.py", line 1 in f\n'
    assert innermost(only_installed) == " at /x/site-packages/a.py:1 in f"
    assert innermost("") == ""
