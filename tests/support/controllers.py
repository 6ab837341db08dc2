"""Controllers of live runs whose answers a test chooses."""

from __future__ import annotations

import threading
from pathlib import Path

from srl.api.status import RunStatus
from srl.api.transport import Message
from srl.controller.control_socket import ADDRESS, StatusReply
from srl.transports.runtime_dir import runtime_root


class Controllers:
    """Addresses of runs, and what they answer. A frozen one does not answer until the end of the test."""

    def __init__(self) -> None:
        self.answers: dict[str, RunStatus] = {}
        self.released = threading.Event()
        self.frozen: set[str] = set()

    def add(self, name: str, status: RunStatus) -> None:
        (runtime_root() / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        (runtime_root() / name / ADDRESS).touch()
        self.answers[name] = status

    def remove(self, name: str) -> None:
        (runtime_root() / name / ADDRESS).unlink()

    def ask(self, runtime: Path, message: Message) -> Message | None:
        if runtime.name in self.frozen:
            self.released.wait()
        return StatusReply(self.answers[runtime.name])
