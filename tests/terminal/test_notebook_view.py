"""The view of a run in a notebook."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from srl.api.status import PolicyStatus, RunStatus
from srl.terminal.notebook import curves_svg, in_notebook, status_html
from srl.terminal.view import NotebookView, view_for, watching


def status(**changes: Any) -> RunStatus:
    policies = {"policy": PolicyStatus(learning=True, return_curve=[1.0, 3.0, 2.0], return_mean=2.0)}
    given: dict[str, Any] = {"state": "running", "steps": 250, "target_steps": 1000, "policies": policies, **changes}
    return RunStatus("run", "<b>Env</b>", "ppo", "runs/run", return_mean=2.0, episodes=9, **given)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """A kernel; what it displays: (`new` or `update`, HTML)."""
    found: list[tuple[str, str]] = []

    def display(html: Any, display_id: bool) -> Any:
        assert display_id
        found.append(("new", html.text))
        return SimpleNamespace(update=lambda html: found.append(("update", html.text)))

    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    module = SimpleNamespace(HTML=lambda text: SimpleNamespace(text=text), display=display)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return found


def test_a_status_shows_progress_and_escapes_names() -> None:
    html = status_html(status())
    for text in ("250 of 1,000 (25 %) steps", "width:25.0%", "return 2.0", "&lt;b&gt;Env&lt;/b&gt;", "<polyline"):
        assert text in html, html
    assert "<b>Env" not in html


def test_a_curve_reaches_from_its_lowest_to_its_highest_value() -> None:
    svg = curves_svg({"policy": [10.0, 30.0, 20.0]})
    assert 'points="0.0,105.0 240.0,5.0 480.0,55.0"' in svg
    assert curves_svg({"policy": [1.0]}) == ""
    assert curves_svg({"a": [1.0, 1.0], "b": [1.0, 2.0]}).count("<polyline") == 2


def test_a_kernel_gets_one_output_that_is_updated_in_place(shown: list[tuple[str, str]]) -> None:
    assert in_notebook()
    with watching() as (observe, finish):
        observe(status())
        finish(status(state="finished", steps=1000))
    assert [kind for kind, _ in shown] == ["new", "update"]
    assert "finished" in shown[-1][1]


def test_a_process_without_a_kernel_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()
    from rich.console import Console

    assert not isinstance(view_for(Console()), NotebookView)
