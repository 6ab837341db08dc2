"""A terminal for each test, which checks that the test leaves nothing behind."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.terminals import Terminal, wait_until_gone


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    runtime = Path(tempfile.mkdtemp(prefix="srl"))  # short: the kernel allows 107 bytes for a socket's path
    terminal = Terminal(tmp_path / "runs", runtime)
    segments = set(Path("/dev/shm").iterdir())
    try:
        yield terminal
        for command in terminal.commands:
            assert command.process.poll() is not None, f"{command.process.args!r} was not ended by the test"
        wait_until_gone(terminal.processes)
        wait_until_gone(terminal.leftovers)
        left = [path for path in set(Path("/dev/shm").iterdir()) - segments if "srl" in path.name]
        assert not left
    finally:
        terminal.close()
        shutil.rmtree(runtime, ignore_errors=True)
