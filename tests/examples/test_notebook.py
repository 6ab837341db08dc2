"""The notebook runs in a kernel from its first to its last cell, and is kept without what it put out."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

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


@pytest.mark.slow
def test_the_notebook_runs_and_shows_its_results(tmp_path: Path) -> None:
    for package in ("nbclient", *NEEDED):
        if importlib.util.find_spec(package) is None:  # not imported: onnxruntime opens files of its own
            pytest.skip(f"{package} is not installed")
    notebook = json.loads(NOTEBOOK.read_text())
    (parameters,) = [cell for cell in notebook["cells"] if "parameters" in cell["metadata"].get("tags", ())]
    parameters["source"] = f"STEPS = {STEPS}"
    (tmp_path / "notebook.ipynb").write_text(json.dumps(notebook))
    subprocess.run([sys.executable, "-c", EXECUTE], cwd=tmp_path, check=True, timeout=280)
    cells = json.loads((tmp_path / "notebook.ipynb").read_text())["cells"]

    def shown(source: str) -> dict[str, str]:
        (cell,) = [cell for cell in cells if "".join(cell["source"]).startswith(source)]
        found = [item for output in cell["outputs"] for item in output.get("data", {}).items()]
        return {kind: "".join(text) for kind, text in found}

    assert "<svg" in shown("run = srl.train")["text/html"]
    assert "finished" in shown("run = srl.train")["text/html"]
    assert len(shown("run.plot")["image/png"]) > 10_000
    assert "data:image/gif" in shown("run.video")["text/html"]
    assert "policy_loss" in shown("run.metrics")["text/html"]
    assert "finished" in shown("class Guess")["text/html"]
    assert {"video.gif", "policy.onnx", "runs"} <= {path.name for path in tmp_path.iterdir()}
