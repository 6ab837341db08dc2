"""A terminal for each test, which must be empty when the test is over."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from terminals import Terminal, wait_for


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    runtime = Path(tempfile.mkdtemp(prefix="srl"))  # short: the kernel allows 107 bytes for a socket's path
    terminal = Terminal(tmp_path / "runs", runtime)
    segments = set(Path("/dev/shm").iterdir())
    try:
        yield terminal
        for command in terminal.commands:
            assert command.process.poll() is not None, f"{command.process.args} was not ended by the test"
        wait_for(lambda: not terminal.processes(), 2.0, f"no process is left of {terminal.processes()}")
        wait_for(lambda: not terminal.leftovers(), 2.0, f"no directory is left of {terminal.leftovers()}")
        left = [path for path in set(Path("/dev/shm").iterdir()) - segments if "srl" in path.name]
        assert not left
    finally:
        terminal.close()
        shutil.rmtree(runtime, ignore_errors=True)
