"""Fixtures for tests of hostile files."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.gadgets import Gadget


@pytest.fixture
def gadget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gadget:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return Gadget(tmp_path)
