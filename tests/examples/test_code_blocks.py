"""The Python code in the docs runs.

The blocks of a page are one script. A comment before a block, which readers do not see, changes this:

    <!-- not run: REASON -->                the block is not part of it
    <!-- before: CODE -->                   code that the block needs and that the reader has, such as an observation
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUNNER = ROOT / "tests" / "support" / "code_blocks.py"
BLOCK = re.compile(r"^(?:<!-- (not run|before): (.*?) ?-->\n)?```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LONGER = ("howto/results", "howto/sweeps", "options")  # an export, a sweep, and three runs
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if BLOCK.search(page.read_text())]


def script_of(page: str) -> str:
    """Return the blocks of a page as one script."""
    parts = []
    for kind, comment, code in BLOCK.findall(page):
        parts += [comment] if kind == "before" else []
        parts += [code] if kind != "not run" else []
    return "\n\n".join(parts)


@pytest.mark.parametrize("longer", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_code_of_the_pages_runs(longer: bool, tmp_path: Path) -> None:
    scripts = []
    for page in PAGES:
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if (code := script_of(page.read_text())) and (name in LONGER) == longer:
            folder = tmp_path / name.replace("/", "-")
            folder.mkdir()
            scripts.append(folder / "script.py")
            scripts[-1].write_text(code)
    done = subprocess.run([sys.executable, RUNNER, *scripts], cwd=tmp_path, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_every_block_of_python_is_found() -> None:
    for page in PAGES:
        text = page.read_text()
        assert len(BLOCK.findall(text)) == len(re.findall("^```python", text, re.MULTILINE)), page


def test_the_migration_pages_have_worked_examples() -> None:
    for page in (ROOT / "docs" / "migration").glob("*.md"):
        assert "srl.train(" in script_of(page.read_text()), page
