"""Who is asked for `srl ps`: everybody once, and all at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from srl.api.status import RunStatus
from srl.api.transport import Message
from srl.controller import control_socket
from srl.controller.control_socket import TellStatus, live, running


def test_runs_are_asked_at_the_same_time_and_one_that_is_silent_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    here = control_socket.runtime_root()
    elsewhere = tmp_path / "runs" / "far" / "cluster"
    for door in (here / "near", here / "silent", elsewhere):
        door.mkdir(parents=True)
        (door / "address").touch()
    (here / "just being made").mkdir()
    together = threading.Barrier(3)
    asked: list[Path] = []

    def ask(door: Path, message: Message) -> Message | None:
        together.wait(PATIENCE)  # breaks if one is asked after the other
        asked.append(door)
        name = "far" if door == elsewhere else door.name
        return None if name == "silent" else TellStatus(RunStatus(name, "", "", str(door)))

    monkeypatch.setattr(control_socket, "ask", ask)
    found = live(tmp_path / "runs")
    assert {name: (door, status.run) for name, (door, status) in found.items()} == {
        "far": (elsewhere, "far"),
        "near": (here / "near", "near"),
    }
    assert sorted(asked) == sorted([here / "near", here / "silent", elsewhere])
    monkeypatch.setattr(control_socket, "ask", lambda door, message: None)
    assert running(tmp_path / "runs") == {}
