"""A real run that is live during a test. It learns in a thread, slowly, so that it leaves the processor to the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import srl
from srl.controller.control_socket import StopRequest, ask, running
from support.waiting import PATIENCE, wait_for

SMALL = {"lanes": 2, "horizon": 16, "batch": 32, "recipe": "none", "verbose": False, "scheduler": "inline"}


class Slowly(srl.Callback):
    def on_start(self, run: Any) -> None:
        run.notify("hello from a callback")

    def on_update(self, record: Mapping[str, Any]) -> None:
        time.sleep(0.05)


@contextmanager
def live_run(root: Path, name: str = "live", **options: Any) -> Iterator[Path]:
    """Yield the directory of a run that has made updates, and stop it in the end if it is still live."""
    settings = {**SMALL, "steps": 10**9, "callbacks": [Slowly()], **options}
    thread = threading.Thread(target=lambda: srl.train("CartPole-v1", root=root, name=name, **settings))
    thread.start()
    path = (root / name).resolve()
    try:
        wait_for(lambda: str(path) in running(), "the start of the run")
        yield path
    finally:
        if (runtime := running().get(str(path))) is not None:
            ask(runtime, StopRequest())
        thread.join(PATIENCE)
        assert not thread.is_alive()
