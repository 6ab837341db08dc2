"""The notebook runs from its first to its last cell, and is kept without what it put out."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"
STEPS = 6000


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) > 5
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    """As in a kernel: one cell after the other, in a process whose `__main__` has no file. A kernel itself would bring
    nothing but ten packages to install."""
    for package in ("matplotlib", "onnxscript", "onnxruntime", "imageio", "pygame"):
        if importlib.util.find_spec(package) is None:  # not imported: onnxruntime opens files of its own
            pytest.skip(f"{package} is not installed")
    notebook = json.loads(NOTEBOOK.read_text())
    sources = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            parameters = "parameters" in cell["metadata"].get("tags", ())
            sources.append(f"STEPS = {STEPS}" if parameters else "".join(cell["source"]))
    assert f"STEPS = {STEPS}" in sources
    done = subprocess.run(
        [sys.executable, "-"], input="\n".join(sources), cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert {"video.gif", "policy.onnx", "runs"} <= {path.name for path in tmp_path.iterdir()}
    assert "return" in done.stdout
