"""Log files of workers: one line per event, with the time, the level and the worker's name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s {worker}  %(message)s"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


@contextmanager
def logging_to(path: Path, worker: str, level: int = logging.INFO) -> Iterator[None]:
    """Everything logged inside goes to the end of the file, and stays there after a restart of the worker."""
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter(FORMAT.format(worker=worker.replace("%", "%%")), DATE_FORMAT))
    root = logging.getLogger()
    former = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(former)
        handler.close()
