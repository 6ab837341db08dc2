"""The installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_script_beside_a_clone_imports_the_package(tmp_path: Path) -> None:
    (tmp_path / "srl").symlink_to(ROOT)  # as after `git clone .../srl`
    (tmp_path / "script.py").write_text("import srl\nprint(srl.__version__)\n")
    ended = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
