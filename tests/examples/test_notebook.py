"""The notebook runs in a kernel from its first to its last cell, and is kept without what it put out."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
STEPS = 6000
EXECUTE = """
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read("notebook.ipynb", as_version=4)
NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
nbformat.write(notebook, "notebook.ipynb")
"""
NEEDED = ("ipykernel", "pandas", "matplotlib", "onnxscript", "onnxruntime", "imageio", "pygame")


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_the_extra_all_has_what_the_notebook_needs() -> None:
    project = tomllib.loads((NOTEBOOK.parents[1] / "pyproject.toml").read_text())["project"]

    def packages(extra: str) -> set[str]:
        wanted = [Requirement(line) for line in project["optional-dependencies"][extra]]
        inner = [packages(name) for one in wanted if one.name == project["name"] for name in one.extras]
        return {one.name for one in wanted}.union(*inner)

    assert set(NEEDED) - packages("all") == set()


SMALL = """
import gymnasium
import srl

run = srl.train(lambda: gymnasium.make("CartPole-v1"), steps=2000, lanes=8, horizon=16, scheduler="inline", sinks=())
run
"""


def test_a_run_and_its_plot_are_shown_in_a_notebook(tmp_path: Path) -> None:
    _skip_without("ipykernel", "matplotlib", "nbclient")
    nbformat: Any = importlib.import_module("nbformat")
    cells = [nbformat.v4.new_code_cell(source) for source in (SMALL, "run.plot()", "print(repr(run))")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "notebook.ipynb")
    subprocess.run([sys.executable, "-c", EXECUTE], cwd=tmp_path, check=True, timeout=280)
    found = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]
    assert "<svg" in _shown(found[0])["text/html"]
    assert "finished" in _shown(found[0])["text/html"]
    image = base64.b64decode(_shown(found[1])["image/png"])
    assert image.startswith(b"\x89PNG")
    assert len(image) > 5_000
    assert "finished" in "".join(found[2]["outputs"][0]["text"])


def _skip_without(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:  # not imported: onnxruntime opens files of its own
            pytest.skip(f"{package} is not installed")


def _shown(cell: dict[str, Any]) -> dict[str, str]:
    """Return what a cell displays, by type."""
    found = [item for output in cell["outputs"] for item in output.get("data", {}).items()]
    return {kind: "".join(text) for kind, text in found}


@pytest.mark.slow
def test_the_notebook_runs_and_shows_its_results(tmp_path: Path) -> None:
    _skip_without("nbclient", *NEEDED)
    notebook = json.loads(NOTEBOOK.read_text())
    (parameters,) = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", ())]
    parameters["source"] = f"STEPS = {STEPS}"
    (tmp_path / "notebook.ipynb").write_text(json.dumps(notebook))
    subprocess.run([sys.executable, "-c", EXECUTE], cwd=tmp_path, check=True, timeout=280)
    cells = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]

    def shown(source: str) -> dict[str, str]:
        (cell,) = [cell for cell in cells if "".join(cell["source"]).startswith(source)]
        return _shown(cell)

    assert "<svg" in shown("run = srl.train")["text/html"]
    assert "finished" in shown("run = srl.train")["text/html"]
    assert len(shown("run.plot")["image/png"]) > 10_000
    assert "data:image/gif" in shown("run.video")["text/html"]
    assert "policy_loss" in shown("run.metrics")["text/html"]
    assert "finished" in shown("class Guess")["text/html"]
    assert {"video.gif", "policy.onnx", "runs"} <= {path.name for path in tmp_path.iterdir()}
