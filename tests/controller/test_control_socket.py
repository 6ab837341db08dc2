"""The control socket: `srl ps` asks all runs at the same time, each once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from srl.api.status import RunStatus
from srl.api.transport import Message
from srl.controller import control_socket
from srl.controller.control_socket import StatusReply, live, running
from srl.transports.runtime_dir import runtime_root


def test_runs_are_asked_at_the_same_time_and_one_without_an_answer_is_omitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    here = runtime_root()
    elsewhere = tmp_path / "runs" / "far" / "cluster"
    for directory in (here / "near", here / "silent", elsewhere):
        directory.mkdir(parents=True)
        (directory / "address").touch()
    (here / "without address").mkdir()
    together = threading.Barrier(3)
    asked: list[Path] = []

    def ask(directory: Path, message: Message) -> Message | None:
        together.wait(PATIENCE)  # fails if one is asked after the other
        asked.append(directory)
        name = "far" if directory == elsewhere else directory.name
        return None if name == "silent" else StatusReply(RunStatus(name, "", "", str(directory)))

    monkeypatch.setattr(control_socket, "ask", ask)
    found = live([elsewhere])
    assert {name: (directory, status.run) for name, (directory, status) in found.items()} == {
        "far": (elsewhere, "far"),
        "near": (here / "near", "near"),
    }
    assert sorted(asked) == sorted([here / "near", here / "silent", elsewhere])
    monkeypatch.setattr(control_socket, "ask", lambda directory, message: None)
    assert running([elsewhere]) == {}
