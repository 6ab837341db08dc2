"""Output of workers: nothing that happens to the disk reaches the process that prints."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.waiting import wait_for

from srl.base.files import Losses
from srl.schedulers.agent.uploads import MAX_LOG_BYTES, LogUpload
from srl.schedulers.local.worker_logs import LogFiles, WorkerLogs

LOUD = "for number in range(40_000): print(f'{number:099}')"  # 4 MB


@pytest.fixture
def losses() -> Losses:
    return Losses()


@pytest.fixture
def logs(tmp_path: Path, losses: Losses) -> Iterator[WorkerLogs]:
    made = WorkerLogs(LogFiles(tmp_path / "logs", losses, max_bytes=2_000_000))
    yield made
    made.close()


def run(logs: WorkerLogs, name: str, code: str) -> int:
    """Run a program that prints, as a worker does."""
    output = logs.open(name)
    with subprocess.Popen([sys.executable, "-c", code], stdout=output, stderr=output) as process:
        os.close(output)
    return process.returncode


def test_output_is_in_the_file_once_its_process_has_ended(tmp_path: Path, logs: WorkerLogs) -> None:
    assert run(logs, "actors-0", "print('hello')") == 0
    logs.write("actors-0", "srl: actors/0 died")
    assert (tmp_path / "logs" / "actors-0.log").read_text() == "hello\nsrl: actors/0 died\n"
    assert logs.size("actors-0") == len("hello\n")
    assert logs.tail("actors-0", 2) == "llo\n"
    assert logs.tail("actors-0", 6) == logs.tail("unknown") == ""


def test_a_process_that_prints_a_lot_leaves_a_bounded_log(tmp_path: Path, logs: WorkerLogs) -> None:
    assert run(logs, "actors-0", LOUD) == 0
    logs.write("actors-0", "the end")
    sizes = [path.stat().st_size for path in (tmp_path / "logs").iterdir()]
    assert 1_000_000 < sum(sizes) < 2_100_000
    assert (tmp_path / "logs" / "actors-0.log").read_text().endswith(f"{39_999:099}\nthe end\n")


def test_a_process_that_prints_does_not_notice_a_broken_disk(tmp_path: Path, logs: WorkerLogs, losses: Losses) -> None:
    (tmp_path / "logs").touch()  # a file in place of the directory
    assert run(logs, "actors-0", LOUD) == 0
    wait_for(lambda: losses.totals().get("actors-0.log", 0) > 3_000_000, "losses")
    (tmp_path / "logs").unlink()
    wait_for(lambda: (tmp_path / "logs" / "actors-0.log").exists(), "the log")
    logs.write("actors-0", "the end")
    text = (tmp_path / "logs" / "actors-0.log").read_text()
    assert text.startswith("srl: output was dropped here")
    assert text.endswith(f"{39_999:099}\nthe end\n")


def test_an_agent_holds_the_end_of_a_log_until_it_is_sent() -> None:
    upload = LogUpload("host")
    for number in range(4):
        upload.add("actors-0", bytes([number]) * (MAX_LOG_BYTES // 2))
    upload.add("zygote", b"hello")
    upload.add("zygote", b"")
    sent: list[tuple[str, bytes]] = []

    class Channel:
        def send(self, message: object) -> None:
            sent.append((message.name, message.text))  # type: ignore[attr-defined]

    upload.send(Channel())  # type: ignore[arg-type]
    (name, text), other = sent
    assert name == "actors-0"
    assert text.startswith(b"srl: output was dropped here")
    assert text.endswith(bytes([2]) * (MAX_LOG_BYTES // 2) + bytes([3]) * (MAX_LOG_BYTES // 2))
    assert other == ("zygote-host", b"hello")
    upload.send(Channel())  # type: ignore[arg-type]
    assert len(sent) == 2
