"""What the docs show works: examples run, commands parse, files and functions that are named exist."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from srl.cli.main import COMMANDS, parse

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
STEPS = 1000
LONGER = ("greedy_opponents", "results", "own_memory")


@pytest.mark.parametrize(
    "example",
    [pytest.param(path, marks=[pytest.mark.slow] if path.stem in LONGER else [], id=path.stem) for path in EXAMPLES],
)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(example), "--steps", str(STEPS), "--root", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    (run,) = tmp_path.iterdir()  # it trained, and under the given root
    assert list((run / "checkpoints").iterdir())


@pytest.mark.parametrize(
    "words",
    [
        ["learning.py", "CartPole-v1", "--steps", "512", "--seeds", "1", "--json"],
        pytest.param(["records.py", "--runs", "1", "--steps", "1024"], marks=pytest.mark.slow),
        ["fuzz_wire.py", "--frames", "2000"],
        ["fuzz_channels.py", "--cases", "200"],
    ],
    ids=lambda words: words[0],
)
def test_a_short_version_of_a_benchmark_runs(words: list[str]) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / words[0]), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout


def commands() -> Iterator[tuple[str, str]]:
    """Yield every `srl ...` in the docs, the comments of the examples, the help and the messages, with its place."""
    for page in PAGES:
        text = page.read_text()
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            yield from ((page.name, line) for line in block.splitlines() if line.startswith("srl "))
        prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
        yield from ((page.name, found) for found in re.findall(r"`(srl [a-z-]+ [^`|…]+)`", prose))
    for file in [*EXAMPLES, *(ROOT / "srl" / "cli").glob("*.py")]:
        yield from ((file.name, found) for found in re.findall(r"(?m)(srl train [^`\n]+)$", file.read_text()))
    for file in sorted((ROOT / "srl").rglob("*.py")):
        for text in filter(lambda text: "srl " in text, texts(ast.parse(file.read_text()))):
            yield from ((file.name, found) for found in re.findall(r"(?s)`(srl [a-z][^`]*)`", text))
            yield from ((file.name, found) for found in re.findall(r"(?:^|: )(srl [a-z-]+(?: [^`\n]+)?)$", text))


def texts(tree: ast.AST) -> Iterator[str]:
    """All strings of a module; what an f-string leaves open becomes 1, which goes for a name and for a number."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        else:
            pending.extend(ast.iter_child_nodes(node))


@cache
def where_commands_stand() -> dict[str, set[str]]:
    """Each command, and the files that name it."""
    found: dict[str, set[str]] = {}
    for place, command in commands():
        found.setdefault(" ".join(command.split()), set()).add(place)
    return found


OWN_ALGORITHMS = """
from dataclasses import dataclass
from srl import PPOConfig as Config

MyConfig = ExpertWorkerConfig = Config

@dataclass(frozen=True)
class HuberPPO(Config):
    delta: float = 1.0
"""


def test_every_command_in_the_docs_the_examples_and_the_messages_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('env = "CartPole-v1"')  # the docs' example of a config file
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "path" / "to").mkdir(parents=True)
    for file in ("my_file.py", "path/to/file.py"):  # the docs' examples of a user's algorithm
        (tmp_path / file).write_text(OWN_ALGORITHMS)
    failures = []
    for command, places in sorted(where_commands_stand().items()):
        words = shlex.split(command.partition(" > ")[0], comments=True)[1:]
        if len(words) == 1 and words[0] in COMMANDS:
            continue  # the text is about the command
        try:
            parse(words)
        except ValueError as error:
            failures.append(f"{', '.join(sorted(places))}: {command}\n    {error}")
    assert not failures, "\n".join(failures)


def test_the_docs_were_searched_for_commands() -> None:
    found = where_commands_stand()
    assert len(found) > 25
    assert "run_directory.py" in found["srl ps --all"]


def test_targets_of_make_in_the_docs_exist() -> None:
    targets = set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))
    shown = {
        target for page in PAGES for target in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {"train", "test"} <= shown
    assert shown <= targets


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_docs_lead_to_files(page: Path) -> None:
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text())]
    missing = [link for link in links if link and "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_that_the_docs_name_exist(page: Path) -> None:
    found = re.findall(
        r"`((?:srl|tests|examples|benchmarks|docs)/[\w./-]+\.(?:py|md))(?::([\w.]+))?`", page.read_text()
    )
    missing = [f"{file}:{name}" for file, name in found if not exists(ROOT / file, name)]
    assert missing == []


def exists(file: Path, name: str) -> bool:
    """Whether a file defines a function or class, or a class a method: `Actor.poll`."""
    if not file.is_file():
        return False
    node: ast.AST | None = ast.parse(file.read_text()) if name else None
    for part in name.split(".") if name else []:
        inside = getattr(node, "body", [])
        node = next((inner for inner in inside if getattr(inner, "name", None) == part), None)
        if node is None:
            return False
    return True


def test_the_journey_names_many_functions() -> None:
    journey = (ROOT / "docs" / "journey.md").read_text()
    assert len(set(re.findall(r"`srl/[\w/]+\.py:[\w.]+`", journey))) > 40
