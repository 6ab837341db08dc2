"""The control socket: `srl ps` asks all runs at the same time, each once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from srl.api.status import RunStatus
from srl.api.transport import Message
from srl.controller import control_socket
from srl.controller.control_socket import StatusReply, live, pick, running
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
    assert {path: (directory, status.run) for path, (directory, status) in found.items()} == {
        str(elsewhere): (elsewhere, "far"),
        str(here / "near"): (here / "near", "near"),
    }
    assert sorted(asked) == sorted([here / "near", here / "silent", elsewhere])
    monkeypatch.setattr(control_socket, "ask", lambda directory, message: None)
    assert running([elsewhere]) == {}


def test_two_runs_with_one_name_are_both_live_and_told_apart_by_root_or_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    roots = tmp_path / "a", tmp_path / "b"
    for index in range(2):
        directory = runtime_root() / str(index)
        directory.mkdir(parents=True)
        (directory / "address").touch()
    monkeypatch.setattr(
        control_socket,
        "ask",
        lambda directory, _: StatusReply(RunStatus("same", "", "", str(roots[int(directory.name)] / "same"))),
    )
    runs = running()
    assert sorted(runs) == [str(root / "same") for root in roots]
    for index, root in enumerate(roots):
        expected = ("same", runtime_root() / str(index))
        assert pick("same", runs, root) == expected
        assert pick(str(root / "same"), runs) == expected
    with pytest.raises(ValueError, match="several runs in progress are called 'same'; give the path of one"):
        pick("same", runs, tmp_path)
    assert pick("other", {**runs, "/c/other-1": tmp_path}) == ("other-1", tmp_path)
