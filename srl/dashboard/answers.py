"""The last answers of live controllers, asked so that one that is frozen or far away delays no page."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from srl.api.status import RunStatus
from srl.api.transport import Message
from srl.controller.control_socket import StatusReply, StatusRequest, ask

PATIENCE_SECONDS = 1.0
"""Time that a page waits for answers; one that comes later is shown the next time."""
LATE_SECONDS = 4.0
"""Age of an answer from which the page says that the run does not answer."""
KEPT_SECONDS = 60.0
"""Age at which an answer is no longer shown."""


@dataclass(frozen=True)
class Answer:
    """What a controller answered last."""

    runtime: Path  # directory with its address
    status: RunStatus
    age: float  # in seconds

    @property
    def is_late(self) -> bool:
        return self.age > LATE_SECONDS


@dataclass
class _Asked:
    """A controller that is asked by one thread at a time."""

    last: tuple[float, RunStatus] | None = None
    thread: threading.Thread | None = None
    is_silent: bool = False  # it has not answered the last question in time


class Answers:
    """Asks controllers for their status. A silent one keeps its last answer for a minute."""

    def __init__(
        self,
        ask: Callable[[Path, Message], Message | None] = ask,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._patience = patience
        self._known: dict[Path, _Asked] = {}

    def newest(self, runtimes: Sequence[Path]) -> list[Answer]:
        """Ask all controllers at the same time, and return their newest answers. Controllers that were silent the last
        time are not waited for. Not to be called from two threads at once."""
        self._known = {runtime: self._known.get(runtime) or _Asked() for runtime in runtimes}
        awaited = []
        for runtime, asked in self._known.items():
            if asked.thread is None or not asked.thread.is_alive():
                asked.thread = threading.Thread(target=self._question, args=(runtime, asked), daemon=True)
                asked.thread.start()
                if not asked.is_silent:
                    awaited.append(asked)
        end = time.monotonic() + self._patience
        for asked in awaited:
            assert asked.thread is not None
            asked.thread.join(max(0.0, end - time.monotonic()))
            asked.is_silent = asked.thread.is_alive()
        now = self._clock()
        answers = [(runtime, asked.last) for runtime, asked in self._known.items()]
        found = [Answer(runtime, last[1], now - last[0]) for runtime, last in answers if last is not None]
        return [answer for answer in found if answer.age < KEPT_SECONDS]

    def _question(self, runtime: Path, asked: _Asked) -> None:
        answer = self._ask(runtime, StatusRequest())
        if isinstance(answer, StatusReply):
            asked.last = self._clock(), answer.status
        asked.is_silent = not isinstance(answer, StatusReply)
