"""The site of the docs: pages from the code, links, the navigation, the table of algorithms and the glossary."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.test_examples import texts

import srl
from srl.api.spaces import Box, Dict, Discrete, MultiDiscrete
from srl.api.status import EvaluationStatus, PolicyStatus, RunStatus, StreamStatus, WorkerStatus
from srl.cli.main import COMMANDS
from srl.controller import diagnosis
from srl.experiments.options.algorithms import ALGORITHMS, algorithm_class
from srl.experiments.options.train_options import SECTIONS
from srl.terminal.frame import PHASES, STATES, frame

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GROUPS = ("trainers", "actors", "policies", "evaluators")


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_of_commands_has_every_command(hooks: Any) -> None:
    page = hooks.commands()
    assert all(f"### srl {name} {{ #{name} }}" in page for name in COMMANDS)
    assert "| `--episodes N` |" in page


def test_the_page_of_options_has_every_option(hooks: Any) -> None:
    page = hooks.train_options()
    names = [field.name for kind in SECTIONS.values() for field in dataclasses.fields(kind) if field.name != "env_args"]
    missing = [name for name in names if f"| `--{name.replace('_', '-')}" not in page]
    assert missing == []


def test_the_page_of_algorithms_shows_what_a_preset_changes(hooks: Any) -> None:
    page = hooks.algorithm_pages()
    a2c = page[page.index("## a2c") : page.index("## impala")]
    assert "| `--algo.epochs N` | `1` |" in a2c
    assert "--algo.gamma" not in a2c


def test_every_mark_in_a_page_has_its_function(hooks: Any) -> None:
    marks = {mark for page in DOCS.rglob("*.md") for mark in hooks.MARK.findall(page.read_text())}
    assert marks == set(hooks.GENERATED)


def test_links_to_files_of_the_repository_become_links_to_pages(hooks: Any) -> None:
    text = "[a](../../examples/own_network.py) [b](networks.md#masks) [c](https://x.org) [d](../../CHANGELOG.md)"
    assert hooks.rewritten(text, DOCS / "howto", "howto/policy.md") == (
        "[a](../source/examples/own_network.py.md) [b](networks.md#masks) [c](https://x.org) [d](../changelog.md)"
    )
    code = "```python\n[a](../../examples/own_network.py)\n```"
    assert hooks.rewritten(code, DOCS / "howto", "howto/policy.md") == code


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    assert [page for page in pages if page not in navigation and not page.startswith("decisions/")] == []


OBSERVATION = Dict({"observation": Box((4,)), "state": Box((8,))})
ACTIONS = {
    "Discrete": Discrete(3),
    "MultiDiscrete, MultiBinary": MultiDiscrete((2, 3)),
    "Box": Box((2,), low=-1.0, high=1.0),
    "Dict, Tuple": Dict({"a": Discrete(2), "b": Box((1,), low=-1.0, high=1.0)}),
}


def test_the_config_of_every_algorithm_is_a_name_of_srl_with_an_entry_in_the_api() -> None:
    page = (DOCS / "api" / "algorithms.md").read_text()
    for name in ALGORITHMS:
        kind = algorithm_class(name)
        assert getattr(srl, kind.__name__) is kind
        assert f"::: srl.{kind.__name__}\n" in page


def test_import_srl_is_enough_for_callbacks_and_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("callbacks", "testing"):
        monkeypatch.delattr(srl, package)  # as in a process that has imported nothing else
    assert issubclass(srl.callbacks.EarlyStopping, srl.Callback)
    assert callable(srl.testing.check_environment)


def test_the_table_of_action_spaces_is_right() -> None:
    section = (DOCS / "algorithms.md").read_text().partition("\n## Action spaces\n")[2].partition("\n## ")[0]
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    heading, rows = lines[0], {line[0].strip("`"): line for line in lines[2:]}
    assert set(rows) == set(ALGORITHMS), "docs/algorithms.md: every algorithm has a row in the table of action spaces"
    for algo, row in rows.items():
        for title, action in ACTIONS.items():
            shown = row[heading.index(title)].startswith("yes")
            assert shown == supports(algo, action), f"docs/algorithms.md: {algo} and {title}"


def supports(algo: str, action: Any) -> bool:
    try:
        algorithm_class(algo)().check(OBSERVATION, action)
    except ValueError:
        return False
    return True


def test_the_glossary_has_every_term_of_the_live_view() -> None:
    page = re.sub(r"^```.*?^```", "", (DOCS / "live-view.md").read_text(), flags=re.DOTALL | re.MULTILINE)
    words = set(re.findall(r"\*\*([^*]+)\*\*", page)) | set(re.findall(r"`([^`]+)`", page))
    written = texts(ast.parse(Path(diagnosis.__file__).read_text()))
    bottlenecks = {found[1] for text in written if (found := re.match(r"([a-z][a-z -]+): (?!1$|--)", text))}
    assert {"trainer", "balanced", "first update"} <= bottlenecks
    assert bottlenecks - words == set()
    assert set(PHASES) | set(STATES) <= words
    assert labels_of_the_view() <= words


def labels_of_the_view() -> set[str]:
    """Return the words at the beginning of the lines of a frame that shows everything."""
    evaluation = EvaluationStatus(1, 1000, 1, 10, 5.0, 0.5, 10.0, 5.0, 1000)
    status = RunStatus(
        "run",
        "CartPole-v1",
        "ppo",
        "runs/run",
        state="running",
        steps=10,
        target_steps=100,
        return_mean=1.0,
        return_curve=[1.0, 2.0],
        length_mean=3.0,
        restarts=1,
        refused={"silent": 1},
        policies={"policy": PolicyStatus(evaluation=evaluation)},
        workers=[WorkerStatus(f"{group}/0", group, state="running", busy={"env": 0.5}) for group in GROUPS],
        streams=[StreamStatus("samples/0", "push"), StreamStatus("requests/0", "request")],
        bottleneck="balanced",
        advice="nothing",
    )
    lines = frame(status, 120, 60).plain.splitlines()[3:]
    return {line.split()[0] for line in lines if line.strip() and line[:2].strip() == "" and line[1:2].isalpha()}
