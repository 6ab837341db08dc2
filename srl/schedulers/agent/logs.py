"""Logs of another host's workers on their way to the run directory."""

from __future__ import annotations

import contextlib
from pathlib import Path

from srl.api.transport import Channel
from srl.schedulers.hosts.messages import LogText

MAX_BYTES = 1 << 16
"""Of one log in one beat: a worker that prints without end costs a bounded part of the line."""
SHARED = ("zygote",)
"""Logs that every host has; in the run directory they get the host's name."""


class GrowingLogs:
    def __init__(self, directory: Path, host: str) -> None:
        self._directory = directory
        self._host = host
        self._shipped: dict[str, int] = {}

    def ship(self, channel: Channel) -> None:
        """Send what was added since the last time; of a flood the newest part."""
        for path in self._directory.glob("*.log"):
            size = path.stat().st_size
            begin = self._shipped.get(path.name, 0)
            if size <= begin:
                continue
            with path.open("rb") as file:
                file.seek(max(begin, size - MAX_BYTES))
                text = file.read(MAX_BYTES)
            self._shipped[path.name] = size
            name = f"{path.stem}-{self._host}" if path.stem in SHARED else path.stem
            channel.send(LogText(name, text))


def append(directory: Path, message: LogText) -> None:
    """Where it arrives. A full disk costs the log, not the run."""
    with contextlib.suppress(OSError), (directory / f"{Path(message.name).name}.log").open("ab") as file:
        file.write(message.text)
