"""The agent of the controller's own host outlives its controller, and the next one looks after it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from srl.schedulers.engines import manual
from srl.schedulers.engines.manual import ManualEngine
from srl.schedulers.engines.orphan_agent import MODULE, OrphanAgent, find, write_down
from srl.testing.contexts import until

NOBODY = "127.0.0.1:1"


@pytest.fixture
def former() -> Iterator[subprocess.Popen[bytes]]:
    """Not an agent really, but it is called like one, and does not leave by itself."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()", MODULE], stdin=subprocess.PIPE
    )
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def note(former: subprocess.Popen[bytes], tmp_path: Path) -> Path:
    path = tmp_path / "agent.json"
    write_down(former.pid, path)
    return path


def successor(note: Path) -> ManualEngine:
    engine = ManualEngine(note.with_name("agent.log"), note=note, attach=True)
    engine.start(NOBODY, bytes(32))
    return engine


def test_an_agent_that_a_predecessor_started_is_watched_and_another_takes_its_place(
    former: subprocess.Popen[bytes], note: Path
) -> None:
    before, engine = note.read_bytes(), successor(note)
    assert engine.poll() is None
    former.kill()
    problem = until(engine.poll)
    assert "the agent of this host ended (nobody saw how)" in problem
    until(lambda: note.read_bytes() != before, engine.poll)
    engine.close()


def test_an_agent_that_a_predecessor_started_and_that_hangs_is_ended(
    former: subprocess.Popen[bytes], note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manual, "GRACE_SECONDS", 0.01)
    engine = successor(note)
    engine.close()
    assert former.poll() is None, "the run was not taken over yet"
    engine.poll()
    engine.close()
    assert former.wait() == -9


def test_another_process_by_the_same_number_is_not_taken_for_it(former: subprocess.Popen[bytes], note: Path) -> None:
    found = find(note)
    assert isinstance(found, OrphanAgent)
    found.close()
    known = json.loads(note.read_bytes())
    note.write_text(json.dumps({**known, "began": known["began"] + 1}))
    assert find(note) is None


def test_where_nobody_knows_whether_it_is_there_no_other_is_started(note: Path) -> None:
    note.write_bytes(b"half a no")
    with pytest.raises(OSError, match="does not say which agent"):
        find(note)
    engine = successor(note)
    assert engine.poll() is None
    assert engine.poll() is None
    engine.close()
    assert note.read_bytes() == b"half a no"
